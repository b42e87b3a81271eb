package starter

import (
	"context"
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// Replays is what the relay reads of replays.
type Replays interface {
	// TakeReplays takes replays whose workflow has recorded nothing yet, has not answered a command for
	// a while, or has recorded nothing for long.
	TakeReplays(ctx context.Context, limit int) ([]webhook.Replay, error)
}

// WakeReplay starts a replay's workflow, or signals it that there is a command. If that fails, the
// relay repeats it.
func (s *Starter) WakeReplay(_ context.Context, r webhook.Replay) {
	s.callAsync(func(ctx context.Context) error { return s.wakeReplay(ctx, r) }) //nolint:contextcheck // the caller is answered before the workflow is reached
}

// wakeReplay starts the replay's workflow unless it runs, and signals it the command, if there is one.
// A workflow that was lost continues from the store.
func (s *Starter) wakeReplay(ctx context.Context, r webhook.Replay) error {
	options := client.StartWorkflowOptions{
		ID:                                       r.WorkflowID(),
		TaskQueue:                                workflows.TaskQueue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    workflows.ReplaySearchAttributes(r),
		StaticSummary:                            workflows.ReplaySummary(r),
	}
	input := workflows.ReplayInput{ReplayID: r.ID, Summary: workflows.ReplaySummary(r)}
	if !r.Command.Pending() {
		input.Lost = r.Started
		_, err := s.client.ExecuteWorkflow(ctx, options, workflows.ReplayWorkflow, input)
		if _, already := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); already {
			return nil
		}
		return err //nolint:wrapcheck // classifyResult handles it
	}
	name := workflows.SignalSetRate
	switch r.Command.Action {
	case webhook.ReplayPause:
		name = workflows.SignalPause
	case webhook.ReplayResume:
		name = workflows.SignalResume
	case webhook.ReplayCancel:
		name = workflows.SignalCancel
	case webhook.ReplayKeep:
	}
	signal := workflows.ReplaySignal{CommandID: r.Command.ID, PerMinute: r.Command.Rate}
	_, err := s.client.SignalWithStartWorkflow(ctx, options.ID, name, signal, options, workflows.ReplayWorkflow, input)
	return err //nolint:wrapcheck // classifyResult handles it
}

// relayReplays wakes replays whose workflow does not answer.
func (s *Starter) relayReplays() {
	if s.replays == nil || s.temporalDown.Load() {
		return
	}
	replays, err := readBatch(s, s.replays.TakeReplays)
	if err != nil {
		return
	}
	forEach(concurrentStarts, replays, func(r webhook.Replay) {
		s.tryCall(func(ctx context.Context) error {
			if _, err := s.inspect(ctx, r.WorkflowID()); err != nil { // it ends one that is stuck
				return err
			}
			return s.wakeReplay(ctx, r)
		})
	})
}
