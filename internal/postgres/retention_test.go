package postgres

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/everpost/everpost/internal/webhook"
)

func TestRetentionDropsFinishedDaysAndKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	now := time.Now()
	require.NoError(t, b.EnsurePartitions(t.Context(), now))
	finished, dead, fresh := b.accept(t), b.accept(t), b.accept(t)
	nothing, err := b.Accept(t.Context(), newEvent("no.match"))
	require.NoError(t, err)
	for start, state := range map[webhook.Start]webhook.State{finished: webhook.StateDelivered, dead: webhook.StateDeadLettered} {
		step := stepOf(start, 1, state)
		step.Attempt = attemptOf(1, 1, 200)
		_, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err)
	}
	retain := func(after time.Duration) Retained {
		r, err := b.Retain(t.Context(), now.Add(after), 24*time.Hour)
		require.NoError(t, err)
		return r
	}
	lost := func(id webhook.EventID) bool {
		_, _, err := b.Event(t.Context(), "acme", id)
		return webhook.CodeOf(err) == webhook.CodeNotFound
	}

	require.Equal(t, Retained{}, retain(0), "yesterday has ended less than a day ago")

	r := retain(72 * time.Hour)
	require.EqualValues(t, 1, r.Rows)
	require.True(t, lost(finished.EventID))
	require.True(t, lost(nothing.Event.ID))
	require.False(t, lost(dead.EventID), "a dead letter can still be replayed")
	require.False(t, lost(fresh.EventID), "it has not been begun")
	attempts, err := b.Attempts(t.Context(), "acme", dead.DeliveryID, 10, 0)
	require.NoError(t, err)
	require.Len(t, attempts, 1)

	for start, seq := range map[webhook.Start]int{fresh: 1, dead: 2} {
		_, err := b.RecordStep(t.Context(), stepOf(start, seq, webhook.StateDiscarded))
		require.NoError(t, err)
	}
	require.Positive(t, retain(72*time.Hour).Days)
	require.True(t, lost(dead.EventID))
	require.True(t, lost(fresh.EventID))
	require.Zero(t, b.count(t, "attempts"))
	require.NoError(t, b.EnsurePartitions(t.Context(), now.Add(72*time.Hour)), "partitions go on")
}

// replayUnderWay is a replay that is not committed yet.
func (b *deliveryBundle) replayUnderWay(t *testing.T, id webhook.DeliveryID) (commit func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	d, err := lockDelivery(t.Context(), tx, "acme", id)
	require.NoError(t, err)
	require.NoError(t, openRun(t.Context(), tx, &d, time.Hour, time.Now()))
	return func() { require.NoError(t, tx.Commit(t.Context())) }
}

func TestRetentionKeepsWhatIsBeingReplayed(t *testing.T) {
	t.Parallel()
	for name, neighbour := range map[string]webhook.State{
		"in a day that can be dropped": webhook.StateDelivered,
		"in a day with a dead letter":  webhook.StateDeadLettered,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupDelivery(t)
			require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
			replayed, beside := b.accept(t), b.accept(t)
			for start, state := range map[webhook.Start]webhook.State{replayed: webhook.StateCancelled, beside: neighbour} {
				_, err := b.RecordStep(t.Context(), stepOf(start, 1, state))
				require.NoError(t, err)
			}
			commit := b.replayUnderWay(t, replayed.DeliveryID)
			retained := make(chan error, 1)
			go func() { // the day alone: others are dropped, for which every transaction is waited for
				_, _, err := b.retainDay(t.Context(), oldDay{replayed.EventID.Time().UTC().Truncate(day), []string{"events", "deliveries", "attempts"}})
				retained <- err
			}()
			waits := func() bool {
				var waiting bool
				err := b.login.QueryRow(t.Context(), `
					select exists (select from pg_locks where not granted and relation = 'deliveries'::regclass)`).Scan(&waiting)
				return err == nil && waiting
			}
			if neighbour == webhook.StateDelivered {
				require.Eventually(t, waits, eventually, poll)
				commit()
				require.NoError(t, <-retained)
			} else {
				require.NoError(t, <-retained, "it does not wait for the replay's lock")
				commit()
			}
			d, err := b.Delivery(t.Context(), "acme", replayed.DeliveryID)
			require.NoError(t, err)
			require.Equal(t, 2, d.Run)
			_, err = b.Payload(t.Context(), "acme", replayed.EventID)
			require.NoError(t, err)
		})
	}
}

