package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// health reads the endpoint's, as a process that is no worker does.
func (b *deliveryBundle) health(t *testing.T) (webhook.Backlog, []webhook.Observation) {
	t.Helper()
	e, backlog, seen, err := b.Health(t.Context(), "acme", b.endpoint.ID, "")
	require.NoError(t, err)
	require.Equal(t, b.endpoint.ID, e.ID)
	return backlog, seen
}

// waiting stores a delivery that waits, as its state, reason and time say.
func (b *deliveryBundle) waiting(t *testing.T, state webhook.State, reason string, due time.Time) webhook.Start {
	t.Helper()
	start := b.accept(t)
	step := stepOf(start, 1, state)
	step.Reason, step.DueAt = reason, due
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	return start
}

// Each way of waiting is counted as what it is, and what does not wait is not.
func TestHealthCounts(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	backlog, seen := b.health(t)
	require.Equal(t, webhook.Backlog{}, backlog)
	require.Empty(t, seen)

	soon := time.Now().Add(time.Minute).UTC().Truncate(time.Microsecond)
	b.waiting(t, webhook.StatePending, "", soon.Add(-time.Second)) // deliver_at
	backlog, _ = b.health(t)
	require.Equal(t, webhook.Backlog{Scheduled: 1, NextAt: soon.Add(-time.Second)}, backlog)

	b.waiting(t, webhook.StateDelivered, "", time.Time{})
	b.waiting(t, webhook.StateDeadLettered, "max_attempts", time.Time{})
	b.accept(t) // without a record yet
	oldest := b.waiting(t, webhook.StateHeld, webhook.ReasonBacklog, time.Time{})
	b.waiting(t, webhook.StateHeld, webhook.ReasonPaused, time.Time{})
	b.waiting(t, webhook.StateRetrying, "", soon)
	b.waiting(t, webhook.StateRetrying, "", soon)
	b.waiting(t, webhook.StateRetrying, "", soon)
	b.waiting(t, webhook.StateRetrying, webhook.ReasonRate, soon)
	b.waiting(t, webhook.StatePending, webhook.ReasonCircuitOpen, soon)
	sent := b.waiting(t, webhook.StateRetrying, "", soon.Add(-time.Hour))
	_, err := b.Claim(t.Context(), webhook.Claim{
		Ref: sent.Ref, Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StateRetrying, GiveUpAt: sent.GiveUpAt},
		WorkflowID: sent.WorkflowID(), Owner: "me", For: time.Minute,
	})
	require.NoError(t, err)
	other := b.endpoint
	b.endpoint = b.addEndpoint(t, "user.*")
	backlog, _ = b.health(t)
	require.Equal(t, webhook.Backlog{}, backlog, "another endpoint's")

	b.endpoint = other
	backlog, _ = b.health(t)
	require.Equal(t, webhook.Backlog{
		Retrying: 3, Deferred: 2, Scheduled: 1, Held: 2, NextAt: soon.Add(-time.Second), Oldest: oldest.EventID.Time(),
	}, backlog)

	_, _, _, err = b.Health(t.Context(), "other", b.endpoint.ID, "") //nolint:dogsled // it is the error that counts
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
}

// However many wait, so many are counted.
func TestHealthCountsAreBounded(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	insert := func(n int, state webhook.State, due string) {
		t.Helper()
		_, err := b.login.Exec(t.Context(), `
			insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, due_at, give_up_at)
			select gen_random_uuid(), event, $1, 'acme', 'order.paid', now(), 1, 1, $3, `+due+`, now() from generate_series(1, $2) n, gen_random_uuid() event`,
			b.endpoint.ID, n, int16(state))
		require.NoError(t, err)
	}
	insert(webhook.MaxCounted, webhook.StateRetrying, `now() + n * interval '1 second'`)
	insert(webhook.MaxCounted, webhook.StateHeld, `null`)
	backlog, _ := b.health(t)
	require.Equal(t, webhook.MaxCounted, backlog.Retrying)
	require.Equal(t, webhook.MaxCounted, backlog.Held)
	require.False(t, backlog.MoreWaiting || backlog.MoreHeld)
	insert(1, webhook.StatePending, `now()`) // scheduled, and due first
	insert(1, webhook.StateHeld, `null`)
	backlog, _ = b.health(t)
	require.Equal(t, webhook.MaxCounted-1, backlog.Retrying)
	require.Equal(t, 1, backlog.Scheduled)
	require.Equal(t, webhook.MaxCounted, backlog.Held)
	require.True(t, backlog.MoreWaiting && backlog.MoreHeld)
}

// What a worker sees is what it has written last; what others see is theirs, for a while.
func TestSharedHealth(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	id, other := b.endpoint.ID, webhook.NewEndpointID()
	seen := func(latency time.Duration) webhook.Observation {
		return webhook.Observation{Circuit: webhook.CircuitOpen, Latency: latency}
	}
	write := func(worker string, all map[webhook.EndpointID]webhook.Observation) {
		t.Helper()
		require.NoError(t, b.WriteSeen(t.Context(), worker, all))
	}
	write("w1", nil)
	require.Zero(t, b.count(t, "endpoint_health"))
	write("w1", map[webhook.EndpointID]webhook.Observation{id: seen(1), other: seen(2)})
	write("w2", map[webhook.EndpointID]webhook.Observation{id: seen(3)})
	_, got := b.health(t)
	require.Equal(t, []webhook.Observation{seen(1), seen(3)}, got)
	_, _, got, err := b.Health(t.Context(), "acme", id, "w1")
	require.NoError(t, err)
	require.Equal(t, []webhook.Observation{seen(3)}, got, "the asker knows its own")

	write("w1", map[webhook.EndpointID]webhook.Observation{id: seen(4)})
	require.Equal(t, 2, b.count(t, "endpoint_health"), "the other one is well again")
	_, got = b.health(t)
	require.Equal(t, []webhook.Observation{seen(4), seen(3)}, got)

	_, err = b.login.Exec(t.Context(), `update endpoint_health set seen_at = now() - $1::bigint * interval '1 millisecond' where worker = 'w1'`,
		seenLife.Milliseconds())
	require.NoError(t, err)
	_, got = b.health(t)
	require.Equal(t, []webhook.Observation{seen(3)}, got, "who is not heard of is not believed")
	write("w2", map[webhook.EndpointID]webhook.Observation{id: seen(5)})
	require.Equal(t, 1, b.count(t, "endpoint_health"), "and is forgotten")
	write("w2", nil)
	require.Zero(t, b.count(t, "endpoint_health"))
}

// Who has tested an endpoint is in the log.
func TestNoteTest(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	by := testActor()
	require.NoError(t, b.NoteTest(t.Context(), by, "acme", b.endpoint.ID))
	var n int
	require.NoError(t, b.login.QueryRow(t.Context(), `
		select count(*) from audit_log
		where action = 'endpoint.test' and tenant_id = 'acme' and subject = $1 and request_id = 'req-1' and key_id = $2`,
		b.endpoint.ID.String(), by.KeyID).Scan(&n))
	require.Equal(t, 1, n)
}
