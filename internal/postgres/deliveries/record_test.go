package deliveries_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// R1: the outbox row goes with the first write, whatever kind that is.
func TestFirstRecordEndsTheOutboxRow(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for name, record := range map[string]func(webhook.Start){
		"attempt": func(start webhook.Start) {
			step := storetest.StepOf(start, 1, webhook.StateDelivered)
			step.Attempt = storetest.AttemptOf(1, 1, 200)
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
		},
		"deferral": func(start webhook.Start) {
			step := storetest.StepOf(start, 1, webhook.StatePending)
			step.DueAt = time.Now().Add(time.Hour)
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
		},
		"claim": func(start webhook.Start) {
			begun, err := b.Claim(t.Context(), storetest.ClaimOf(start, 0, "me", time.Minute))
			require.NoError(t, err)
			require.True(t, begun.Granted)
		},
	} {
		start := b.AcceptOne(t)
		require.Equal(t, 1, b.Count(t, "outbox"), name)
		record(start)
		require.Zero(t, b.Count(t, "outbox"), name)
	}
}

func TestRecordedAttemptIsReadBack(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	step := storetest.StepOf(start, 1, webhook.StateRetrying)
	step.Attempts, step.RunAttempts, step.Delay = 1, 1, time.Second
	step.DueAt = time.Now().Add(time.Second).UTC().Truncate(time.Microsecond)
	step.Attempt = storetest.AttemptOf(1, 1, 503)
	status, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, step.Progress, status.Progress)

	d, err := b.Delivery(t.Context(), "acme", start.DeliveryID)
	require.NoError(t, err)
	require.Equal(t, step.Progress, d.Progress)
	require.Equal(t, &webhook.LastOutcome{
		Decision: retry.Retry, Reason: "http_503", Status: 503, Latency: 41 * time.Millisecond,
		At: step.Attempt.StartedAt.Add(step.Attempt.Latency), RetryAfter: time.Second,
	}, d.LastOutcome)
	require.Zero(t, d.CompletedAt)

	attempts, err := b.Attempts(t.Context(), "acme", start.DeliveryID, 10, 0)
	require.NoError(t, err)
	require.Equal(t, []webhook.Attempt{*step.Attempt}, attempts, "bytes of receivers come back as they came, NUL and all")

	_, err = b.Attempts(t.Context(), "other", start.DeliveryID, 10, 0)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
}

// R6 over the whole space: for each state that may be stored and each step that
// may arrive, whether it applies.
func TestRecordOnlyMovesForward(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, from := range webhook.States() {
		for _, to := range webhook.States() {
			for _, move := range []struct {
				name     string
				run, seq int
				forward  bool
			}{
				{"an earlier step", 2, 4, false},
				{"the same step", 2, 5, false},
				{"the next step", 2, 6, true},
				{"a later step", 2, 9, true},
				{"an earlier run", 1, 9, false},
				{"the next run", 3, 0, true},
			} {
				start := b.AcceptOne(t)
				before := storetest.StepOf(start, 5, from)
				before.Run = 2
				_, err := b.RecordStep(t.Context(), before)
				require.NoError(t, err)

				step := storetest.StepOf(start, move.seq, to)
				step.Run = move.run
				status, err := b.RecordStep(t.Context(), step)
				require.NoError(t, err)

				left := !from.Final() && (from != webhook.StateDeadLettered || to == webhook.StateDiscarded)
				want := before
				if move.forward && (left || move.run > 2) {
					want = step
				}
				require.Equal(t, want.Progress, status.Progress, "%s, %s to %s", move.name, from, to)
			}
		}
	}
}

// R9: one flush with many steps of one delivery, in any order, ends at the highest.
func TestRecordTakesTheHighestOfAFlush(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		start := b.AcceptOne(t)
		seqs := rapid.SliceOfN(rapid.IntRange(1, 9), 2, 12).Draw(rt, "seqs")
		items := make([]*deliveries.Recording, len(seqs))
		highest := 0
		for i, seq := range seqs {
			step := storetest.StepOf(start, seq, webhook.StateRetrying)
			step.Attempt = storetest.AttemptOf(seq, 1, 503)
			items[i] = &deliveries.Recording{Step: step}
			highest = max(highest, seq)
		}
		require.NoError(rt, b.FlushRecords(t.Context(), items))
		for _, it := range items {
			require.Equal(rt, highest, it.Status.Seq)
		}
		attempts, err := b.Attempts(t.Context(), "acme", start.DeliveryID, 50, 0)
		require.NoError(rt, err)
		distinct := map[int]bool{}
		for _, seq := range seqs {
			distinct[seq] = true
		}
		require.Len(rt, attempts, len(distinct), "every attempt is kept, once")
	})
}

