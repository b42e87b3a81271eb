package workflows

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// A delivery whose handling panics waits as after an internal fault, with what is known of the panic, and the others go on.
func TestAPoisonedMember(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	members := make([]*Member, 3)
	for i := range members {
		members[i] = &Member{DeliveryState: DeliveryState{Progress: webhook.Progress{Run: 1, GiveUpAt: time.Now().Add(time.Hour)}}}
	}
	poisoned := members[1]
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		d := newOpenDeliveries(ctx, DeliveryInput{Members: members})
		var none *activities.MemberResult
		d.guarded(ctx, poisoned, func(m *Member) { m.leaves = d.sync(ctx, m, none) })
		require.Equal(t, []any{1, ""}, []any{poisoned.Faults, poisoned.leaves})
		require.Contains(t, poisoned.LastError, "a panic of the workflow: runtime error: invalid memory address")
		require.Equal(t, workflow.Now(ctx).Add(time.Second), poisoned.DueAt)
		d.guarded(ctx, poisoned, func(*Member) { panic("canary") })
		require.Equal(t, []any{2, "a panic of the workflow"}, []any{poisoned.Faults, poisoned.LastError})
		_, due, _ := d.work(workflow.Now(ctx))
		require.Equal(t, []*Member{members[0], members[2]}, due)
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}
