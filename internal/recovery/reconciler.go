package recovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	// defaultReconcileEvery is how often the store is compared with Temporal, firstReconcile how long
	// after Run for the first time: what was lost with the process before waits since then.
	defaultReconcileEvery = 5 * time.Minute
	firstReconcile        = 20 * time.Second
	// maxInspected bounds the shared workflows that a round keeps.
	maxInspected = 1000
)

// Overdue is what the reconciler reads and writes.
type Overdue interface {
	// Overdue returns open deliveries that should have gone on a while ago, and Expired dead letters
	// that are past their retention, in pages: each continues at the cursor of the one before. Neither
	// returns a delivery again within the time again.
	Overdue(ctx context.Context, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error)
	Expired(ctx context.Context, keep time.Duration, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error)
	// TakeOver assigns open deliveries from one workflow to a shared one, and returns those that were
	// the first one's, as they stand.
	TakeOver(ctx context.Context, from, to string, ids []webhook.DeliveryID) ([]webhook.Delivery, error)
}

// TenantDeletions reads which tenants are being deleted.
type TenantDeletions interface {
	Deletions(ctx context.Context, limit int) (tenantIDs []string, err error)
}

// ReconcilerConfig is what a reconciler needs. All fields are required unless they say otherwise.
type ReconcilerConfig struct {
	Engine    *engine.Engine
	Overdue   Overdue
	Deletions TenantDeletions
	Logger    *slog.Logger
	// Every is how often the reconciler runs. Defaults to 5 min.
	Every time.Duration
}

// Reconciler finds deliveries that are open in the store and that no workflow has: it was terminated,
// is stuck, or was lost with its database. It begins with the store, because Temporal's own list of
// workflows lags and is slow. It also has deletions of tenants continued whose workflow was lost.
//
// A round costs a page of 200 rows at a time, by the indexes deliveries_goes_on and deliveries_expired, of what is overdue and was not looked at
// within the period, and for each workflow that is named one description by Temporal, up to four at a time, and one query of a shared one that
// runs. When nothing is overdue, that is two reads of a few blocks for each partition, and one of deleted_tenants, which has a row for each
// tenant that was deleted.
type Reconciler struct {
	engine    *engine.Engine
	overdue   Overdue
	deletions TenantDeletions
	log       *slog.Logger
	every     time.Duration

	again time.Duration // what was looked at within that time is not looked at again
}

// NewReconciler returns a reconciler that does not run.
func NewReconciler(c ReconcilerConfig) *Reconciler {
	every := cmp.Or(c.Every, defaultReconcileEvery)
	return &Reconciler{
		engine: c.Engine, overdue: c.Overdue, deletions: c.Deletions, log: c.Logger,
		every: every, again: every,
	}
}

// Run reconciles 20 s after its begin and then as often as is set, until ctx ends. A round that could not finish is repeated after 20 s.
func (r *Reconciler) Run(ctx context.Context) {
	soon := min(firstReconcile, r.every)
	next := time.NewTimer(soon)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if _, err := r.runOnce(ctx); err == nil {
			next.Reset(r.every)
		} else {
			next.Reset(soon)
		}
	}
}

// runOnce compares all that is overdue with Temporal, and returns how many deliveries that were. The error is that it did not get through; the
// next round then reads again what this one could not handle.
func (r *Reconciler) runOnce(ctx context.Context) (compared int, err error) {
	r.wakeTenantDeletions(ctx)
	open, err := r.compareAll(ctx, r.overdue.Overdue)
	dead, failed := r.compareAll(ctx,
		func(ctx context.Context, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error) {
			return r.overdue.Expired(ctx, r.engine.Revivals.KeepDeadLetters(), from, again, limit)
		})
	err = errors.Join(err, failed)
	if r.again = r.every; err != nil {
		r.again = min(firstReconcile, r.every) / 2
	}
	return open + dead, err
}

