package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// What is told the store and Temporal of the deliveries of a workflow, but for their attempts: steps, and the workflows of dead letters.

// store stores the steps of members to which no attempt leads.
func (d *openDeliveries) store(ctx workflow.Context, of []*Member) {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	d.worked = true
	steps := make([]webhook.Step, len(of))
	for i, m := range of {
		steps[i] = m.step(workflow.Now(ctx), d.id, d.keeper())
	}
	stored := []activities.StepResult{}
	why := stepWords(steps[0].State) + ofSeveral(len(of))
	err := workflow.ExecuteLocalActivity(localOptions(disconnected, why), acts.Steps.RecordSteps, steps).Get(disconnected, &stored)
	if err != nil {
		for range of {
			stored = append(stored, activities.StepResult{Fault: message(err)})
		}
	}
	fault, faults := "", 0
	for i, m := range of {
		if stored[i].Fault != "" {
			fault, faults = stored[i].Fault, faults+1
			continue
		}
		d.guarded(ctx, m, func(m *Member) { m.leaves = d.stored(ctx, m, &steps[i], &stored[i]) })
	}
	if faults == 0 {
		d.pause = 0
	} else {
		d.putOff(ctx, "steps could not be stored", fault, faults)
	}
	for i, m := range of {
		if stored[i].Fault != "" {
			m.StoreAt = workflow.Now(ctx).Add(d.pause)
		}
	}
}

// stored updates a member with the store's status after a step, which is authoritative. While another process has a claim, the store
// refuses an end: that process may be delivering.
func (d *openDeliveries) stored(ctx workflow.Context, m *Member, step *webhook.Step, status *activities.StepResult) (left string) {
	now := workflow.Now(ctx)
	switch {
	case status.Gone:
		workflow.GetLogger(ctx).Warn("a delivery leaves that is no longer in the store", "delivery", m.DeliveryID.String())
		return m.becomes("no longer in the store")
	case status.Run != m.Run:
		return m.becomes(explain.OtherRun(status.Run, status.WorkflowID))
	case !step.State.Open() && status.State.Open() && !status.ClaimedUntil.IsZero():
		m.StoreAt = now.Add(max(status.ClaimedUntil.Sub(now), clockSlack))
		return ""
	}
	m.Progress, m.Unconfirmed = status.Progress, false
	if c := status.Command; c.Command == webhook.CommandReschedule && c.ID <= m.CommandDone { // the store was ahead: the time is set again
		m.CommandDone, m.NotBefore = c.ID-1, status.DueAt
	}
	m.receive(status.Command)
	return d.place(now, m, status.WorkflowID)
}

// putOff lengthens the pause after a fault of the store, or of Temporal.
func (d *openDeliveries) putOff(ctx workflow.Context, what, fault string, count int) {
	d.pause = min(max(2*d.pause, time.Second), longestPause)
	workflow.GetLogger(ctx).Warn(what, "count", count, "error", fault)
}

// keeper is the workflow that keeps the dead letters which are gathered; "" if it is the deliveries' own.
func (d *openDeliveries) keeper() string {
	if d.own {
		return ""
	}
	return webhook.DeadLettersWorkflowID(d.id, d.batch)
}

// keep starts the workflow of gathered dead letters. Those that it does not have, because a lost workflow task has started it before they
// were there, are of the next batch.
func (d *openDeliveries) keep(ctx workflow.Context, dead []*Member) {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	d.worked = true
	in := activities.Keeping{WorkflowID: d.keeper(), DeadLetters: make([]activities.DeliveryState, len(dead))}
	for i, m := range dead {
		in.DeadLetters[i] = activities.DeliveryState(m.DeliveryState)
	}
	var kept activities.Kept
	why := "to a workflow of dead letters" + ofSeveral(len(dead))
	if err := workflow.ExecuteLocalActivity(localOptions(disconnected, why), acts.DeadLetters.Keep, in).Get(disconnected, &kept); err != nil {
		d.putOff(ctx, "dead letters could not leave yet", message(err), len(dead))
		for _, m := range dead {
			m.KeepAt = workflow.Now(ctx).Add(d.pause)
		}
		return
	}
	d.pause = 0
	d.batch++
	for i, m := range dead {
		if !slices.Contains(kept.Left, i) {
			m.leaves = keptIn + in.WorkflowID
		}
	}
}
