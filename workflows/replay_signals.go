package workflows

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// Signals of ReplayWorkflow, input ReplaySignal, other than SignalCancel.
const (
	SignalPause   = "pause"
	SignalResume  = "resume"
	SignalSetRate = "set-rate"
)

// ReplaySignal is a command as it reaches a ReplayWorkflow. Sent by hand the input
// may also be a text, which is taken as the reason, a number, which is taken as the
// rate, or absent.
type ReplaySignal struct {
	// CommandID is the id of the stored command, which has the
	// rest; 0 when it was sent by hand.
	CommandID int64  `json:"command_id,omitempty"`
	Reason    string `json:"reason,omitempty"`
	PerMinute int    `json:"per_minute,omitempty"` // of set-rate; 0: the last requested one
}

// replaySignals are the channels of a ReplayWorkflow.
type replaySignals struct {
	pause, resume, cancel, setRate workflow.ReceiveChannel
}

// newReplaySignals returns the channels. The Web UI offers the signals with these descriptions.
func newReplaySignals(ctx workflow.Context) replaySignals {
	channel := func(name, description string) workflow.ReceiveChannel {
		return workflow.GetSignalChannelWithOptions(ctx, name, workflow.SignalChannelOptions{Description: description})
	}
	return replaySignals{
		pause:   channel(SignalPause, "release nothing more for now; input: a reason, or nothing"),
		resume:  channel(SignalResume, "go on"),
		cancel:  channel(SignalCancel, "end the replay; what is released goes on; input: a reason, or nothing"),
		setRate: channel(SignalSetRate, "set the rate; input: deliveries per minute, such as 600"),
	}
}

// replaySignalNames are the names of the signals.
func replaySignalNames() []string {
	return []string{SignalPause, SignalResume, SignalCancel, SignalSetRate}
}

// receive takes one signal that is there already; ReplayKeep is set-rate.
func (s *replaySignals) receive() (webhook.ReplayAction, ReplaySignal, bool) {
	for _, sig := range []struct {
		channel workflow.ReceiveChannel
		action  webhook.ReplayAction
	}{{s.pause, webhook.ReplayPause}, {s.resume, webhook.ReplayResume}, {s.cancel, webhook.ReplayCancel}, {s.setRate, webhook.ReplayKeep}} {
		var input converter.RawValue
		if sig.channel.ReceiveAsync(&input) {
			return sig.action, decodeReplay(input), true
		}
	}
	return webhook.ReplayKeep, ReplaySignal{}, false
}

// receiveSignals notes all signals that are there, and the cancellation of the workflow, which means
// cancel. A stored command is read in the store: several may have become one.
func (r *replay) receiveSignals(ctx workflow.Context) {
	for {
		action, signal, ok := r.signals.receive()
		if !ok {
			break
		}
		switch {
		case signal.CommandID != 0:
			r.in.Look = true
		case action == webhook.ReplayKeep:
			r.in.ByHand.SetRate, r.in.ByHand.Rate = true, signal.PerMinute
		case r.in.ByHand.Action != webhook.ReplayCancel:
			r.in.ByHand.Action, r.in.ByHand.Reason = action, signal.Reason
		}
	}
	receiveUnknown(ctx, replaySignalNames(), func(name string) { r.refused.add(ctx, name, explain.UnknownSignal(replaySignalNames())) })
	if ctx.Err() != nil && r.in.ByHand.Action != webhook.ReplayCancel {
		r.in.ByHand.Action, r.in.ByHand.Reason = webhook.ReplayCancel, reasonWorkflowCancelled
	}
}

func decodeReplay(raw converter.RawValue) ReplaySignal {
	payload := raw.Payload()
	if payload == nil {
		return ReplaySignal{}
	}
	var (
		signal ReplaySignal
		text   string
		rate   float64
		from   = converter.GetDefaultDataConverter().FromPayload
	)
	switch {
	case from(payload, &text) == nil:
		signal = ReplaySignal{Reason: text}
	case from(payload, &rate) == nil:
		signal = ReplaySignal{PerMinute: int(min(max(rate, 0), webhook.MaxReplayRate))}
	case from(payload, &signal) != nil:
		signal = ReplaySignal{}
	}
	signal.Reason = storable(signal.Reason)
	signal.PerMinute = min(max(signal.PerMinute, 0), webhook.MaxReplayRate)
	return signal
}

// ReplaySearchAttributes are given with the start of a replay's workflow.
func ReplaySearchAttributes(r webhook.Replay) temporal.SearchAttributes {
	all := []temporal.SearchAttributeUpdate{temporal.NewSearchAttributeKeyKeyword(AttributeTenantID).ValueSet(r.TenantID)}
	if !r.Filter.EndpointID.IsZero() {
		all = append(all, temporal.NewSearchAttributeKeyKeyword(AttributeEndpointID).ValueSet(r.Filter.EndpointID.String()))
	}
	if r.Filter.EventType != "" {
		all = append(all, temporal.NewSearchAttributeKeyKeyword(AttributeEventType).ValueSet(r.Filter.EventType))
	}
	return temporal.NewSearchAttributes(all...)
}

// ReplaySummary is one line for the Web UI.
func ReplaySummary(r webhook.Replay) string {
	text := "replay of " + r.Source.String()
	if r.Filter.EventType != "" {
		text += " of type " + r.Filter.EventType
	}
	if !r.Filter.EndpointID.IsZero() {
		text += " to " + r.Filter.EndpointID.String()
	}
	return text
}

// replayDetails is where a replay stands, in markdown, for the Web UI.
func replayDetails(summary string, st *webhook.ReplayStatus, lastError string) string {
	text := "**" + st.State.String() + "**"
	if summary != "" {
		text += " · " + plain(summary)
	}
	if st.Total != nil {
		text += fmt.Sprintf(" · %d of %d released", st.Released, *st.Total)
	} else {
		text += fmt.Sprintf(" · %d released", st.Released)
	}
	text += fmt.Sprintf("\n\n- first attempts: %d delivered, %d failed, %d awaited\n- rate: %d per minute (asked for: %d)\n",
		st.Delivered, st.Failed, st.Waiting(), st.Rate, st.Asked)
	if st.Skipped > 0 {
		text += fmt.Sprintf("- skipped: %d\n", st.Skipped)
	}
	if st.Behind {
		text += "- waiting: deliveries wait longer than usual for their start\n"
	}
	return text + line("reason", st.Reason) + line("internal fault", lastError)
}
