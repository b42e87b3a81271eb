package deliveries

import (
	"context"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// DeadLetters has what the workflows that keep dead letters ask for many at once, and the groups that people see of them.
type DeadLetters struct{ core *postgres.Core }

// DeliveryStatuses are the stored statuses of deliveries. One is zero, with the run 0, where DeliveryStatus returns CodeNotFound.
func (s *DeadLetters) DeliveryStatuses(ctx context.Context, refs []webhook.Ref) ([]webhook.DeliveryStatus, error) {
	found, err := statuses(ctx, s.core, `d.id = any($1)`, idsOf(refs))
	all := make([]webhook.DeliveryStatus, len(refs))
	for i := range refs {
		all[i] = found[storedRefOf(&refs[i])]
	}
	return all, err
}

// statuses are those of the table d that meet the condition, whose parameter is of.
func statuses(ctx context.Context, core *postgres.Core, condition string, of any) (map[storedRef]webhook.DeliveryStatus, error) {
	found := map[storedRef]webhook.DeliveryStatus{}
	err := core.AsWorker().WithConn(ctx, "read statuses", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `select `+statusColumns+` from deliveries d where `+condition, of)
		if err != nil {
			return err
		}
		return readStatuses(rows, found)
	})
	return found, err
}

func idsOf(refs []webhook.Ref) [][16]byte {
	ids := make([][16]byte, len(refs))
	for i := range refs {
		ids[i] = refs[i].DeliveryID
	}
	return ids
}

// KeepIn names the workflow that keeps dead letters, where that is another one than it was to be when they were given up. It takes none from
// a delivery's own.
func (s *DeadLetters) KeepIn(ctx context.Context, workflowID string, refs []webhook.Ref, runs []int) error {
	return s.core.AsWorker().WithConn(ctx, "name the workflow of dead letters", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `
			with others as materialized (
				select d.id from deliveries d where d.id = any($2) and d.state = `+postgres.DeadLettered+` and d.workflow_id <> $1
					and not starts_with(d.workflow_id, '`+webhook.OwnWorkflowPrefix+`') order by d.id for update)
			update deliveries d set workflow_id = $1 from unnest($2::uuid[], $3::int[]) u (id, run)
			where d.id = any(array(select id from others)) and d.id = u.id and d.run = u.run`, workflowID, idsOf(refs), runs)
		return err
	})
}