// wakeTenantDeletions starts the workflows of deletions that have none.
func (r *Reconciler) wakeTenantDeletions(ctx context.Context) {
	ids, err := readBatch(ctx, r.log, r.deletions.Deletions)
	if err != nil {
		return
	}
	for _, id := range ids {
		r.engine.Calls.Try(func(ctx context.Context) error { return r.engine.TenantDeletions.Start(ctx, id) })
	}
}

// round has the shared workflows that were inspected in one round.
type round struct{ inspected map[string]*engine.Workflow }

// compareAll compares all deliveries that were not read within the time again, and returns how many. The error is that it could not.
func (r *Reconciler) compareAll(
	ctx context.Context, read func(context.Context, webhook.Cursor, time.Duration, int) ([]webhook.Delivery, webhook.Cursor, error),
) (compared int, err error) {
	this := round{map[string]*engine.Workflow{}}
	var from webhook.Cursor
	for r.engine.Health.Up() && ctx.Err() == nil {
		late, err := readBatch(ctx, r.log, func(ctx context.Context, limit int) (page []webhook.Delivery, err error) {
			page, from, err = read(ctx, from, r.again, limit)
			return page, err
		})
		if err != nil || len(late) == 0 {
			return compared, err
		}
		single, shared := groupByWorkflow(late)
		engine.ForEach(engine.ConcurrentLookups, single, func(delivery webhook.Delivery) {
			r.engine.Calls.Try(func(ctx context.Context) error {
				return r.engine.Revivals.Revive(ctx, &delivery, webhook.PendingCommand{})
			})
		})
		for id, group := range shared {
			if workflows.IsShared(id) {
				r.reviveShared(ctx, &this, id, group)
			} else {
				r.reviveDeadLetters(&this, id, group)
			}
		}
		compared += len(late)
		if r.engine.Health.Down(ctx) { // and may have been for some of these calls
			return compared, errTemporalDown
		}
	}
	if ctx.Err() != nil {
		return compared, ctx.Err()
	}
	return compared, errTemporalDown
}

// groupByWorkflow divides deliveries into those with workflows of their own, and the others by the
// workflows of several that the store names.
func groupByWorkflow(all []webhook.Delivery) (single []webhook.Delivery, shared map[string][]webhook.Delivery) {
	shared = map[string][]webhook.Delivery{}
	for i := range all {
		if id := all[i].WorkflowID; workflows.IsShared(id) || strings.HasPrefix(id, webhook.DeadLettersPrefix) {
			shared[all[i].WorkflowID] = append(shared[all[i].WorkflowID], all[i])
		} else {
			single = append(single, all[i])
		}
	}
	return single, shared
}

// reviveDeadLetters has expired dead letters discarded by the workflow that keeps them, or each by one of its own.
func (r *Reconciler) reviveDeadLetters(this *round, id string, group []webhook.Delivery) {
	keeper := r.inspectOnce(this, id)
	if keeper == nil {
		return
	}
	engine.ForEach(engine.ConcurrentLookups, group, func(delivery webhook.Delivery) {
		r.engine.Calls.Try(func(ctx context.Context) error {
			return r.engine.Revivals.ReviveIn(ctx, keeper, &delivery, webhook.PendingCommand{})
		})
	})
}

// inspectOnce inspects a workflow of several deliveries once in a round; nil if it could not.
func (r *Reconciler) inspectOnce(this *round, id string) *engine.Workflow {
	if known := this.inspected[id]; known != nil {
		return known
	}
	var found *engine.Workflow
	r.engine.Calls.Try(func(ctx context.Context) error {
		w, err := r.engine.Workflows.Inspect(ctx, id)
		if err == nil {
			found = w
		}
		return err
	})
	if found != nil {
		if len(this.inspected) >= maxInspected {
			clear(this.inspected)
		}
		this.inspected[id] = found
	}
	return found
}

