package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// deadLetter stores a delivery to the endpoint that was given up.
func (b *watched) deadLetter(t *testing.T) webhook.DeliveryID {
	t.Helper()
	accepted, err := b.own.Events.Accept(t.Context(), webhook.NewEvent{TenantID: "acme", Type: "order.paid", Payload: []byte("1")})
	require.NoError(t, err)
	start := accepted.Deliveries[0]
	_, err = b.own.Deliveries.Record(t.Context(), webhook.Step{
		Ref: start.Ref, Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StateDeadLettered, Reason: "max_attempts", GiveUpAt: start.GiveUpAt},
		WorkflowID: start.WorkflowID(),
	})
	require.NoError(t, err)
	return start.DeliveryID
}

func (b *watched) replays(t *testing.T) []webhook.Replay {
	t.Helper()
	replays, err := b.own.Replays.ListReplays(t.Context(), "acme", webhook.Page{Limit: 10})
	require.NoError(t, err)
	return replays
}

// A replay that cannot be begun now keeps no operational event waiting.
func TestASlowReplayKeepsNoEventWaiting(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	b.setBreaker(t, true)
	b.deadLetter(t)
	tx, err := b.own.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select from endpoints where id = $1 for no key update`, b.endpoint.ID)
	require.NoError(t, err)
	w := b.running(t)
	w.recovered(b.endpoint.ID, time.Now(), time.Now().Add(-time.Minute))
	require.Eventually(t, func() bool {
		var waits bool
		err := b.own.Pool().QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and query like '%auto_replay and state = 0%')`).Scan(&waits)
		return err == nil && waits
	}, soon, time.Millisecond)
	b.answers(w, 1, 400)
	require.Eventually(t, func() bool {
		return len(b.told(t, webhook.NoticeRecovered)) == 1 && len(b.told(t, webhook.NoticeDeadLettered)) == 1
	}, soon, time.Millisecond)
	require.Empty(t, b.replays(t))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool { return len(b.replays(t)) == 1 }, soon, time.Millisecond)
}

// A replay that cannot be begun lets others pass, and is given up after a few tries.
func TestAFailingReplayPassesBy(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	w := b.process(t)
	w.store.Close()
	failing, other := webhook.NewEndpointID(), webhook.NewEndpointID()
	w.recovered(failing, time.Now(), time.Now())
	for tries := 1; tries <= autoReplayTries; tries++ {
		id, r, wait, _ := w.replays.take(time.Now().Add(time.Hour))
		require.Zero(t, wait)
		require.Equal(t, failing, id)
		require.Equal(t, tries-1, r.tries)
		w.tryReplay(t.Context(), id, r)
		_, _, wait, _ = w.replays.take(time.Now())
		require.Positive(t, wait, "not at once")
	}
	require.Empty(t, w.replays.waiting)

	w.tryReplay(t.Context(), failing, autoReplay{})
	w.recovered(other, time.Now(), time.Now())
	id, _, wait, _ := w.replays.take(time.Now())
	require.Zero(t, wait)
	require.Equal(t, other, id)
}

// The endpoints that wait are bounded, and each waits once, since its first outage.
func TestAutoReplaysAreBounded(t *testing.T) {
	t.Parallel()
	q, id, now := newAutoReplays(), webhook.NewEndpointID(), time.Now()
	q.put(id, autoReplay{since: now})
	q.put(id, autoReplay{since: now.Add(time.Hour)})
	for range maxAutoReplays + 6 {
		q.put(webhook.NewEndpointID(), autoReplay{since: now})
	}
	q.put(id, autoReplay{since: now.Add(-time.Second)})
	all := q.takeAll()
	require.Len(t, all, maxAutoReplays)
	require.Equal(t, now.Add(-time.Second), all[id].since)
	_, _, pause, lost := q.take(now)
	require.Positive(t, pause)
	require.Equal(t, 7, lost)
	q.put(id, autoReplay{since: now.Add(-time.Second)})
	q.put(id, autoReplay{since: now})
	got, r, wait, _ := q.take(now)
	require.Zero(t, wait)
	require.Equal(t, id, got)
	require.Equal(t, now.Add(-time.Second), r.since)
}

// A process that ends begins what waits, also what it was about to begin.
func TestStopBeginsReplays(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	b.setBreaker(t, true)
	b.deadLetter(t)
	w := b.process(t)
	ended, end := context.WithCancel(t.Context())
	end()
	w.start(ended)
	w.recovered(b.endpoint.ID, time.Now(), time.Now().Add(-time.Minute))
	id, r, _, _ := w.replays.take(time.Now())
	w.tryReplay(ended, id, r)
	require.Empty(t, b.replays(t))
	w.stop(t.Context())
	require.Len(t, b.replays(t), 1)
}

// An endpoint that is gone, or does not ask for it, is done with.
func TestReplaysNobodyAsksFor(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	b.deadLetter(t)
	w := b.process(t)
	w.recovered(b.endpoint.ID, time.Now(), time.Now().Add(-time.Minute))
	w.recovered(webhook.NewEndpointID(), time.Now(), time.Now().Add(-time.Minute))
	require.Zero(t, w.replayAll(t.Context()))
	require.Empty(t, w.replays.waiting)
	require.Empty(t, b.replays(t))
}
