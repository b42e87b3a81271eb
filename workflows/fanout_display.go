package workflows

import (
	"strconv"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// What became of deliveries that have left.
const (
	ownWorkflow = "continues in its own workflow"
	keptIn      = "given up; as a dead letter it is in the workflow " // of that id
)

func deliveredWords(attempt int) string { return "delivered with attempt " + strconv.Itoa(attempt) }

// endsOf says in words what became of the deliveries that were not delivered.
func endsOf(due []*Member, ended []activities.End) map[*Member]string {
	ends := map[*Member]string{}
	for _, end := range ended {
		for _, index := range end.Of {
			ends[due[index]] = endWords(end)
		}
	}
	return ends
}

// endWords say how a delivery ended that was not delivered.
func endWords(end activities.End) string {
	switch {
	case end.State == webhook.StateHeld:
		return "held, without a workflow: " + explain.Wait(end.Reason)
	case end.Reason == "":
		return end.State.String()
	}
	return end.State.String() + ": " + explain.Outcome(end.Reason)
}

// show shows the state in the Web UI. The search attribute is retrying while a delivery waits for a retry.
func (f *fanout) show(ctx workflow.Context) {
	state := webhook.StatePending // no attribute
	for _, m := range f.members {
		if m.State == webhook.StateRetrying && !m.Leaving {
			state = webhook.StateRetrying
		}
	}
	f.shown.show(ctx, state)
	f.describe(ctx)
}

// describe sets the details: first the deliveries that are still here, then the others.
func (f *fanout) describe(ctx workflow.Context) {
	lines := make([]string, len(f.members))
	for i, m := range f.members {
		lines[i] = memberLine(m.Ref, m.words(ctx))
	}
	workflow.SetCurrentDetails(ctx, memberList(lines, f.left, f.before)+f.refused.details())
}

// words describes the situation of a member.
func (m *Member) words(ctx workflow.Context) string {
	s := situation(ctx, &m.DeliveryState)
	switch {
	case m.GivenUp:
		return m.State.String() + ", about to go to the workflow that keeps it"
	case m.Leaving:
		return m.State.String() + ", about to continue in its own workflow"
	case m.Running || !m.CheckAt.IsZero():
		s.Delivery.ClaimedUntil = workflow.Now(ctx).Add(joinTimeout)
	}
	return m.State.String() + ". " + explain.Delivery(s).Summary
}
