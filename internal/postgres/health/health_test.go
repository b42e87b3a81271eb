package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/health"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Each way of waiting is counted as what it is, and what does not wait is not.
func TestHealthCounts(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	backlog, seen := b.HealthOf(t)
	require.Equal(t, webhook.Backlog{}, backlog)
	require.Empty(t, seen)

	soon := time.Now().Add(time.Minute).UTC().Truncate(time.Microsecond)
	b.Waiting(t, webhook.StatePending, "", soon.Add(-time.Second)) // deliver_at
	backlog, _ = b.HealthOf(t)
	require.Equal(t, webhook.Backlog{Scheduled: 1, NextAt: soon.Add(-time.Second)}, backlog)

	b.Waiting(t, webhook.StateDelivered, "", time.Time{})
	b.Waiting(t, webhook.StateDeadLettered, "max_attempts", time.Time{})
	b.AcceptOne(t) // without a row yet
	oldest := b.Waiting(t, webhook.StateHeld, webhook.ReasonBacklog, time.Time{})
	b.Waiting(t, webhook.StateHeld, webhook.ReasonPaused, time.Time{})
	b.Waiting(t, webhook.StateRetrying, "", soon)
	b.Waiting(t, webhook.StateRetrying, "", soon)
	b.Waiting(t, webhook.StateRetrying, "", soon)
	b.Waiting(t, webhook.StateRetrying, webhook.ReasonRate, soon)
	b.Waiting(t, webhook.StatePending, webhook.ReasonCircuitOpen, soon)
	sent := b.Waiting(t, webhook.StateRetrying, "", soon.Add(-time.Hour))
	_, err := b.Claim(t.Context(), webhook.Claim{
		Ref: sent.Ref, Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StateRetrying, GiveUpAt: sent.GiveUpAt},
		WorkflowID: sent.WorkflowID(), Claimant: "me", For: time.Minute,
	})
	require.NoError(t, err)
	other := b.Subscriber
	b.Subscriber = b.AddEndpoint(t, "user.*")
	backlog, _ = b.HealthOf(t)
	require.Equal(t, webhook.Backlog{}, backlog, "another endpoint's")

	b.Subscriber = other
	backlog, _ = b.HealthOf(t)
	require.Equal(t, webhook.Backlog{
		Retrying: 3, Deferred: 2, Scheduled: 1, Held: 2, NextAt: soon.Add(-time.Second), Oldest: oldest.EventID.Time(),
	}, backlog)

	_, _, err = b.Health(t.Context(), "other", b.Subscriber.ID, "")
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
}

// The last failure on record has the error of its attempt, and where the time went.
func TestLastFailure(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	last := func() *webhook.LastFailure {
		t.Helper()
		h, _, err := b.Health(t.Context(), "acme", b.Subscriber.ID, "")
		require.NoError(t, err)
		return h.LastFailure
	}
	require.Nil(t, last())
	start := b.AcceptOne(t)
	step := storetest.StepOf(start, 1, webhook.StateRetrying)
	step.Attempts, step.RunAttempts, step.Attempt = 1, 1, storetest.AttemptOf(1, 1, 503)
	step.Attempt.Error, step.DueAt = "read: reset", time.Now().Add(time.Minute)
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, &webhook.LastFailure{
		Reason: "http_503", At: step.Attempt.StartedAt.Add(step.Attempt.Latency), Error: "read: reset", Times: step.Attempt.Times,
	}, last())
}

// However many wait, so many are counted.
func TestHealthCountsAreBounded(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	insert := func(n int, state webhook.State, due string) {
		t.Helper()
		_, err := b.Pool().Exec(t.Context(), `
			insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, due_at, give_up_at)
			select gen_random_uuid(), event, $1, 'acme', 'order.paid', now(), 1, 1, $3, `+due+`, now() from generate_series(1, $2) n, gen_random_uuid() event`,
			b.Subscriber.ID, n, int16(state))
		require.NoError(t, err)
	}
	insert(webhook.MaxCounted, webhook.StateRetrying, `now() + n * interval '1 second'`)
	insert(webhook.MaxCounted, webhook.StateHeld, `null`)
	backlog, _ := b.HealthOf(t)
	require.Equal(t, webhook.MaxCounted, backlog.Retrying)
	require.Equal(t, webhook.MaxCounted, backlog.Held)
	require.False(t, backlog.MoreWaiting || backlog.MoreHeld)
	insert(1, webhook.StatePending, `now()`) // scheduled, and due first
	insert(1, webhook.StateHeld, `null`)
	backlog, _ = b.HealthOf(t)
	require.Equal(t, webhook.MaxCounted-1, backlog.Retrying)
	require.Equal(t, 1, backlog.Scheduled)
	require.Equal(t, webhook.MaxCounted, backlog.Held)
	require.True(t, backlog.MoreWaiting && backlog.MoreHeld)
}

// A worker reads its own last observation, and those of other workers for a while.
func TestSharedHealth(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	id, other := b.Subscriber.ID, webhook.NewEndpointID()
	seen := func(latency time.Duration) webhook.Observation {
		return webhook.Observation{Circuit: webhook.CircuitOpen, Latency: latency}
	}
	write := func(worker string, all map[webhook.EndpointID]webhook.Observation) {
		t.Helper()
		require.NoError(t, b.WriteObservations(t.Context(), worker, all))
	}
	write("w1", nil)
	require.Zero(t, b.Count(t, "endpoint_health"))
	write("w1", map[webhook.EndpointID]webhook.Observation{id: seen(1), other: seen(2)})
	write("w2", map[webhook.EndpointID]webhook.Observation{id: seen(3)})
	_, got := b.HealthOf(t)
	require.Equal(t, []webhook.Observation{seen(1), seen(3)}, got)
	_, got, err := b.Health(t.Context(), "acme", id, "w1")
	require.NoError(t, err)
	require.Equal(t, []webhook.Observation{seen(3)}, got, "the asker knows its own")

	write("w1", map[webhook.EndpointID]webhook.Observation{id: seen(4)})
	require.Equal(t, 2, b.Count(t, "endpoint_health"), "the other one has recovered")
	_, got = b.HealthOf(t)
	require.Equal(t, []webhook.Observation{seen(4), seen(3)}, got)

	_, err = b.Pool().Exec(t.Context(), `update endpoint_health set seen_at = now() - $1::bigint * interval '1 millisecond' where worker = 'w1'`,
		health.ObservationLife.Milliseconds())
	require.NoError(t, err)
	_, got = b.HealthOf(t)
	require.Equal(t, []webhook.Observation{seen(3)}, got, "an old observation does not count")
	write("w2", map[webhook.EndpointID]webhook.Observation{id: seen(5)})
	require.Equal(t, 1, b.Count(t, "endpoint_health"), "and is forgotten")
	write("w2", nil)
	require.Zero(t, b.Count(t, "endpoint_health"))
}

// A test request is in the audit log, with its actor.
func TestNoteTest(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	by := storetest.TestActor()
	require.NoError(t, b.NoteTest(t.Context(), by, "acme", b.Subscriber.ID))
	var n int
	require.NoError(t, b.Pool().QueryRow(t.Context(), `
		select count(*) from audit_log
		where action = 'endpoint.test' and tenant_id = 'acme' and subject = $1 and request_id = 'req-1' and key_id = $2`,
		b.Subscriber.ID.String(), by.KeyID).Scan(&n))
	require.Equal(t, 1, n)
}