// reviveShared starts workflows for those deliveries of a shared workflow that no workflow has any
// more: a new shared workflow; or, if a person terminated it, one per delivery.
func (r *Reconciler) reviveShared(ctx context.Context, this *round, id string, group []webhook.Delivery) {
	shared := r.inspectOnce(this, id)
	if shared == nil {
		return
	}
	if shared.Stuck {
		r.continueStuck(ctx, shared, group)
		return
	}
	var (
		mu   sync.Mutex
		lost []webhook.DeliveryID
	)
	engine.ForEach(engine.ConcurrentLookups, group, func(delivery webhook.Delivery) {
		r.engine.Calls.Try(func(ctx context.Context) error {
			status, err := r.engine.Workflows.StatusOf(ctx, shared, &delivery)
			if err != nil || status == engine.StatusRunning {
				return err
			}
			if status == engine.StatusTerminated {
				return r.engine.Revivals.Restart(ctx, &delivery, true, webhook.PendingCommand{})
			}
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, delivery.DeliveryID)
			return nil
		})
	})
	r.continueShared(ctx, id, lost)
}

// continueStuck continues all deliveries of a shared workflow that was stuck, even those that are not
// overdue. The first time they share another workflow. The second time each gets its own: if one of
// them makes every workflow stuck, the others must not wait for it.
func (r *Reconciler) continueStuck(ctx context.Context, stuck *engine.Workflow, group []webhook.Delivery) {
	ids := make([]webhook.DeliveryID, 0, len(group))
	known := map[webhook.DeliveryID]bool{}
	add := func(id webhook.DeliveryID) {
		if !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	for i := range group {
		add(group[i].DeliveryID)
	}
	r.engine.Calls.Try(func(ctx context.Context) error {
		others, err := r.engine.Workflows.InitialDeliveries(ctx, stuck)
		for _, id := range others {
			add(id)
		}
		return err
	})
	if !workflows.IsSuccessor(stuck.ID) {
		r.continueShared(ctx, stuck.ID, ids)
		return
	}
	rest, err := r.takeOver(ctx, stuck.ID, stuck.ID, ids)
	if err != nil {
		return
	}
	engine.ForEach(engine.ConcurrentLookups, rest, func(delivery webhook.Delivery) {
		r.engine.Calls.Try(func(ctx context.Context) error {
			return r.engine.Revivals.Restart(ctx, &delivery, false, webhook.PendingCommand{})
		})
	})
}

// continueShared starts another shared workflow for deliveries whose shared workflow has ended.
func (r *Reconciler) continueShared(ctx context.Context, from string, ids []webhook.DeliveryID) {
	for len(ids) > 0 {
		group := ids[:min(r.engine.Starts.MaxPerWorkflow(), len(ids))]
		ids = ids[len(group):]
		to := workflows.SuccessorID(from, group)
		left, err := r.takeOver(ctx, from, to, group)
		if err != nil {
			return
		}
		if len(left) == 0 {
			continue // they have changed meanwhile
		}
		r.log.WarnContext(ctx, "deliveries had no workflow and get one", "count", len(left), "workflow", to, "before", from)
		starts := make([]webhook.Start, len(left))
		for i := range left {
			starts[i] = webhook.Start{Ref: left[i].Ref, Run: left[i].Run, GiveUpAt: left[i].GiveUpAt, Resume: &left[i].Progress}
		}
		r.engine.Calls.Try(func(ctx context.Context) error { return r.engine.Starts.Shared(ctx, to, starts) })
	}
}

// takeOver is Overdue.TakeOver, and logs an error.
func (r *Reconciler) takeOver(ctx context.Context, from, to string, ids []webhook.DeliveryID) ([]webhook.Delivery, error) {
	return readBatch(ctx, r.log, func(ctx context.Context, _ int) ([]webhook.Delivery, error) {
		return r.overdue.TakeOver(ctx, from, to, ids)
	})
}
