package workflows

import (
	"fmt"
	"strconv"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// What the Web UI shows of a workflow: the search attribute DeliveryState, by which lists are filtered, and
// the details, in markdown, on its page. The details cost nothing: Temporal asks a worker for them when the
// page is opened. They are therefore true in every run, and end with the workflow.

// shownState is the search attribute DeliveryState, as this run has set it. A pending delivery has none,
// and none is left on a run that continues as another: a list finds each delivery once.
type shownState struct{ state webhook.State }

// shownAtStart is the attribute that the run was started with.
func shownAtStart(ctx workflow.Context) shownState {
	name, _ := workflow.GetTypedSearchAttributes(ctx).GetKeyword(temporal.NewSearchAttributeKeyKeyword(AttributeDeliveryState))
	state, _ := webhook.ParseState(name) // pending, if there is none
	return shownState{state}
}

// show sets the attribute. Each change is an event of the history and a write of the visibility store.
func (s *shownState) show(ctx workflow.Context, state webhook.State) {
	if s.state == state {
		return
	}
	s.state = state
	key := temporal.NewSearchAttributeKeyKeyword(AttributeDeliveryState)
	update := key.ValueSet(state.String())
	if state == webhook.StatePending {
		update = key.ValueUnset()
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, update); err != nil {
		workflow.GetLogger(ctx).Warn("the search attribute was not set", "error", err)
	}
}

// clear removes the attribute.
func (s *shownState) clear(ctx workflow.Context) { s.show(ctx, webhook.StatePending) }

// situation is what a workflow knows of its delivery. The explanation is read at any time after it is made.
func situation(ctx workflow.Context, s *DeliveryState) explain.Situation {
	d := webhook.Delivery{
		Ref: s.Ref, Progress: s.Progress, LastOutcome: s.LastOutcome, LastError: s.LastError, CreatedAt: s.EventID.Time(),
	}
	switch {
	case s.State == webhook.StateDelivered: // another process may have made the attempt, at a time that is not known here
		if s.LastOutcome != nil {
			d.CompletedAt = s.LastOutcome.At
		}
	case !s.State.Open():
		d.CompletedAt = workflow.Now(ctx)
	}
	return explain.Situation{Delivery: d}
}

// details explains a delivery, in markdown.
func details(s explain.Situation) string {
	// Put together by +: workflowcheck takes fmt.Fprintf for non-deterministic.
	d, e := &s.Delivery, explain.Delivery(s)
	text := headline(d.State, d.Ref) + "\n\n" + plain(e.Summary) + "\n\n"
	text += line("cause", e.Cause) + line("next", e.Next) + line("remedy", e.Remedy)
	commands := make([]string, len(e.Actions))
	for i, action := range e.Actions {
		commands[i] = line("command", strings.Join(action.Command(), " "))
	}
	text += strings.Join(commands, "") + line("operator", e.Operator)
	text += line("delivery", d.DeliveryID.String())
	attempts := strconv.Itoa(d.Attempts)
	if d.Run > 1 {
		attempts += fmt.Sprintf(" (%d in run %d)", d.RunAttempts, d.Run)
	}
	return text + line("attempts", attempts) + line("code", string(e.Code))
}

// headline is the first line of the details: the state, and what the summary of a first run says.
func headline(state webhook.State, ref webhook.Ref) string {
	return fmt.Sprintf("**%s** · %#q to %#q", state, ref.EventType, ref.EndpointID.String())
}

func line(name, value string) string {
	if value == "" {
		return ""
	}
	return "- " + name + ": " + plain(value) + "\n"
}

// plain makes markdown of a text: what others wrote in it, such as the reason of a cancel, must not become a
// link, code or HTML.
func plain(text string) string {
	if !strings.ContainsAny(text, "\\[<`*") {
		return text
	}
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "<", `\<`, "`", "\\`", "*", `\*`).Replace(text)
}
