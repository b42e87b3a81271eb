package monitor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// deadLetter stores a dead letter of the endpoint.
func (b *bundle) deadLetter(t *testing.T) webhook.DeliveryID {
	t.Helper()
	accepted, err := b.own.Events.Accept(t.Context(), webhook.NewEvent{TenantID: "acme", Type: "order.paid", Payload: []byte("1")})
	require.NoError(t, err)
	start := accepted.Deliveries[0]
	_, err = b.own.Deliveries.RecordStep(t.Context(), webhook.Step{
		Ref: start.Ref, Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StateDeadLettered, Reason: "max_attempts", GiveUpAt: start.GiveUpAt},
		WorkflowID: start.WorkflowID(),
	})
	require.NoError(t, err)
	return start.DeliveryID
}

func (b *bundle) replays(t *testing.T) []webhook.Replay {
	t.Helper()
	replays, err := b.own.Replays.ListReplays(t.Context(), "acme", webhook.Page{Limit: 10})
	require.NoError(t, err)
	return replays
}

// When an outage is over its dead letters are replayed; earlier ones are not.
func TestRecoveryReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setBreaker(t, true)
	m := b.process(t)
	_, err := b.own.Pool().Exec(t.Context(), `update deliveries set created_at = created_at - interval '1 hour' where id = $1`, b.deadLetter(t))
	require.NoError(t, err)
	for range 5 {
		b.send(t, m, 1, 503)
	}
	b.deadLetter(t)
	b.deadLetter(t)
	b.probe(t, m, 200)
	require.Zero(t, m.replays.startAll(t.Context()))
	replays := b.replays(t)
	require.Len(t, replays, 1)
	require.Equal(t, webhook.ReplayDeadLetters, replays[0].Source)
	require.Equal(t, b.endpoint.ID, replays[0].Filter.EndpointID)
	require.EqualValues(t, 2, *replays[0].Total)
	require.WithinDuration(t, time.Now().Add(-outageMargin), replays[0].Filter.Since, outageMargin/3)
}

// A replay that cannot start now delays no operational event.
func TestSlowReplayDelaysNoEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setBreaker(t, true)
	b.deadLetter(t)
	tx, err := b.own.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select from endpoints where id = $1 for no key update`, b.endpoint.ID)
	require.NoError(t, err)
	m := b.running(t)
	m.recovered(b.endpoint.ID, time.Now(), time.Now().Add(-time.Minute))
	require.Eventually(t, func() bool {
		var waits bool
		err := b.own.Pool().QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and query like '%auto_replay and state = 0%')`).Scan(&waits)
		return err == nil && waits
	}, soon, time.Millisecond)
	b.answers(m, 1, 400)
	require.Eventually(t, func() bool {
		return len(b.stored(t, webhook.EventEndpointRecovered)) == 1 && len(b.stored(t, webhook.EventDeadLettered)) == 1
	}, soon, time.Millisecond)
	require.Empty(t, b.replays(t))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool { return len(b.replays(t)) == 1 }, soon, time.Millisecond)
}

// A replay that cannot start delays no other, and is given up after a few tries.
func TestFailingReplayDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.process(t)
	m.store.Close()
	failing, other := webhook.NewEndpointID(), webhook.NewEndpointID()
	m.recovered(failing, time.Now(), time.Now())
	for tries := 1; tries <= replayTries; tries++ {
		id, r, wait, _ := m.replays.queue.take(time.Now().Add(time.Hour))
		require.Zero(t, wait)
		require.Equal(t, failing, id)
		require.Equal(t, tries-1, r.tries)
		m.replays.try(t.Context(), id, r)
		_, _, wait, _ = m.replays.queue.take(time.Now())
		require.Positive(t, wait, "not at once")
	}
	require.Empty(t, m.replays.queue.waiting)

	m.replays.try(t.Context(), failing, outageReplay{})
	m.recovered(other, time.Now(), time.Now())
	id, _, wait, _ := m.replays.queue.take(time.Now())
	require.Zero(t, wait)
	require.Equal(t, other, id)
}

// The queue is bounded, and an endpoint waits once, since its first outage.
func TestReplayQueueIsBounded(t *testing.T) {
	t.Parallel()
	q, id, now := newReplayQueue(), webhook.NewEndpointID(), time.Now()
	q.put(id, outageReplay{since: now})
	q.put(id, outageReplay{since: now.Add(time.Hour)})
	for range maxReplays + 6 {
		q.put(webhook.NewEndpointID(), outageReplay{since: now})
	}
	q.put(id, outageReplay{since: now.Add(-time.Second)})
	all := q.takeAll()
	require.Len(t, all, maxReplays)
	require.Equal(t, now.Add(-time.Second), all[id].since)
	_, _, wait, dropped := q.take(now)
	require.Positive(t, wait)
	require.Equal(t, 7, dropped)
	q.put(id, outageReplay{since: now.Add(-time.Second)})
	q.put(id, outageReplay{since: now})
	got, r, wait, _ := q.take(now)
	require.Zero(t, wait)
	require.Equal(t, id, got)
	require.Equal(t, now.Add(-time.Second), r.since)
}

// A process that ends starts the replays that wait, also one whose start was cut off.
func TestStopStartsReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setBreaker(t, true)
	b.deadLetter(t)
	m := b.process(t)
	ended, end := context.WithCancel(t.Context())
	end()
	m.Start(ended)
	m.recovered(b.endpoint.ID, time.Now(), time.Now().Add(-time.Minute))
	id, r, _, _ := m.replays.queue.take(time.Now())
	m.replays.try(ended, id, r)
	require.Empty(t, b.replays(t))
	m.Stop(t.Context())
	require.Len(t, b.replays(t), 1)
}

// No replay is started for an endpoint that is deleted or does not ask for one.
func TestUnwantedReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deadLetter(t)
	m := b.process(t)
	m.recovered(b.endpoint.ID, time.Now(), time.Now().Add(-time.Minute))
	m.recovered(webhook.NewEndpointID(), time.Now(), time.Now().Add(-time.Minute))
	require.Zero(t, m.replays.startAll(t.Context()))
	require.Empty(t, m.replays.queue.waiting)
	require.Empty(t, b.replays(t))
}
