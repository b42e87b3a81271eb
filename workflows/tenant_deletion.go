package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// eraseTimeout is of an activity, which returns after about 20 s.
	eraseTimeout = 2 * time.Minute
	// settleFor is the time until requests that were under way have been recorded, counters have been written, and
	// Temporal's lists show which workflows are gone.
	settleFor = webhook.MaxTimeout + 10*time.Second
)

// TenantDeletionInput is the deletion of a tenant. Its progress is in the store.
type TenantDeletionInput struct {
	TenantID string `json:"tenant_id"`
	Settled  bool   `json:"settled,omitempty"` // everything was removed once, settleFor ago or longer
}

// TenantDeletionID is the id of the workflow that deletes a tenant.
func TenantDeletionID(tenantID string) string { return "tenant-deletion/" + tenantID }

// TenantDeletionWorkflow removes everything that is stored of a tenant, in PostgreSQL and in Temporal. What was under way
// at its beginning may be recorded after that, so it waits and looks again until it finds nothing. Rows go first:
// as long as they are there, workflows that are missing are started again.
func TenantDeletionWorkflow(ctx workflow.Context, in TenantDeletionInput) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: eraseTimeout,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: longestPause},
	})
	for {
		var found int64
		for _, remove := range []any{acts.TenantDeletions.EraseTenantRows, acts.TenantDeletions.EraseTenantWorkflows} {
			for more := true; more; {
				var erased activities.Erased
				if err := workflow.ExecuteActivity(ctx, remove, in.TenantID).Get(ctx, &erased); err != nil {
					return err
				}
				found, more = found+erased.Count, erased.More
				if more && workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
					in.Settled = false
					return continueAs(ctx, TenantDeletionWorkflow, in)
				}
			}
		}
		if found == 0 && in.Settled {
			return workflow.ExecuteActivity(ctx, acts.TenantDeletions.CompleteTenantDeletion, in.TenantID).Get(ctx, nil)
		}
		if err := workflow.Sleep(ctx, settleFor); err != nil {
			return err //nolint:wrapcheck // the workflow is cancelled
		}
		in.Settled = true
	}
}
