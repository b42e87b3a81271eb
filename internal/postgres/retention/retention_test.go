package retention_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/retention"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestRetentionDropsFinishedDaysAndKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	now := time.Now()
	require.NoError(t, b.EnsurePartitions(t.Context(), now))
	finished, dead, fresh := b.AcceptOne(t), b.AcceptOne(t), b.AcceptOne(t)
	nothing, err := b.Accept(t.Context(), storetest.NewEvent("no.match"))
	require.NoError(t, err)
	for start, state := range map[webhook.Start]webhook.State{finished: webhook.StateDelivered, dead: webhook.StateDeadLettered} {
		step := storetest.StepOf(start, 1, state)
		step.Attempt = storetest.AttemptOf(1, 1, 200)
		_, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err)
	}
	retain := func(after time.Duration) retention.Retained {
		r, err := b.Retain(t.Context(), now.Add(after), 24*time.Hour)
		require.NoError(t, err)
		return r
	}
	lost := func(id webhook.EventID) bool {
		_, _, err := b.Event(t.Context(), "acme", id)
		return webhook.CodeOf(err) == webhook.CodeNotFound
	}

	require.Equal(t, retention.Retained{}, retain(0), "yesterday has ended less than a day ago")

	r := retain(72 * time.Hour)
	require.EqualValues(t, 1, r.Rows)
	require.True(t, lost(finished.EventID))
	require.True(t, lost(nothing.Event.ID))
	require.False(t, lost(dead.EventID), "a dead letter can still be replayed")
	require.False(t, lost(fresh.EventID), "it has not been started")
	attempts, err := b.Attempts(t.Context(), "acme", dead.DeliveryID, 10, 0)
	require.NoError(t, err)
	require.Len(t, attempts, 1)

	for start, seq := range map[webhook.Start]int{fresh: 1, dead: 2} {
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, seq, webhook.StateDiscarded))
		require.NoError(t, err)
	}
	require.Positive(t, retain(72*time.Hour).Days)
	require.True(t, lost(dead.EventID))
	require.True(t, lost(fresh.EventID))
	require.Zero(t, b.Count(t, "attempts"))
	require.NoError(t, b.EnsurePartitions(t.Context(), now.Add(72*time.Hour)), "partitions go on")
}

func TestRetentionKeepsWhatIsBeingReplayed(t *testing.T) {
	t.Parallel()
	for name, neighbour := range map[string]webhook.State{
		"in a day that can be dropped": webhook.StateDelivered,
		"in a day with a dead letter":  webhook.StateDeadLettered,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
			replayed, beside := b.AcceptOne(t), b.AcceptOne(t)
			for start, state := range map[webhook.Start]webhook.State{replayed: webhook.StateCancelled, beside: neighbour} {
				_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, state))
				require.NoError(t, err)
			}
			commit := replayUnderWay(t, b, replayed.DeliveryID)
			retained := make(chan error, 1)
			go func() { // the day alone: others are dropped, for which every transaction is waited for
				_, _, err := b.RetainDay(t.Context(), retention.OldDay{
					From: replayed.EventID.Time().UTC().Truncate(postgres.Day), Tables: []string{"events", "deliveries", "attempts"},
				})
				retained <- err
			}()
			if neighbour == webhook.StateDelivered {
				storetest.AwaitTableLock(t, b.Pool(), "deliveries")
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
			b := storetest.Setup(t)
			require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
			for _, table := range missing {
				for _, partition := range storetest.Query[string](t, b.Stores, `select tablename from pg_tables
					where schemaname = current_schema() and tablename ~ ('^' || $1 || '_[0-9]{8}$')`, table) {
					_, err := b.Pool().Exec(t.Context(), `drop table `+postgres.Quote(partition))
					require.NoError(t, err)
				}
			}
			finished, open := b.AcceptOne(t), b.AcceptOne(t)
			for start, state := range map[webhook.Start]webhook.State{finished: webhook.StateDelivered, open: webhook.StateRetrying} {
				step := storetest.StepOf(start, 1, state)
				step.Attempt = storetest.AttemptOf(1, 1, 200)
				_, err := b.RecordStep(t.Context(), step)
				require.NoError(t, err)
			}
			for _, left := range []int{1, 0} {
				for range 2 { // and comes to an end
					_, err := b.Retain(t.Context(), time.Now().Add(72*time.Hour), 24*time.Hour)
					require.NoError(t, err)
					for _, table := range []string{"events", "deliveries", "attempts"} {
						require.Equal(t, left, b.Count(t, table), table)
					}
				}
				if left > 0 {
					_, err := b.RecordStep(t.Context(), storetest.StepOf(open, 2, webhook.StateCancelled))
					require.NoError(t, err)
				}
			}
		})
	}
}