// A day may have partitions in some tables and lie in the DEFAULT of others.
func TestRetentionLooksIntoTheDefaultPartitions(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string][]string{
		"all": {"events", "deliveries", "attempts"}, "events": {"events"}, "deliveries": {"deliveries"}, "attempts": {"attempts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupDelivery(t)
			require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
			for _, table := range missing {
				for _, partition := range query[string](t, b.stores, `select tablename from pg_tables
					where schemaname = current_schema() and tablename ~ ('^' || $1 || '_[0-9]{8}$')`, table) {
					_, err := b.login.Exec(t.Context(), `drop table `+quote(partition))
					require.NoError(t, err)
				}
			}
			finished, open := b.accept(t), b.accept(t)
			for start, state := range map[webhook.Start]webhook.State{finished: webhook.StateDelivered, open: webhook.StateRetrying} {
				step := stepOf(start, 1, state)
				step.Attempt = attemptOf(1, 1, 200)
				_, err := b.RecordStep(t.Context(), step)
				require.NoError(t, err)
			}
			for _, left := range []int{1, 0} {
				for range 2 { // and comes to an end
					_, err := b.Retain(t.Context(), time.Now().Add(72*time.Hour), 24*time.Hour)
					require.NoError(t, err)
					for _, table := range []string{"events", "deliveries", "attempts"} {
						require.Equal(t, left, b.count(t, table), table)
					}
				}
				_, err := b.RecordStep(t.Context(), stepOf(open, 2, webhook.StateCancelled))
				require.NoError(t, err)
				if left == 0 {
					break
				}
			}
		})
	}
}

// finishMany accepts and finishes more deliveries than are deleted at a time, each with an
// attempt and an external id; that in the middle becomes a dead letter.
func (b *deliveryBundle) finishMany(t *testing.T, dead webhook.State) (middle webhook.Start) {
	t.Helper()
	const many = deleteBatch + webhook.MaxBatchEvents
	var recording errgroup.Group
	recording.SetLimit(16)
	for n := range many / webhook.MaxBatchEvents {
		in := webhook.NewBatch{TenantID: "acme"}
		for i := range webhook.MaxBatchEvents {
			e := newEvent("order.paid")
			e.ExternalID = fmt.Sprintf("order-%d-%d", n, i)
			in.Events = append(in.Events, e)
		}
		all, err := b.AcceptBatch(t.Context(), in)
		require.NoError(t, err)
		for i, one := range all {
			step := stepOf(one.Deliveries[0], 1, webhook.StateDelivered)
			if n == many/webhook.MaxBatchEvents/2 && i == 0 {
				middle, step.State = one.Deliveries[0], dead
			}
			step.Attempt = attemptOf(1, 1, 200)
			recording.Go(func() error {
				_, err := b.RecordStep(t.Context(), step)
				return err
			})
		}
	}
	require.NoError(t, recording.Wait())
	require.Equal(t, many, b.count(t, "deliveries"))
	return middle
}

// What is more than a batch goes in one run of retention, but for what is still needed.
func TestRetentionGoesBeyondABatch(t *testing.T) {
	t.Parallel()
	retain := func(t *testing.T, b *deliveryBundle) Retained {
		t.Helper()
		r, err := b.Retain(t.Context(), time.Now().Add(72*time.Hour), 24*time.Hour)
		require.NoError(t, err)
		return r
	}
	t.Run("of a day with a dead letter", func(t *testing.T) {
		t.Parallel()
		b := setupDelivery(t)
		require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
		middle := b.finishMany(t, webhook.StateDeadLettered)
		require.EqualValues(t, b.count(t, "deliveries")-1, retain(t, b).Rows)
		require.Equal(t, [][16]byte{[16]byte(middle.DeliveryID)}, query[[16]byte](t, b.stores, `select id from deliveries`))
		require.Equal(t, [][16]byte{[16]byte(middle.DeliveryID)}, query[[16]byte](t, b.stores, `select delivery_id from attempts`))
		require.Equal(t, [][16]byte{[16]byte(middle.EventID)}, query[[16]byte](t, b.stores, `select id from events`))
		_, err := b.login.Exec(t.Context(), // a batch ends among keys of one time
			`update idempotency_keys set created_at = now() - interval '1 hour' where key in (select key from idempotency_keys limit $1)`, deleteBatch/2)
		require.NoError(t, err)
		_, err = b.login.Exec(t.Context(), `update idempotency_keys set created_at = now() where created_at > now() - interval '30 minutes'`)
		require.NoError(t, err)
		_, err = b.PruneIdempotencyKeys(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, [][16]byte{[16]byte(middle.EventID)}, query[[16]byte](t, b.stores, `select event_id from idempotency_keys`))
	})
	t.Run("of attempts in the DEFAULT partition", func(t *testing.T) {
		t.Parallel()
		b := setupDelivery(t)
		require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
		for _, partition := range query[string](t, b.stores, `select tablename from pg_tables
			where schemaname = current_schema() and tablename ~ '^attempts_[0-9]{8}$'`) {
			_, err := b.login.Exec(t.Context(), `drop table `+quote(partition))
			require.NoError(t, err)
		}
		b.finishMany(t, webhook.StateDelivered)
		require.Positive(t, retain(t, b).Days, "deliveries and events are dropped")
		require.Zero(t, b.count(t, "attempts"))
	})
}

// Between two batches of deletions the others have the database for longer than a batch takes.
func TestRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now().Add(-2 * time.Second)
		before := time.Now()
		require.NoError(t, rest(t.Context(), begun))
		require.Equal(t, 6*time.Second, time.Since(before))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, rest(ctx, begun), context.DeadlineExceeded)
	})
}
