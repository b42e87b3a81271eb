package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestTroubledTenants(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	found, err := b.TroubledTenants(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, found)

	ill, stopped := b.AddEndpoint(t, "order.*"), b.AddEndpoint(t, "order.*")
	require.NoError(t, b.WriteObservations(t.Context(), "w1", map[webhook.EndpointID]webhook.Observation{ill.ID: {}, stopped.ID: {}}))
	_, err = b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", stopped.ID, "")
	require.NoError(t, err)
	b.Exec(t, `insert into tenants (id, name) values ('letters', 'With letters'), ('older', 'Older')`)
	insert := `insert into statistics_minutes (tenant_id, endpoint_id, at, ended_dead_lettered) values ($1, '00000000-0000-0000-0000-000000000000', $2, $3)`
	now := time.Now().UTC().Truncate(time.Minute)
	b.Exec(t, insert, "letters", now, 2)
	b.Exec(t, insert, "letters", now.Add(-time.Minute), 3)
	b.Exec(t, insert, "older", now.Add(-2*time.Hour), 3)
	b.Exec(t, insert, "", now, 5)

	found, err = b.TroubledTenants(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []webhook.TroubledTenant{
		{TenantID: "acme", Name: found[0].Name, Endpoints: 2},
		{TenantID: "letters", Name: "With letters", DeadLetters: 5},
	}, found)
	found, err = b.TroubledTenants(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, found, 1)
}

func TestUndeliveredOfEndpoints(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	soon := time.Now().Add(time.Minute)
	b.Waiting(t, webhook.StateHeld, webhook.ReasonBacklog, time.Time{})
	b.Waiting(t, webhook.StateRetrying, "", soon)
	b.Waiting(t, webhook.StatePending, webhook.ReasonRate, soon)
	b.Waiting(t, webhook.StateDelivered, "", time.Time{})
	b.Waiting(t, webhook.StateDeadLettered, "max_attempts", time.Time{})
	b.Waiting(t, webhook.StateDeadLettered, "http_401", time.Time{})
	b.Waiting(t, webhook.StateCancelled, webhook.ReasonCancelled, time.Time{})
	b.Waiting(t, webhook.StateDiscarded, webhook.ReasonDiscarded, time.Time{})
	idle := b.AddEndpoint(t, "user.*")
	of := func(tenant string) webhook.Undelivered {
		t.Helper()
		found, err := b.UndeliveredOf(t.Context(), tenant, []webhook.EndpointID{b.Subscriber.ID, idle.ID})
		require.NoError(t, err)
		require.Zero(t, found[idle.ID])
		return found[b.Subscriber.ID]
	}
	require.Equal(t, webhook.Undelivered{Waiting: 2, Held: 1, GivenUp: 2}, of("acme"))
	require.Zero(t, of("other"), "another tenant's are not counted")

	b.Exec(t, `
		insert into deliveries select (jsonb_populate_record(d, jsonb_build_object('id', gen_random_uuid()))).*
		from deliveries d, generate_series(1, $1) where d.state > 3`, webhook.MaxListed+10)
	require.Equal(t, webhook.Undelivered{Waiting: 2, Held: 1, GivenUp: webhook.MaxListed}, of("acme"), "each has a bound of its own")
}