// What is more than a batch goes in one run of retention, but for what is still needed.
func TestRetentionGoesBeyondABatch(t *testing.T) {
	t.Parallel()
	retain := func(t *testing.T, b *storetest.Bundle) retention.Retained {
		t.Helper()
		r, err := b.Retain(t.Context(), time.Now().Add(72*time.Hour), 24*time.Hour)
		require.NoError(t, err)
		return r
	}
	t.Run("of a day with a dead letter", func(t *testing.T) {
		t.Parallel()
		b := storetest.Setup(t)
		require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
		middle := b.FinishMany(t, webhook.StateDeadLettered)
		require.EqualValues(t, b.Count(t, "deliveries")-1, retain(t, b).Rows)
		require.Equal(t, [][16]byte{[16]byte(middle.DeliveryID)}, storetest.Query[[16]byte](t, b.Stores, `select id from deliveries`))
		require.Equal(t, [][16]byte{[16]byte(middle.DeliveryID)}, storetest.Query[[16]byte](t, b.Stores, `select delivery_id from attempts`))
		require.Equal(t, [][16]byte{[16]byte(middle.EventID)}, storetest.Query[[16]byte](t, b.Stores, `select id from events`))
		_, err := b.Pool().Exec(t.Context(), // a batch ends among keys of one time
			`update idempotency_keys set created_at = now() - interval '1 hour' where key in (select key from idempotency_keys limit $1)`,
			postgres.DeleteBatch/2)
		require.NoError(t, err)
		_, err = b.Pool().Exec(t.Context(), `update idempotency_keys set created_at = now() where created_at > now() - interval '30 minutes'`)
		require.NoError(t, err)
		_, err = b.PruneIdempotencyKeys(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, [][16]byte{[16]byte(middle.EventID)}, storetest.Query[[16]byte](t, b.Stores, `select event_id from idempotency_keys`))
	})
	t.Run("of attempts in the DEFAULT partition", func(t *testing.T) {
		t.Parallel()
		b := storetest.Setup(t)
		require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
		for _, partition := range storetest.Query[string](t, b.Stores, `select tablename from pg_tables
			where schemaname = current_schema() and tablename ~ '^attempts_[0-9]{8}$'`) {
			_, err := b.Pool().Exec(t.Context(), `drop table `+postgres.Quote(partition))
			require.NoError(t, err)
		}
		b.FinishMany(t, webhook.StateDelivered)
		require.Positive(t, retain(t, b).Days, "deliveries and events are dropped")
		require.Zero(t, b.Count(t, "attempts"))
	})
}

// Between two batches of deletions the others have the database for longer than a batch takes.
func TestRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now().Add(-2 * time.Second)
		before := time.Now()
		require.NoError(t, postgres.Rest(t.Context(), begun))
		require.Equal(t, 6*time.Second, time.Since(before))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, postgres.Rest(ctx, begun), context.DeadlineExceeded)
	})
}

// replayUnderWay is a replay that is not committed yet: it waits for the audit log.
func replayUnderWay(t *testing.T, b *storetest.Bundle, id webhook.DeliveryID) (commit func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.Address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), `begin; lock table audit_log in share mode`)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, _, err := b.Command(t.Context(), storetest.TestActor(), "acme", id, webhook.PendingCommand{Command: webhook.CommandReplay})
		done <- err
	}()
	storetest.AwaitTableLock(t, b.Pool(), "audit_log")
	return func() {
		_, err := conn.Exec(t.Context(), `commit`)
		require.NoError(t, err)
		require.NoError(t, <-done)
	}
}
