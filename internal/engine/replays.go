package engine

import (
	"context"
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// Replays starts and signals the workflows of replays.
type Replays struct {
	workflows *Workflows
	calls     *Calls
}

// WakeReplay starts a replay's workflow, or signals it that there is a command. If that fails, the
// relay repeats it. A queued replay needs none but for a command.
func (r *Replays) WakeReplay(_ context.Context, replay webhook.Replay) {
	if replay.State == webhook.ReplayQueued && !replay.Command.Pending() {
		return
	}
	r.calls.Async(func(ctx context.Context) error { return r.wake(ctx, replay) }) //nolint:contextcheck // the caller is answered before the workflow is reached
}

// wake starts the replay's workflow unless it runs, and signals it the command, if there is one.
// A workflow that was lost continues from the store.
func (r *Replays) wake(ctx context.Context, replay webhook.Replay) error {
	options := client.StartWorkflowOptions{
		ID:                                       replay.WorkflowID(),
		TaskQueue:                                workflows.TaskQueue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    workflows.ReplaySearchAttributes(replay),
		StaticSummary:                            workflows.ReplaySummary(replay),
	}
	input := workflows.ReplayInput{ReplayID: replay.ID, Summary: workflows.ReplaySummary(replay)}
	if !replay.Command.Pending() {
		input.Lost = replay.Started
		_, err := r.workflows.client.ExecuteWorkflow(ctx, options, workflows.ReplayWorkflow, input)
		if _, already := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); already {
			return nil
		}
		return err //nolint:wrapcheck // classify handles it
	}
	name := workflows.SignalSetRate
	switch replay.Command.Action {
	case webhook.ReplayPause:
		name = workflows.SignalPause
	case webhook.ReplayResume:
		name = workflows.SignalResume
	case webhook.ReplayCancel:
		name = workflows.SignalCancel
	case webhook.ReplayKeep:
	}
	signal := workflows.ReplaySignal{CommandID: replay.Command.ID, PerMinute: replay.Command.Rate}
	_, err := r.workflows.client.SignalWithStartWorkflow(ctx, options.ID, name, signal, options, workflows.ReplayWorkflow, input)
	return err //nolint:wrapcheck // classify handles it
}

// WakeAgain wakes a replay whose workflow does not answer. It ends one that is stuck.
func (r *Replays) WakeAgain(ctx context.Context, replay webhook.Replay) error {
	if _, err := r.workflows.Inspect(ctx, replay.WorkflowID()); err != nil {
		return err
	}
	return r.wake(ctx, replay)
}
