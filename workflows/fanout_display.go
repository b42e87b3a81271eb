package workflows

import (
	"fmt"
	"strconv"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// leftMember is a delivery that has ended in a shared workflow, or left it.
type leftMember struct {
	webhook.Ref

	words string // what became of it
}

// ownWorkflow is what became of a delivery that has left.
const ownWorkflow = "continues in its own workflow"

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
	head := "**" + deliveries(f.before+len(f.left)+len(f.members)) + "**"
	if len(f.members) > 0 {
		head += fmt.Sprintf(", %d of them still here", len(f.members))
	}
	lines := make([]string, 0, len(f.members)+len(f.left)+3)
	lines = append(lines, head+"\n\n")
	for _, m := range f.members {
		lines = append(lines, memberLine(m.Ref, m.words(ctx)))
	}
	for i := range f.left {
		lines = append(lines, memberLine(f.left[i].Ref, f.left[i].words))
	}
	if f.before > 0 {
		lines = append(lines, "- in earlier runs of this workflow: "+deliveries(f.before)+"\n")
	}
	lines = append(lines, f.refused.details())
	workflow.SetCurrentDetails(ctx, strings.Join(lines, ""))
}

func memberLine(ref webhook.Ref, words string) string {
	return "- `" + ref.DeliveryID.String() + "` · `" + ref.EventType + "` to `" + ref.EndpointID.String() + "`: " + plain(words) + "\n"
}

// words describes the situation of a member.
func (m *Member) words(ctx workflow.Context) string {
	s := situation(ctx, &m.DeliveryState)
	switch {
	case m.Leaving:
		return m.State.String() + ", about to continue in its own workflow"
	case m.Running || !m.CheckAt.IsZero():
		s.Delivery.ClaimedUntil = workflow.Now(ctx).Add(joinTimeout)
	}
	return m.State.String() + ". " + explain.Delivery(s).Summary
}

// tenantOf is the tenant of all members; "" if there are several.
func tenantOf(members []*Member) string {
	tenant := ""
	for i, m := range members {
		if i > 0 && m.TenantID != tenant {
			return ""
		}
		tenant = m.TenantID
	}
	return tenant
}
