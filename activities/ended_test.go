package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// OnEndWithoutAttempt is called for a delivery that ends without an attempt, once that is recorded. It is not called for one that ends
// with an attempt, has ended before, or continues.
func TestEndedIsCalledForEndsWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var told []webhook.Progress
	p := b.process(t, func(c *activities.Config) {
		c.OnEndWithoutAttempt = func(_ webhook.Ref, p webhook.Progress) { told = append(told, p) }
	})
	delivered := b.stored(t)
	_, err := p.attempt(delivered)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, b.delivery(t, delivered).State)
	require.Empty(t, told)

	late := b.stored(t)
	late.GiveUpAt = time.Now().Add(-time.Second)
	_, err = p.attempt(late)
	require.NoError(t, err)
	require.Len(t, told, 1)
	require.Equal(t, webhook.StateDeadLettered, told[0].State)
	require.Equal(t, string(retry.ReasonGiveUpTime), told[0].Reason)

	given := b.stored(t)
	step := webhook.Step{Ref: given.Ref, Progress: given.Progress, WorkflowID: given.WorkflowID()}
	step.Seq, step.State, step.Reason = 1, webhook.StateDeadLettered, webhook.ReasonTerminated
	_, err = p.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Len(t, told, 2)
	require.Equal(t, webhook.ReasonTerminated, told[1].Reason)

	step.Ref, step.Progress = delivered.Ref, delivered.Progress
	step.Seq, step.State = 5, webhook.StateCancelled
	_, err = p.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Len(t, told, 2, "it was delivered: the end is refused")
}
