package activities_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// counting holds the activities of a process and what their observer has counted.
func (b *bundle) counting(t *testing.T, change func(*activities.Config)) (*process, *metrics) {
	t.Helper()
	seen := &metrics{}
	return b.process(t, func(c *activities.Config) {
		c.Observer = seen
		if change != nil {
			change(c)
		}
	}), seen
}

// An attempt counts once, with the end of its delivery, however often and wherever it is asked for again.
func TestAnAttemptCountsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, seen := b.counting(t, nil)
	other, theirs := b.counting(t, nil)
	b.Script("/hook", receivertest.Step{Status: 503}, receivertest.Step{Status: 200})
	in := b.stored(t)
	first, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, []string{"attempt 1"}, seen.counted)
	for _, again := range []*process{p, other} {
		_, err = again.attempt(in)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"attempt 1"}, seen.counted)

	in.Progress = first.Progress
	for range 2 {
		_, err = other.attempt(in)
		require.NoError(t, err)
	}
	_, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, []string{"attempt 1"}, seen.counted)
	require.Equal(t, []string{"attempt 2, delivered"}, theirs.counted)
	require.Equal(t, 2, b.Count())
}

// An end without an attempt counts once, and not where it is refused.
func TestAnEndWithoutAnAttemptCountsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, seen := b.counting(t, nil)
	other, theirs := b.counting(t, nil)
	late := b.stored(t)
	late.GiveUpAt = time.Now().Add(-time.Second)
	_, err := p.attempt(late)
	require.NoError(t, err)
	require.Equal(t, []string{"no attempt, dead_lettered"}, seen.counted)

	step := webhook.Step{Ref: late.Ref, Progress: late.Progress}
	step.Seq, step.State = 2, webhook.StateDiscarded
	for _, by := range []*process{p, p, other} {
		_, err := by.Steps.RecordStep(t.Context(), step)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"no attempt, dead_lettered", "no attempt, discarded"}, seen.counted)
	require.Equal(t, []string{string(retry.ReasonGiveUpTime), ""}, seen.ended)

	step.Seq, step.State = 3, webhook.StateCancelled
	_, err = p.Steps.RecordStep(t.Context(), step)
	require.NoError(t, err)
	open := b.stored(t)
	_, err = p.Steps.RecordStep(t.Context(), note(open))
	require.NoError(t, err)
	require.Len(t, seen.counted, 2)
	require.Empty(t, theirs.counted)
}

// lossy loses the store's next answer to a step, after the step is stored.
type lossy struct {
	activities.Store

	lose atomic.Bool
}

func (s *lossy) RecordStep(ctx context.Context, step webhook.Step) (webhook.DeliveryStatus, error) {
	status, err := s.Store.RecordStep(ctx, step)
	if s.lose.Swap(false) {
		return webhook.DeliveryStatus{}, errors.New("the answer is lost")
	}
	return status, err
}

// An attempt that was stored counts, although the answer to that was lost and the step is written again.
func TestAnAttemptWhoseStoringWasNotAnsweredCountsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store := &lossy{}
	p, seen := b.counting(t, func(c *activities.Config) { store.Store, c.Store = c.Store, store })
	store.lose.Store(true)
	in := b.stored(t)
	_, err := p.attempt(in)
	require.Error(t, err)
	require.Empty(t, seen.counted)
	for range 2 {
		result, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.StateDelivered, result.State)
	}
	require.Equal(t, []string{"attempt 1, delivered"}, seen.counted)
	require.Equal(t, 1, b.Count())
}

// Two processes send the same attempt, because the first one's claim has run out: it is one attempt.
func TestAnAttemptThatTwoProcessesMakeCountsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, seen := b.counting(t, nil)
	other, theirs := b.counting(t, nil)
	in := b.stored(t)
	b.Hold()
	first := later(func() (activities.AttemptResult, error) { return p.attempt(in) })
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	b.execute(t, `update deliveries set owner_until = now() - interval '1 minute' where id = $1`, in.DeliveryID)
	second := later(func() (activities.AttemptResult, error) { return other.attempt(in) })
	require.NoError(t, b.WaitHeld(t.Context(), 2))
	b.Release()
	require.NoError(t, (<-first).err)
	require.NoError(t, (<-second).err)
	require.Equal(t, 2, b.Count())
	require.Equal(t, []string{"attempt 1, delivered"}, append(seen.counted, theirs.counted...))
}

// A request that is answered after its delivery was cancelled is an attempt, and does not end the delivery.
func TestAnAttemptOfACancelledDeliveryCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, seen := b.counting(t, nil)
	other, theirs := b.counting(t, nil)
	in := b.stored(t)
	b.Hold()
	first := later(func() (activities.AttemptResult, error) { return p.attempt(in) })
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	b.execute(t, `update deliveries set owner_until = now() - interval '1 minute' where id = $1`, in.DeliveryID)
	step := webhook.Step{Ref: in.Ref, Progress: in.Progress}
	step.Seq, step.State = 1, webhook.StateCancelled
	status, err := other.Steps.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.StateCancelled, status.State)
	b.Release()
	require.NoError(t, (<-first).err)
	require.Equal(t, []string{"attempt 1"}, seen.counted)
	require.Equal(t, []string{"no attempt, cancelled"}, theirs.counted)
}
