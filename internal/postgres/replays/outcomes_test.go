package replays_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// What each thing that can happen after a release comes to.
func TestFirstOutcomes(t *testing.T) {
	t.Parallel()
	attempted := func(state webhook.State, decision retry.Decision) func(*testing.T, *storetest.Bundle, webhook.Start) {
		return func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			step := storetest.StepOf(start, 1, state)
			step.Attempts, step.RunAttempts, step.Attempt = 2, 1, storetest.AttemptOf(2, 2, 200)
			step.Attempt.Outcome.Decision = decision
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
		}
	}
	ended := func(state webhook.State) func(*testing.T, *storetest.Bundle, webhook.Start) {
		return func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, state))
			require.NoError(t, err)
		}
	}
	for name, test := range map[string]struct {
		happen func(t *testing.T, b *storetest.Bundle, start webhook.Start)
		want   []int64 // delivered, failed
	}{
		"waits for its start":          {func(*testing.T, *storetest.Bundle, webhook.Start) {}, []int64{0, 0}},
		"is put off":                   {ended(webhook.StatePending), []int64{0, 0}},
		"is held":                      {ended(webhook.StateHeld), []int64{0, 0}},
		"delivered":                    {attempted(webhook.StateDelivered, retry.Delivered), []int64{1, 0}},
		"will be retried":              {attempted(webhook.StateRetrying, retry.Retry), []int64{0, 1}},
		"dead letter again":            {attempted(webhook.StateDeadLettered, retry.Permanent), []int64{0, 1}},
		"cancelled without an attempt": {ended(webhook.StateCancelled), []int64{0, 1}},
		"given up without an attempt":  {ended(webhook.StateDeadLettered), []int64{0, 1}},
		"delivered later, failed first": {func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			attempted(webhook.StateRetrying, retry.Retry)(t, b, start)
			step := storetest.StepOf(start, 2, webhook.StateDelivered)
			step.Attempts, step.RunAttempts, step.Attempt = 3, 2, storetest.AttemptOf(3, 2, 200)
			step.Attempt.Outcome.Decision = retry.Delivered
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
		}, []int64{0, 1}},
		"delivered, and replayed by someone": {func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			attempted(webhook.StateDelivered, retry.Delivered)(t, b, start)
			_, _, err := b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
			require.NoError(t, err)
		}, []int64{1, 0}},
		"is gone": {func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			for _, table := range []string{"deliveries where id", "outbox where delivery_id"} {
				_, err := b.Pool().Exec(t.Context(), `delete from `+table+` = $1`, start.DeliveryID)
				require.NoError(t, err)
			}
		}, []int64{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			b.DeadLetters(t, 1)
			r := b.StartReplay(t, webhook.Replay{})
			st := b.ReleaseBatch(t, r, 1, 1)
			require.EqualValues(t, 1, st.Waiting())
			starts, err := b.TakeStarts(t.Context(), "test", 10)
			require.NoError(t, err)
			require.Len(t, starts, 1)
			test.happen(t, b, starts[0])
			now := time.Now().Add(replays.FirstCheck)
			st, err = b.ReplayOutcomes(t.Context(), r.ID, now, 10)
			require.NoError(t, err)
			require.Equal(t, test.want, []int64{st.Delivered, st.Failed})
			require.Equal(t, st.Waiting() == 1, !st.CheckAt.IsZero())
			if st.Waiting() == 1 {
				require.WithinDuration(t, now.Add(replays.FirstCheck), st.CheckAt, time.Second, "checked again later")
			}
			again, err := b.ReplayOutcomes(t.Context(), r.ID, now, 10)
			require.NoError(t, err)
			require.Equal(t, st, again, "counted once")
		})
	}
}

// Releases that wait for long are checked less and less often, and a check is bounded.
func TestChecksAreBounded(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.DeadLetters(t, 3)
	r := b.StartReplay(t, webhook.Replay{})
	b.ReleaseBatch(t, r, 1, 3)
	now, checks := time.Now(), 0
	for end := now.Add(24 * time.Hour); now.Before(end); checks++ {
		now = now.Add(time.Minute)
		st, err := b.ReplayOutcomes(t.Context(), r.ID, now, 3)
		require.NoError(t, err)
		require.True(t, st.CheckAt.After(now))
		require.LessOrEqual(t, st.CheckAt.Sub(now), replays.LongestCheck)
		now = st.CheckAt
	}
	require.Less(t, checks, 24*60)
	st, err := b.ReplayOutcomes(t.Context(), r.ID, now.Add(time.Hour), 2)
	require.NoError(t, err)
	require.False(t, st.CheckAt.After(now.Add(time.Hour)), "one is still to be checked")
}