// Unsorted, flushes side by side would deadlock.
func TestRecordsSideBySideDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	var starts []webhook.Start
	for range 20 {
		starts = append(starts, b.AcceptOne(t))
	}
	other := storetest.OpenStore(t, b.Address)
	var all sync.WaitGroup
	for lane, s := range []*storetest.Stores{b.Stores, other, b.Stores, other} {
		all.Go(func() {
			for round := range 10 {
				var inner sync.WaitGroup
				for i := range starts {
					start := starts[(i*7+lane*3+round)%len(starts)]
					inner.Go(func() {
						_, err := s.RecordStep(context.WithoutCancel(t.Context()), storetest.StepOf(start, lane*10+round+1, webhook.StateRetrying))
						if err != nil {
							t.Errorf("record: %v", err)
						}
					})
				}
				inner.Wait()
			}
		})
	}
	all.Wait()
	for _, start := range starts {
		status, err := b.DeliveryStatus(t.Context(), start.Ref)
		require.NoError(t, err)
		require.Equal(t, 40, status.Seq)
	}
}

// R2: which process may send.
func TestClaims(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	begin := func(t *testing.T, c webhook.Claim) webhook.ClaimResult {
		t.Helper()
		begun, err := b.Claim(t.Context(), c)
		require.NoError(t, err)
		return begun
	}
	t.Run("a free one is granted, with the payload", func(t *testing.T) {
		t.Parallel()
		start := b.AcceptOne(t)
		begun := begin(t, storetest.ClaimOf(start, 0, "me", time.Minute))
		require.True(t, begun.Granted)
		require.Equal(t, `{"order": 17}`, string(begun.Payload))
		require.Len(t, begun.SHA256, 32)
		require.Equal(t, webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt}, begun.Status.Progress)
		require.True(t, begin(t, storetest.ClaimOf(start, 0, "me", time.Minute)).Granted, "ours is granted again")
	})
	t.Run("a foreign one is not, until it has run out", func(t *testing.T) {
		t.Parallel()
		start := b.AcceptOne(t)
		require.True(t, begin(t, storetest.ClaimOf(start, 0, "me", time.Minute)).Granted)
		refused := begin(t, storetest.ClaimOf(start, 0, "you", time.Minute))
		require.False(t, refused.Granted)
		require.WithinDuration(t, time.Now().Add(time.Minute), refused.Status.ClaimedUntil, 10*time.Second)
		_, err := b.Pool().Exec(t.Context(), `update deliveries set owner_until = now() - interval '1 second' where id = $1`, start.DeliveryID)
		require.NoError(t, err)
		require.True(t, begin(t, storetest.ClaimOf(start, 0, "you", time.Minute)).Granted)
		require.False(t, begin(t, storetest.ClaimOf(start, 0, "me", time.Minute)).Granted, "it has moved")
	})
	t.Run("a known outcome is returned and not claimed", func(t *testing.T) {
		t.Parallel()
		start := b.AcceptOne(t)
		step := storetest.StepOf(start, 1, webhook.StateDelivered)
		_, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err)
		begun := begin(t, storetest.ClaimOf(start, 0, "me", time.Minute))
		require.False(t, begun.Granted)
		require.Equal(t, step.Progress, begun.Status.Progress)
		require.Zero(t, begun.Status.ClaimedUntil)
	})
	t.Run("the attempt's record frees it", func(t *testing.T) {
		t.Parallel()
		start := b.AcceptOne(t)
		require.True(t, begin(t, storetest.ClaimOf(start, 0, "me", time.Minute)).Granted)
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StatePending))
		require.NoError(t, err)
		require.False(t, begin(t, storetest.ClaimOf(start, 1, "you", time.Minute)).Granted, "a fault that is noted beside a request does not")
		step := storetest.StepOf(start, 2, webhook.StateRetrying)
		step.Attempt = storetest.AttemptOf(1, 1, 503)
		_, err = b.RecordStep(t.Context(), step)
		require.NoError(t, err)
		require.True(t, begin(t, storetest.ClaimOf(start, 2, "you", time.Minute)).Granted)
	})
	t.Run("of two at once one is granted", func(t *testing.T) {
		t.Parallel()
		other := storetest.OpenStore(t, b.Address)
		for range 20 {
			start := b.AcceptOne(t)
			var (
				all     sync.WaitGroup
				granted [2]bool
			)
			for i, s := range []*storetest.Stores{b.Stores, other} {
				all.Go(func() {
					begun, err := s.Claim(context.WithoutCancel(t.Context()), storetest.ClaimOf(start, 0, []string{"me", "you"}[i], time.Minute))
					granted[i] = err == nil && begun.Granted
				})
			}
			all.Wait()
			require.NotEqual(t, granted[0], granted[1])
		}
	})
	t.Run("of two processes in one flush the first is granted", func(t *testing.T) {
		t.Parallel()
		start := b.AcceptOne(t)
		items := []*deliveries.Claiming{
			{Claim: storetest.ClaimOf(start, 0, "me", time.Minute)}, {Claim: storetest.ClaimOf(start, 0, "you", time.Minute)},
			{Claim: storetest.ClaimOf(start, 0, "me", time.Minute)}, {Claim: storetest.ClaimOf(start, 1, "me", time.Minute)},
		}
		require.NoError(t, b.FlushClaims(t.Context(), items))
		require.True(t, items[0].Granted)
		require.False(t, items[1].Granted)
		require.NotZero(t, items[1].Status.ClaimedUntil)
		require.True(t, items[2].Granted, "it is the same, and the payload is there")
		require.NotNil(t, items[2].Payload.Bytes)
		require.False(t, items[3].Granted, "of another step")
	})
	t.Run("a payload that is gone is nil", func(t *testing.T) {
		t.Parallel()
		start := b.AcceptOne(t)
		_, err := b.Pool().Exec(t.Context(), `delete from events where id = $1`, start.EventID)
		require.NoError(t, err)
		require.Nil(t, begin(t, storetest.ClaimOf(start, 0, "me", time.Minute)).Payload)
	})
}

