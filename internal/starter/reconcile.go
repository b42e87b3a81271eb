package starter

import (
	"context"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	// reconcileEvery is how often the record is held against the engine, and firstRound how
	// long after the start that is done for the first time: what was lost with the process
	// before waits since then.
	reconcileEvery = 5 * time.Minute
	firstRound     = 20 * time.Second
	// reconcileWidth is how many workflows are asked about at a time.
	reconcileWidth = 4
)

// Overdue is what the reconciler reads.
type Overdue interface {
	// Overdue takes open deliveries that should have gone on a while ago, and
	// Expired dead letters that are kept no longer, in pages: each goes on where the one
	// before has ended. Neither hands one out again for the time again.
	Overdue(ctx context.Context, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error)
	Expired(ctx context.Context, keep time.Duration, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error)
	// TakeOver lets a shared workflow go on with those open deliveries that the record says
	// another one carries. It returns them, as they stand.
	TakeOver(ctx context.Context, from, to string, ids []webhook.DeliveryID) ([]webhook.Delivery, error)
}

// reconcile looks for deliveries that the record says are open and that no workflow
// carries: it was terminated by hand, is stuck, or lost with its database. PostgreSQL drives
// it: the engine's own list of workflows lags and is slow to ask.
func (d *Starter) reconcile() {
	soon := min(firstRound, d.ReconcileEvery)
	next := time.NewTimer(soon)
	defer next.Stop()
	again := d.ReconcileEvery
	for {
		select {
		case <-d.stopped:
			return
		case <-next.C:
		}
		done := d.reconcileAll(d.Overdue.Overdue, again)
		done = d.reconcileAll(func(ctx context.Context, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error) {
			return d.Overdue.Expired(ctx, d.KeepDeadLetters, from, again, limit)
		}, again) && done
		if done {
			again = d.ReconcileEvery
			next.Reset(d.ReconcileEvery)
		} else { // what it has read and not carried is read again by the next one
			again = soon / 2
			next.Reset(soon)
		}
	}
}

// maxRemembered bounds the shared workflows that a round remembers.
const maxRemembered = 1000

// round is one look at all that is overdue, with what was found of shared workflows.
type round struct{ seen map[string]*carrier }

// reconcileAll goes through all that was not looked at within the time again; false when it could not.
func (d *Starter) reconcileAll(
	read func(context.Context, webhook.Cursor, time.Duration, int) ([]webhook.Delivery, webhook.Cursor, error), again time.Duration,
) bool {
	r := round{map[string]*carrier{}}
	var from webhook.Cursor
	for !d.away.Load() && !d.stopping() {
		late, err := take(d, func(ctx context.Context, limit int) (page []webhook.Delivery, err error) {
			page, from, err = read(ctx, from, again, limit)
			return page, err
		})
		if err != nil || len(late) == 0 {
			return err == nil
		}
		alone, shared := byCarrier(late)
		each(reconcileWidth, alone, func(delivery webhook.Delivery) {
			d.carry(func(ctx context.Context) error { return d.revive(ctx, &delivery, webhook.PendingCommand{}) })
		})
		for id, group := range shared {
			d.reviveGroup(&r, id, group)
		}
		if d.awayAfterAll(d.life) { // since when, nobody knows
			return false
		}
	}
	return false
}

// byCarrier divides deliveries into those with workflows of their own, and the others by the
// shared workflows that the record names.
func byCarrier(all []webhook.Delivery) (alone []webhook.Delivery, shared map[string][]webhook.Delivery) {
	shared = map[string][]webhook.Delivery{}
	for i := range all {
		if workflows.IsFanout(all[i].WorkflowID) {
			shared[all[i].WorkflowID] = append(shared[all[i].WorkflowID], all[i])
		} else {
			alone = append(alone, all[i])
		}
	}
	return alone, shared
}

// carrierOf looks at a shared workflow, once in a round; nil when it could not.
func (d *Starter) carrierOf(r *round, id string) *carrier {
	if known := r.seen[id]; known != nil {
		return known
	}
	var found *carrier
	d.carry(func(ctx context.Context) error {
		c, err := d.look(ctx, id)
		if err == nil {
			found = c
		}
		return err
	})
	if found != nil {
		if len(r.seen) >= maxRemembered {
			clear(r.seen)
		}
		r.seen[id] = found
	}
	return found
}

// reviveGroup sees to it that somebody carries deliveries that the record says one shared
// workflow does. What has lost it goes on in company, as it was.
func (d *Starter) reviveGroup(r *round, id string, group []webhook.Delivery) {
	c := d.carrierOf(r, id)
	if c == nil {
		return
	}
	if c.stuck {
		d.goOnFrom(c, group)
		return
	}
	var (
		mu   sync.Mutex
		lost []webhook.DeliveryID
	)
	each(reconcileWidth, group, func(delivery webhook.Delivery) {
		d.carry(func(ctx context.Context) error {
			what, err := d.fateOf(ctx, c, &delivery)
			if err != nil || what == fateRuns {
				return err
			}
			if what == fateByHand {
				return d.beginAnew(ctx, &delivery, true, webhook.PendingCommand{})
			}
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, delivery.DeliveryID)
			return nil
		})
	})
	d.goOnTogether(id, lost)
}

