package audit

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// refusedDetail is the detail of an ignored signal.
type refusedDetail struct {
	Source   string `json:"source"`
	Signal   string `json:"signal"`
	Reason   string `json:"reason"`
	Workflow string `json:"workflow_id"`
}

// SignalsRefused writes that signals to a workflow were ignored, an entry for each. Temporal does not say
// who sent them.
func (s *Audit) SignalsRefused(ctx context.Context, r webhook.RefusedSignals) error {
	return s.core.AsWorker().InTx(ctx, "audit refused signals", func(ctx context.Context, tx pgx.Tx) error {
		for _, signal := range r.Signals {
			detail := postgres.JSONBytes(refusedDetail{"workflow signal", signal.Name, signal.Why, r.WorkflowID})
			if err := Write(ctx, tx, Workflow(), r.TenantID, WorkflowRefuse, r.Subject, detail); err != nil {
				return err
			}
		}
		return nil
	})
}

// Workflow is the actor of what a signal to a workflow has changed, or was to change.
func Workflow() webhook.Actor { return webhook.Actor{Name: "workflow"} }
