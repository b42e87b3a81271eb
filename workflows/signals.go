package workflows

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/webhook"
)

// signals are the channels of a delivery's workflow. Both types listen to all of
// them: a command may arrive while one continues as the other.
type signals struct {
	cancel, retry, reschedule, replay, discard workflow.ReceiveChannel
}

func newSignals(ctx workflow.Context) signals {
	return signals{
		cancel: workflow.GetSignalChannel(ctx, SignalCancel), retry: workflow.GetSignalChannel(ctx, SignalRetryNow),
		reschedule: workflow.GetSignalChannel(ctx, SignalReschedule), replay: workflow.GetSignalChannel(ctx, SignalReplay),
		discard: workflow.GetSignalChannel(ctx, SignalDiscard),
	}
}

func (s *signals) each() []struct {
	channel workflow.ReceiveChannel
	command webhook.Command
} {
	return []struct {
		channel workflow.ReceiveChannel
		command webhook.Command
	}{
		{s.cancel, webhook.CommandCancel}, {s.retry, webhook.CommandRetry},
		{s.reschedule, webhook.CommandReschedule}, {s.replay, webhook.CommandReplay}, {s.discard, webhook.CommandDiscard},
	}
}

// receive takes one signal that is there already. What moves the next attempt (retry,
// reschedule) stays in its channel until it is known which attempt that is: the first one may have been
// made eagerly, and would be taken for the one that was asked for.
func (s *signals) receive(known bool) (webhook.Command, Asked, bool) {
	for _, sig := range s.each() {
		if moves := sig.command == webhook.CommandRetry || sig.command == webhook.CommandReschedule; moves && !known {
			continue
		}
		var input converter.RawValue
		if sig.channel.ReceiveAsync(&input) {
			return sig.command, decode(input), true
		}
	}
	return webhook.CommandNone, Asked{}, false
}

// wake lets a selector return when any signal is there; it stays in its channel.
func (s *signals) wake(selector workflow.Selector) {
	for _, sig := range s.each() {
		selector.AddReceive(sig.channel, func(workflow.ReceiveChannel, bool) {})
	}
}
