package deliveries_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Which workflow keeps a dead letter after a step: the one that keeps those of the shared workflow that the store names, and never of another one, or
// when it is its own workflow's already.
func TestTheKeeperOfADeadLetter(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	ofOne, ofOther := webhook.DeadLettersWorkflowID(one, 2), webhook.DeadLettersWorkflowID(other, 0)
	for _, test := range []struct{ holder, writer, after string }{
		{storetest.NoWorkflow, ofOne, ofOne}, {one, ofOne, ofOne}, {other, ofOne, other}, {own, ofOne, own},
		{ofOne, one, ofOne}, {ofOne, ofOther, ofOne}, {ofOne, own, own},
	} {
		start := b.AcceptOne(t)
		step := storetest.StepOf(start, 1, webhook.StateRetrying)
		step.WorkflowID = test.holder
		_, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err)
		dead := storetest.StepOf(start, 2, webhook.StateDeadLettered)
		dead.WorkflowID = test.writer
		status, err := b.RecordStep(t.Context(), dead)
		require.NoError(t, err)
		require.Equal(t, test.after, status.WorkflowID, "a step of %q after %q", test.writer, test.holder)
	}
}

// Another batch than the one that was named keeps dead letters of their runs, and nothing else.
func TestKeepIn(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	starts := make([]webhook.Start, 5)
	for i := range starts {
		starts[i] = b.AcceptOne(t)
		step := storetest.StepOf(starts[i], 1, webhook.StateDeadLettered)
		step.WorkflowID = webhook.DeadLettersWorkflowID(one, 0)
		switch i {
		case 1:
			step.State = webhook.StateDiscarded
		case 2:
			step.WorkflowID = own
		case 4:
			step.WorkflowID = other // a shared one that has claimed it meanwhile
		}
		_, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err)
	}
	refs, runs := make([]webhook.Ref, len(starts)), []int{1, 1, 1, 2, 1}
	for i := range starts {
		refs[i] = starts[i].Ref
	}
	next := webhook.DeadLettersWorkflowID(one, 1)
	require.NoError(t, b.KeepIn(t.Context(), next, refs, runs))
	d, err := b.Delivery(t.Context(), "acme", refs[4].DeliveryID)
	require.NoError(t, err)
	require.Equal(t, next, d.WorkflowID)
	refs[4].TenantID = "other"
	unknown := webhook.Ref{DeliveryID: webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())}
	statuses, err := b.DeliveryStatuses(t.Context(), slices.Concat(refs, []webhook.Ref{unknown}))
	require.NoError(t, err)
	named := make([]string, len(statuses))
	for i := range statuses {
		named[i] = statuses[i].WorkflowID
	}
	first := webhook.DeadLettersWorkflowID(one, 0)
	require.Equal(t, []string{next, first, own, first, "", ""}, named)
	require.Equal(t, webhook.StateDiscarded, statuses[1].State)
	require.Zero(t, statuses[4].Run, "another tenant has no such delivery")
	require.Zero(t, statuses[5].Run)
}