// R5 and R2 together: an end or a hold that no attempt brought about does not overtake the
// request that another process has under way.
func TestAnEndWaitsForAForeignClaim(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, end := range []webhook.State{webhook.StateCancelled, webhook.StateDeadLettered, webhook.StateHeld} {
		claimed := func(span time.Duration) webhook.Start {
			start := b.AcceptOne(t)
			begun, err := b.Claim(t.Context(), storetest.ClaimOf(start, 0, "them", span))
			require.NoError(t, err)
			require.True(t, begun.Granted)
			return start
		}
		record := func(start webhook.Start, owner string) webhook.DeliveryStatus {
			step := storetest.StepOf(start, 1, end)
			step.Claimant = owner
			status, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
			return status
		}
		start := claimed(time.Minute)
		refused := record(start, "me")
		require.Equal(t, webhook.StatePending, refused.State)
		require.WithinDuration(t, time.Now().Add(time.Minute), refused.ClaimedUntil, 10*time.Second)

		delivered := storetest.StepOf(start, 1, webhook.StateDelivered)
		delivered.Claimant, delivered.Attempt = "them", storetest.AttemptOf(1, 1, 200)
		status, err := b.RecordStep(t.Context(), delivered)
		require.NoError(t, err)
		require.Equal(t, webhook.StateDelivered, status.State)
		adopted := record(start, "me")
		require.Equal(t, webhook.StateDelivered, adopted.State, "delivered wins")
		require.Zero(t, adopted.ClaimedUntil, "there is nothing to wait for")

		require.Equal(t, end, record(claimed(time.Minute), "them").State, "its own request has ended")
		expired := record(claimed(-time.Second), "me")
		require.Equal(t, end, expired.State)
		require.Zero(t, expired.ClaimedUntil)

		first := record(b.AcceptOne(t), "me") // as its first write
		require.Equal(t, end, first.State)
		require.Zero(t, first.ClaimedUntil)
	}
}

// A replay finds no claim, also where the first write was an end.
func TestAnEndAsFirstRecordLeavesNoClaim(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	end := storetest.StepOf(start, 1, webhook.StateDeadLettered)
	end.Claimant = "me"
	_, err := b.RecordStep(t.Context(), end)
	require.NoError(t, err)
	_, _, err = b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
	require.NoError(t, err)
	start.Run = 2
	begun, err := b.Claim(t.Context(), storetest.ClaimOf(start, 0, "them", time.Minute))
	require.NoError(t, err)
	require.True(t, begun.Granted)
}

// Attempts are counted over all runs, also when the first step of a run does not know those before, because its workflow was started again
// and held it.
func TestAttemptsAreNotForgotten(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	step := storetest.StepOf(start, 1, webhook.StateDelivered)
	step.Attempts, step.Attempt = 1, storetest.AttemptOf(1, 1, 200)
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	_, _, err = b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
	require.NoError(t, err)
	start.Run = 2
	status, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateHeld))
	require.NoError(t, err)
	require.Equal(t, webhook.StateHeld, status.State)
	require.Equal(t, 1, status.Attempts)
}

