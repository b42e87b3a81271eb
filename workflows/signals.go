package workflows

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// Signals of the workflows. Their input is optional: sent by hand from the Web UI without
// one, each acts with its defaults. A workflow of several deliveries carries
// a signal out for the delivery that the input names, or for each.
const (
	SignalCancel     = "cancel"     // DeliveryWorkflow, input CommandSignal; also ReplayWorkflow
	SignalRetryNow   = "retry-now"  // DeliveryWorkflow, input CommandSignal
	SignalReschedule = "reschedule" // DeliveryWorkflow, input CommandSignal with At, or a time alone
	SignalReplay     = "replay"     // DeadLetterWorkflow, input CommandSignal
	SignalDiscard    = "discard"    // DeadLetterWorkflow, input CommandSignal
)

// CommandSignal is a command as a signal brings it.
type CommandSignal struct {
	// CommandID is the id of the stored command; 0 if the signal was sent by hand.
	CommandID int64  `json:"command_id,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Run is the run of the delivery that the command is for; 0 if the signal was sent by hand.
	Run int `json:"run,omitempty"`
	// At is the new time of a reschedule.
	At time.Time `json:"at,omitzero"`
	// DeliveryID names one of the workflow's deliveries; without it, all are meant.
	DeliveryID webhook.DeliveryID `json:"delivery_id,omitzero"`
	// Opened are, for replay, runs that are open already: who has opened them tells the workflow that keeps the dead letters.
	Opened []OpenedRun `json:"opened,omitempty"`

	unreadable bool // the input was none of these
}

// OpenedRun is a run of a delivery that was opened after the one that has become a dead letter.
type OpenedRun struct {
	DeliveryID webhook.DeliveryID `json:"delivery_id"`
	Run        int                `json:"run"`
	WorkflowID string             `json:"workflow_id"`
}

// signalOf is a stored command as its signal.
func signalOf(c webhook.PendingCommand) CommandSignal {
	return CommandSignal{CommandID: c.ID, Reason: c.Reason, At: c.At}
}

// pending is the opposite of signalOf.
func (s CommandSignal) pending(command webhook.Command) webhook.PendingCommand {
	at, _ := s.when()
	return webhook.PendingCommand{ID: s.CommandID, Command: command, Reason: s.Reason, At: at}
}

// byHand reports a signal that was not sent by Everpost.
func (s CommandSignal) byHand() bool { return s.CommandID == 0 && s.Run == 0 && len(s.Opened) == 0 }

// isOfEarlier reports a command to a run before the given one: a replay was faster than its signal.
func (s CommandSignal) isOfEarlier(run int) bool { return 0 < s.Run && s.Run < run }

// when is the time that a signal names, in its field or, sent by hand, as its text.
func (s CommandSignal) when() (time.Time, bool) {
	if !s.At.IsZero() {
		return s.At, true
	}
	at, err := time.Parse(time.RFC3339, s.Reason)
	return at.UTC(), err == nil
}

// isOfOther reports a signal that names another delivery.
func (s CommandSignal) isOfOther(id webhook.DeliveryID) bool {
	return !s.DeliveryID.IsZero() && s.DeliveryID != id
}

// SignalName is the name of a command's signal; "" for CommandNone.
func SignalName(c webhook.Command) string {
	switch c {
	case webhook.CommandCancel:
		return SignalCancel
	case webhook.CommandRetry:
		return SignalRetryNow
	case webhook.CommandReschedule:
		return SignalReschedule
	case webhook.CommandReplay:
		return SignalReplay
	case webhook.CommandDiscard:
		return SignalDiscard
	case webhook.CommandNone:
	}
	return ""
}

// signals are the signal channels of a workflow of deliveries. Each type of workflow receives all of them:
// a command may arrive while one continues as the other.
type signals []signalChannel

type signalChannel struct {
	command webhook.Command
	name    string
	channel workflow.ReceiveChannel
}

// newSignals returns the channels. The Web UI offers the signals with these descriptions.
func newSignals(ctx workflow.Context) signals {
	channel := func(command webhook.Command, name, description string) signalChannel {
		return signalChannel{command, name, workflow.GetSignalChannelWithOptions(ctx, name, workflow.SignalChannelOptions{Description: description})}
	}
	return signals{
		channel(webhook.CommandCancel, SignalCancel, "end an open delivery; input: a reason, or nothing"),
		channel(webhook.CommandRetry, SignalRetryNow, "make the next attempt of an open delivery now"),
		channel(webhook.CommandReschedule, SignalReschedule, `make the next attempt of an open delivery at a time; input: "2026-02-01T09:30:00Z"`),
		channel(webhook.CommandReplay, SignalReplay, "send a dead letter again; input: a reason, or nothing"),
		channel(webhook.CommandDiscard, SignalDiscard, "end a dead letter; input: a reason, or nothing"),
	}
}

// receiveAll passes all signals that are there to handle, those of the first channels first.
func (s signals) receiveAll(handle func(webhook.Command, CommandSignal)) {
	for i := range s {
		var input converter.RawValue
		for s[i].channel.ReceiveAsync(&input) {
			handle(s[i].command, decode(input))
			input = converter.RawValue{}
		}
	}
}

// receive passes all signals that are there to handle, but those that refusal says are to be ignored, and why: they are noted, and so are unknown
// signals.
func (s signals) receive(
	ctx workflow.Context, refused *refusals, refusal func(webhook.Command, CommandSignal) string, handle func(webhook.Command, CommandSignal),
) {
	s.receiveAll(func(command webhook.Command, signal CommandSignal) {
		if why := refusal(command, signal); why != "" {
			refused.add(ctx, SignalName(command), why)
			return
		}
		handle(command, signal)
	})
	receiveUnknown(ctx, s.names(), func(name string) { refused.add(ctx, name, explain.UnknownSignal(s.names())) })
}

// names are the names of the signals.
func (s signals) names() []string {
	names := make([]string, len(s))
	for i := range s {
		names[i] = s[i].name
	}
	return names
}

// receiveUnknown takes all signals that are there of other names than the known ones, and passes each name to
// refuse.
func receiveUnknown(ctx workflow.Context, known []string, refuse func(name string)) {
	names := workflow.GetUnhandledSignalNames(ctx)
	slices.Sort(names)
	for _, name := range names {
		if isReserved(name) || slices.Contains(known, name) {
			continue
		}
		channel := workflow.GetSignalChannelWithOptions(ctx, name, workflow.SignalChannelOptions{Description: "unknown, and ignored"})
		for channel.ReceiveAsync(nil) {
			refuse(name)
		}
	}
}

// isReserved reports names that the SDK takes for its own: a workflow cannot receive them.
func isReserved(name string) bool { return strings.HasPrefix(name, "__temporal") }

// await blocks until the timer has fired, a signal is there, or the workflow is cancelled, unless it was
// cancelled before. A nil timer never fires.
func await(ctx workflow.Context, timer workflow.Future) {
	cancelled := ctx.Err() != nil
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	_ = workflow.Await(disconnected, func() bool { // it fails only when its context is cancelled
		return timer != nil && timer.IsReady() || !cancelled && ctx.Err() != nil ||
			slices.ContainsFunc(workflow.GetUnhandledSignalNames(ctx), func(name string) bool { return !isReserved(name) })
	})
}

// decode reads a signal's input: a CommandSignal, or a plain text, which is the reason, or nothing.
func decode(raw converter.RawValue) CommandSignal {
	payload := raw.Payload()
	if payload == nil {
		return CommandSignal{}
	}
	var signal CommandSignal
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &signal); err != nil {
		signal = CommandSignal{}
		if err := converter.GetDefaultDataConverter().FromPayload(payload, &signal.Reason); err != nil {
			return CommandSignal{unreadable: true}
		}
	}
	signal.Reason = storable(signal.Reason)
	return signal
}

// longestReason bounds the reason of a signal sent by hand, in bytes.
const longestReason = 1000

// storable makes a text one that the store accepts: a step that PostgreSQL refuses (a NUL, broken UTF-8)
// would be repeated indefinitely.
func storable(text string) string {
	text = strings.ReplaceAll(text[:min(len(text), longestReason)], "\x00", "")
	return strings.ToValidUTF8(text, "")
}
