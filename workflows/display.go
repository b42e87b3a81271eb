package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// showState sets the search attribute.
func showState(ctx workflow.Context, s webhook.State) {
	err := workflow.UpsertTypedSearchAttributes(ctx, temporal.NewSearchAttributeKeyKeyword(AttributeDeliveryState).ValueSet(s.String()))
	if err != nil {
		workflow.GetLogger(ctx).Warn("the search attribute was not set", "error", err)
	}
}

// details is the state of a delivery, in markdown, for the Web UI.
func details(s *DeliveryState) string {
	// Put together by +: workflowcheck takes fmt.Fprintf for non-deterministic.
	text := fmt.Sprintf("**%s** · %#q to %#q\n\n- attempts: %d", s.State, s.EventType, s.EndpointID.String(), s.Attempts)
	if s.Run > 1 {
		text += fmt.Sprintf(" (%d in run %d)", s.RunAttempts, s.Run)
	}
	text += "\n" + line("last answer", s.LastResponse)
	if !s.State.Open() {
		return text + line("reason", s.Reason) + line("internal fault", s.LastError)
	}
	if s.Reason != "" {
		text += line("waits", explain.Wait(s.Reason))
	}
	text += line("internal fault", s.LastError)
	if !s.DueAt.IsZero() {
		text += line("next attempt", s.DueAt.UTC().Format(time.RFC3339))
	}
	return text + line("given up at", s.GiveUpAt.UTC().Format(time.RFC3339))
}

func line(name, value string) string {
	if value == "" {
		return ""
	}
	return "- " + name + ": " + value + "\n"
}
