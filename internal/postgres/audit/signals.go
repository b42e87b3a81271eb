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

// isOfTenant finds the delivery or the replay of a workflow, by its id, with the tenant that the workflow names.
const isOfTenant = `select coalesce(
	(select true from outbox where delivery_id = $1 and tenant_id = $2),
	(select true from deliveries where id = $1 and tenant_id = $2),
	(select true from replays where id = $1 and tenant_id = $2), false)`

// SignalsRefused writes that signals to a workflow were ignored, an entry for each. Temporal does not say
// who sent them, nor who has started the workflow: unless the store has its delivery or replay as one of the tenant, the entries
// are of no tenant.
func (s *Audit) SignalsRefused(ctx context.Context, r webhook.RefusedSignals) error {
	return s.core.AsWorker().InTx(ctx, "audit refused signals", func(ctx context.Context, tx pgx.Tx) error {
		ofTenant := false
		if err := tx.QueryRow(ctx, isOfTenant, storedIDOf(r), r.TenantID).Scan(&ofTenant); err != nil {
			return err
		}
		if !ofTenant {
			r.TenantID = ""
		}
		for _, signal := range r.Signals {
			detail := postgres.JSONBytes(refusedDetail{"workflow signal", signal.Name, signal.Why, r.WorkflowID})
			if err := Write(ctx, tx, Workflow(), r.TenantID, WorkflowRefuse, r.Subject, detail); err != nil {
				return err
			}
		}
		return nil
	})
}

// storedIDOf is the id of a delivery or a replay of the workflow; zero if it names none.
func storedIDOf(r webhook.RefusedSignals) [16]byte {
	if id, err := webhook.ParseReplayID(r.Subject); err == nil {
		return id
	}
	if id, err := webhook.ParseDeliveryID(r.Subject); err == nil {
		return id
	}
	return r.DeliveryID
}

// Workflow is the actor of what a signal to a workflow has changed, or was to change.
func Workflow() webhook.Actor { return webhook.Actor{Name: "workflow"} }