// fateOf is what has become of the workflow that carries a delivery. A shared one that has
// ended, or goes on with others, may have handed it over, and the delivery's own has not yet
// told the record.
func (d *Starter) fateOf(ctx context.Context, c *carrier, delivery *webhook.Delivery) (fate, error) {
	own := delivery.Ref.WorkflowID()
	if c.id == own {
		return c.fate, nil
	}
	found := c.fate
	if found == fateRuns {
		if d.has(ctx, c, delivery.DeliveryID) {
			return fateRuns, nil
		}
		found = fateNone
	}
	handed, err := d.look(ctx, own)
	if handed.fate != fateNone {
		found = handed.fate
	}
	return found, err
}

// revive sees to it that somebody carries a delivery, and carries out the command if there is
// one: its own workflow, or the one that the record names.
func (d *Starter) revive(ctx context.Context, delivery *webhook.Delivery, command webhook.PendingCommand) error {
	id, own := delivery.WorkflowID, delivery.Ref.WorkflowID()
	if id == "" { // it is held, or has been begun just now
		id = own
	}
	c, err := d.look(ctx, id)
	if err != nil {
		return err
	}
	found, err := d.fateOf(ctx, c, delivery)
	if err != nil {
		return err
	}
	if found == fateRuns {
		if delivery.State == webhook.StateDeadLettered && d.expired(delivery) { // it was to be kept for longer when it began
			command = webhook.PendingCommand{Command: webhook.CommandDiscard, Reason: webhook.ReasonRetention}
		}
		return d.tell(ctx, own, delivery.DeliveryID, command)
	}
	return d.beginAnew(ctx, delivery, found == fateByHand, command)
}

// beginAnew starts the delivery's own workflow as the record says it stands, with a command to
// be carried out first, if there is one. No workflow carries a held delivery: that one was
// terminated says nothing of it.
func (d *Starter) beginAnew(ctx context.Context, delivery *webhook.Delivery, terminated bool, command webhook.PendingCommand) error {
	held := delivery.State == webhook.StateHeld
	if !held {
		d.Logger.WarnContext(ctx, "a delivery had no workflow and gets one", "delivery", delivery.DeliveryID, "state", delivery.State, "terminated", terminated)
	}
	options := d.own(delivery.Ref)
	options.WorkflowIDReusePolicy = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE // the one there was has ended
	state := workflows.DeliveryState{Ref: delivery.Ref, Progress: delivery.Progress, Command: command, Unconfirmed: true}
	var err error
	if delivery.State == webhook.StateDeadLettered {
		options.TypedSearchAttributes = workflows.DeadLetterAttributes(delivery.Ref)
		in := workflows.NewDeadLetter(state)
		in.KeepUntil = delivery.CompletedAt.Add(d.KeepDeadLetters)
		_, err = d.Client.ExecuteWorkflow(ctx, options, workflows.DeadLetterWorkflow, in)
	} else {
		_, err = d.Client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, workflows.DeliveryInput{
			DeliveryState: state, Terminated: terminated && !held,
		})
	}
	return unlessStarted(err)
}

// goOnFrom goes on with the deliveries of a shared workflow that was stuck, those that are not
// overdue too. The second time each goes on alone: if it is one of them that no workflow can
// go on with, the others must not wait for it.
func (d *Starter) goOnFrom(c *carrier, group []webhook.Delivery) {
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
	d.carry(func(ctx context.Context) error {
		others, err := d.beganWith(ctx, c)
		for _, id := range others {
			add(id)
		}
		return err
	})
	if !workflows.IsAgain(c.id) {
		d.goOnTogether(c.id, ids)
		return
	}
	rest, err := d.takeOver(c.id, c.id, ids)
	if err != nil {
		return
	}
	each(reconcileWidth, rest, func(delivery webhook.Delivery) {
		d.carry(func(ctx context.Context) error { return d.beginAnew(ctx, &delivery, false, webhook.PendingCommand{}) })
	})
}

// goOnTogether goes on in company with deliveries whose shared workflow has ended.
func (d *Starter) goOnTogether(from string, ids []webhook.DeliveryID) {
	for len(ids) > 0 {
		group := ids[:min(d.Width, len(ids))]
		ids = ids[len(group):]
		to := workflows.FanoutAgainID(from, group)
		left, err := d.takeOver(from, to, group)
		if err != nil {
			return
		}
		if len(left) == 0 {
			continue // they have gone on by themselves
		}
		d.Logger.Warn("deliveries had no workflow and get one", "count", len(left), "workflow", to, "before", from)
		starts := make([]webhook.Start, len(left))
		for i := range left {
			starts[i] = webhook.Start{Ref: left[i].Ref, Run: left[i].Run, GiveUpAt: left[i].GiveUpAt, Resume: &left[i].Progress}
		}
		d.carry(func(ctx context.Context) error { return d.startFanout(ctx, to, starts) })
	}
}

// takeOver is Overdue.TakeOver; an error needs no words any more.
func (d *Starter) takeOver(from, to string, ids []webhook.DeliveryID) ([]webhook.Delivery, error) {
	return take(d, func(ctx context.Context, _ int) ([]webhook.Delivery, error) {
		return d.Overdue.TakeOver(ctx, from, to, ids)
	})
}

func (d *Starter) expired(delivery *webhook.Delivery) bool {
	return time.Since(delivery.CompletedAt) > d.KeepDeadLetters
}