// An attempt of a process that stood still before it could claim it is recorded when its delivery has come to its end: it counts.
func TestAnAttemptAfterTheEndCounts(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, end := range []webhook.State{webhook.StateCancelled, webhook.StateDeadLettered} {
		start := b.AcceptOne(t)
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, end))
		require.NoError(t, err)
		late := storetest.StepOf(start, 1, webhook.StateDelivered)
		late.Attempts, late.RunAttempts, late.Attempt = 1, 1, storetest.AttemptOf(1, 1, 200)
		status, err := b.RecordStep(t.Context(), late)
		require.NoError(t, err)
		require.False(t, status.Applied)
		d, err := b.Delivery(t.Context(), "acme", start.DeliveryID)
		require.NoError(t, err)
		require.Equal(t, []any{end, 1, 1}, []any{d.State, d.Attempts, d.RunAttempts})
		require.Equal(t, 200, d.LastOutcome.Status)
		attempts, err := b.Attempts(t.Context(), "acme", start.DeliveryID, 10, 0)
		require.NoError(t, err)
		require.Len(t, attempts, 1)
	}
}

// It counts too when it is recorded together with the end, in whatever order, and when a dead letter is discarded after it.
func TestAnAttemptBesideTheEndCounts(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	var recording sync.WaitGroup
	starts := make([]webhook.Start, 20)
	for i := range starts {
		starts[i] = b.AcceptOne(t)
		late := storetest.StepOf(starts[i], 1, webhook.StateDelivered)
		late.Attempts, late.RunAttempts, late.Attempt = 1, 1, storetest.AttemptOf(1, 1, 200)
		for _, step := range []webhook.Step{late, storetest.StepOf(starts[i], 2, webhook.StateDeadLettered)} {
			recording.Go(func() {
				_, err := b.RecordStep(t.Context(), step)
				assert.NoError(t, err)
			})
		}
	}
	recording.Wait()
	for _, start := range starts {
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 3, webhook.StateDiscarded))
		require.NoError(t, err)
		d, err := b.Delivery(t.Context(), "acme", start.DeliveryID)
		require.NoError(t, err)
		require.Equal(t, []any{1, 1, 200}, []any{d.Attempts, d.RunAttempts, d.LastOutcome.Status}, d.State)
	}
}

// What goes before a deferred delivery has an earlier time, and what goes before a held one is older. The
// count is bounded, and what waits for a retry is not counted.
func TestAhead(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	due := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	waiting := func(state webhook.State, reason string, at time.Time) webhook.Delivery {
		start := b.Waiting(t, state, reason, at)
		d, err := b.Delivery(t.Context(), "acme", start.DeliveryID)
		require.NoError(t, err)
		return d
	}
	ahead := func(d webhook.Delivery) int {
		n, more, err := b.Ahead(t.Context(), d)
		require.NoError(t, err)
		require.False(t, more)
		return n
	}
	waiting(webhook.StatePending, webhook.ReasonRate, due.Add(-time.Second))
	waiting(webhook.StateRetrying, webhook.ReasonCircuitOpen, due.Add(-time.Second))
	waiting(webhook.StateRetrying, "", due.Add(-time.Second))
	deferred := waiting(webhook.StatePending, webhook.ReasonRate, due)
	waiting(webhook.StatePending, webhook.ReasonRate, due.Add(time.Second))
	require.Equal(t, 2, ahead(deferred))
	waiting(webhook.StateHeld, webhook.ReasonBacklog, time.Time{})
	waiting(webhook.StateHeld, webhook.ReasonPaused, time.Time{})
	held := waiting(webhook.StateHeld, webhook.ReasonBacklog, time.Time{})
	waiting(webhook.StateHeld, webhook.ReasonBacklog, time.Time{})
	require.Equal(t, 2, ahead(held), "whatever holds them")
	require.Equal(t, 2, ahead(deferred), "another kind")

	b.Exec(t, `insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, due_at, give_up_at)
		select gen_random_uuid(), event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, due_at - interval '1 minute', give_up_at
		from deliveries, generate_series(1, $2) where id = $1`, deferred.DeliveryID, webhook.MaxAhead)
	n, more, err := b.Ahead(t.Context(), deferred)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, webhook.MaxAhead, n)
}
