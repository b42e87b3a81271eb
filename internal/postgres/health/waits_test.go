package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// A list says of each endpoint how many deliveries are open, up to a bound, and when one was delivered last.
func TestWaitsOfEndpoints(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	soon := time.Now().Add(time.Minute).UTC().Truncate(time.Microsecond)
	busy := b.Subscriber
	b.Waiting(t, webhook.StateHeld, webhook.ReasonBacklog, time.Time{})
	b.Waiting(t, webhook.StateRetrying, "", soon)
	b.Waiting(t, webhook.StatePending, webhook.ReasonRate, soon)
	b.Waiting(t, webhook.StateDelivered, "", time.Time{})
	b.Waiting(t, webhook.StateDeadLettered, "max_attempts", time.Time{})
	idle := b.AddEndpoint(t, "user.*")

	minute, hour := soon.Truncate(time.Minute).Add(-3*time.Hour), soon.Truncate(time.Hour).Add(-50*time.Hour)
	const counted = `insert into statistics_minutes (tenant_id, endpoint_id, at, attempt_delivered, attempt_http_5xx) values ('acme', $1, $2, $3, 1)`
	b.Exec(t, counted, busy.ID, minute, 4)
	b.Exec(t, counted, busy.ID, minute.Add(time.Minute), nil) // failed since
	b.Exec(t, `insert into statistics_hours (tenant_id, endpoint_id, at, attempt_delivered) values ('acme', $1, $2, 1)`, idle.ID, hour)

	found, err := b.WaitsOf(t.Context(), "acme", []webhook.EndpointID{busy.ID, idle.ID})
	require.NoError(t, err)
	require.Equal(t, map[webhook.EndpointID]webhook.Waits{
		busy.ID: {Waiting: 3, LastSuccess: minute}, idle.ID: {LastSuccess: hour},
	}, found)

	b.Exec(t, `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, give_up_at, due_at)
		select uuidv7ish, d.event_id, d.endpoint_id, d.tenant_id, d.event_type, d.created_at, 1, 1, d.state, d.reason, d.give_up_at, d.due_at
		from deliveries d cross join lateral (
			select (left(d.id::text, 24) || lpad(to_hex(n), 12, '0'))::uuid as uuidv7ish from generate_series(1, $2) n) u
		where d.endpoint_id = $1 and d.reason = $3`, busy.ID, 2*webhook.MaxListed, webhook.ReasonRate)
	found, err = b.WaitsOf(t.Context(), "acme", []webhook.EndpointID{busy.ID})
	require.NoError(t, err)
	require.Equal(t, webhook.Waits{Waiting: webhook.MaxListed, More: true, LastSuccess: minute}, found[busy.ID])
	found, err = b.WaitsOf(t.Context(), "acme", nil)
	require.NoError(t, err)
	require.Empty(t, found)
}
