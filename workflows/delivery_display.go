package workflows

import (
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// longestRequest is how long a request that is under way may take, with what it takes to store its outcome.
const longestRequest = webhook.MaxTimeout + 15*time.Second

// keptIn says what became of a delivery that was given up. What follows is the id of a workflow.
const keptIn = "given up; as a dead letter it is in the workflow "

func deliveredWords(attempt int) string { return "delivered with attempt " + strconv.Itoa(attempt) }

// endWords say how the delivery ended, or that it is held.
func (m *Member) endWords() string {
	switch {
	case m.State == webhook.StateDelivered: // by another process, as the store says
		return deliveredWords(m.Attempts)
	case m.State == webhook.StateHeld:
		return "held, without a workflow: " + explain.Wait(m.Reason)
	case m.Reason == "":
		return m.State.String()
	}
	return m.State.String() + ": " + explain.Outcome(m.Reason)
}

// stepWords say what a step does to which no attempt leads.
func stepWords(state webhook.State) string {
	switch state {
	case webhook.StateCancelled:
		return "cancel"
	case webhook.StateDeadLettered:
		return "give up"
	case webhook.StatePending, webhook.StateRetrying, webhook.StateHeld, webhook.StateDelivered, webhook.StateDiscarded:
	}
	return "workflow and handled commands"
}

// ofSeveral names the number of deliveries, unless there is one.
func ofSeveral(n int) string {
	if n == 1 {
		return ""
	}
	return " of " + deliveries(n)
}

// becomes notes that the delivery goes on somewhere else, or is gone. It returns the words.
func (m *Member) becomes(words string) string {
	m.became = words
	return words
}

// waitSummary says what the workflow of one delivery waits for.
func (m *Member) waitSummary() string {
	switch {
	case m.isDead():
		return "to a workflow of dead letters"
	case m.isChecking():
		return fmt.Sprintf("attempt %d: the receiver is slow, next look for its answer", m.Attempts+1)
	case m.isCancelled():
		return "cancel, next try"
	case m.Faults > 0:
		return fmt.Sprintf("internal fault, next try (%d)", m.Faults)
	case m.Deferred():
		return fmt.Sprintf("attempt %d at %s: %s", m.Attempts+1, m.DueAt.UTC().Format(time.TimeOnly), explain.Wait(m.Reason))
	case m.Attempts == 0:
		return "until " + m.DueAt.UTC().Format(time.RFC3339)
	default:
		return fmt.Sprintf("retry %d at %s, after %s", m.RunAttempts, m.DueAt.UTC().Format(time.TimeOnly), m.LastOutcome)
	}
}

// show shows the state in the Web UI: in lists only off the happy path. Of several deliveries the search attribute is retrying while one waits for
// a retry.
func (d *openDeliveries) show(ctx workflow.Context) {
	d.describe(ctx)
	if d.own {
		d.showOne(ctx)
		return
	}
	state := webhook.StatePending // no attribute
	for _, m := range d.members {
		if m.State == webhook.StateRetrying {
			state = webhook.StateRetrying
		}
	}
	d.shown.show(ctx, state)
}

func (d *openDeliveries) showOne(ctx workflow.Context) {
	m := d.first
	switch {
	case m.became != "":
		d.shown.clear(ctx)
	case m.State == webhook.StateDelivered && m.Attempts == 1 && !d.waited: // a completed workflow without a state says enough
	default:
		d.waited = d.waited || !m.isChecking()
		d.shown.show(ctx, m.State)
	}
}

// describe sets the details: of the one delivery, or a list, first of those that are still here, then of the others.
func (d *openDeliveries) describe(ctx workflow.Context) {
	if d.own {
		workflow.SetCurrentDetails(ctx, d.first.details(ctx)+d.refused.details())
		return
	}
	lines := make([]string, len(d.members))
	for i, m := range d.members {
		lines[i] = memberLine(m.Ref, m.words(ctx))
	}
	workflow.SetCurrentDetails(ctx, memberList(lines, d.left, d.before)+d.refused.details())
}

// details are those of the only delivery of its workflow.
func (m *Member) details(ctx workflow.Context) (text string) {
	defer func() { // words must not stop the workflow
		if recover() != nil {
			text = m.State.String()
		}
	}()
	if m.became != "" {
		return plain(m.became) + "\n"
	}
	return details(m.situation(ctx))
}

// words describe the situation of one of several deliveries.
func (m *Member) words(ctx workflow.Context) (text string) {
	defer func() { // words must not stop the workflow
		if recover() != nil {
			text = m.State.String()
		}
	}()
	if m.isDead() {
		return m.State.String() + ", about to go to the workflow that keeps it"
	}
	return m.State.String() + ". " + explain.Delivery(m.situation(ctx)).Summary
}

func (m *Member) situation(ctx workflow.Context) explain.Situation {
	s := situation(ctx, &m.DeliveryState)
	if m.Running || m.isChecking() {
		s.Delivery.ClaimedUntil = workflow.Now(ctx).Add(longestRequest)
	}
	return s
}
