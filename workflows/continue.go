package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/failpoint"
)

// continueAs ends a workflow and continues it with an empty history, as the same or as another workflow.
func continueAs(ctx workflow.Context, next, in any) error {
	failpoint.Hit("continue-as-new")
	return workflow.NewContinueAsNewError(ctx, next, in)
}
