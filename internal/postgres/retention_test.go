package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		_, err := b.Record(t.Context(), step)
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
		_, err := b.Record(t.Context(), stepOf(start, seq, webhook.StateDiscarded))
		require.NoError(t, err)
	}
	require.Positive(t, retain(72*time.Hour).Days)
	require.True(t, lost(dead.EventID))
	require.True(t, lost(fresh.EventID))
	require.Zero(t, b.count(t, "attempts"))
	require.NoError(t, b.EnsurePartitions(t.Context(), now.Add(72*time.Hour)), "partitions go on")
}
