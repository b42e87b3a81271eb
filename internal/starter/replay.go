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
	// TakeReplays takes replays whose workflow was never at work, has not answered
	// for a while, or has not been heard of for long.
	TakeReplays(ctx context.Context, limit int) ([]webhook.Replay, error)
}

// WakeReplay starts a replay's workflow, or tells it that something was asked of it. What
// is asked is in the record, so that it arrives in the end, whether or not this does.
func (d *Starter) WakeReplay(_ context.Context, r webhook.Replay) {
	d.aside(func(ctx context.Context) error { return d.wake(ctx, r) }) //nolint:contextcheck // the caller is answered before the workflow is reached
}

// wake starts the replay's workflow unless it runs, and tells it what was asked, if
// anything. All is in the record: a workflow that was lost is made anew.
func (d *Starter) wake(ctx context.Context, r webhook.Replay) error {
	options := client.StartWorkflowOptions{
		ID:                                       r.WorkflowID(),
		TaskQueue:                                workflows.TaskQueue(r.Filter.EndpointID),
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    workflows.ReplaySearchAttributes(r),
		StaticSummary:                            workflows.ReplaySummary(r),
	}
	input := workflows.ReplayInput{ReplayID: r.ID}
	if !r.Command.Pending() {
		input.Lost = r.Started
		_, err := d.Client.ExecuteWorkflow(ctx, options, workflows.ReplayWorkflow, input)
		if _, already := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); already {
			return nil
		}
		return err //nolint:wrapcheck // note classifies it
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
	asked := workflows.ReplaySignal{CommandID: r.Command.ID, PerMinute: r.Command.Rate}
	_, err := d.Client.SignalWithStartWorkflow(ctx, options.ID, name, asked, options, workflows.ReplayWorkflow, input)
	return err //nolint:wrapcheck // note classifies it
}

// relayReplays looks after replays that were left behind.
func (d *Starter) relayReplays() {
	if d.Replays == nil || d.away.Load() {
		return
	}
	replays, err := take(d, d.Replays.TakeReplays)
	if err != nil {
		return
	}
	each(ownWidth, replays, func(r webhook.Replay) {
		d.carry(func(ctx context.Context) error {
			if _, err := d.look(ctx, r.WorkflowID()); err != nil { // which ends one that is stuck
				return err
			}
			return d.wake(ctx, r)
		})
	})
}
