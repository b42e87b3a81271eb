package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// What keeps a step from being stored. Either ends the run.
var (
	errGone        = errors.New("there is no such delivery any more")
	errLongHistory = errors.New("the history has become long")
)

// storeStep stores the end of a delivery, as often as it takes. While another process has a claim, the
// store refuses it: that process may be delivering. The error is errGone or errLongHistory.
func storeStep(ctx workflow.Context, step webhook.Step, why string) (webhook.DeliveryStatus, error) {
	for pause := time.Second; ; {
		status, err := storeOnce(ctx, step, why)
		switch {
		case activities.IsGone(err):
			return status, errGone
		case err != nil:
			sleep(ctx, pause, "the store is unavailable: "+why)
			pause = min(2*pause, longestPause)
		case status.State.Open() && !status.ClaimedUntil.IsZero():
			sleep(ctx, max(status.ClaimedUntil.Sub(workflow.Now(ctx)), clockSlack), "another process is making an attempt: "+why)
		default:
			return status, nil
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return status, errLongHistory
		}
	}
}

// storeOnce tries to store a step.
func storeOnce(ctx workflow.Context, step webhook.Step, why string) (webhook.DeliveryStatus, error) {
	ctx, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	var status webhook.DeliveryStatus
	err := workflow.ExecuteLocalActivity(localOptions(ctx, why), acts.Steps.RecordStep, step).Get(ctx, &status)
	return status, err
}

// keepFor is how long dead letters are kept, as the worker's settings say now.
func keepFor(ctx workflow.Context) time.Duration {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	for {
		var kept time.Duration
		if err := workflow.ExecuteLocalActivity(localOptions(disconnected, "retention"), acts.DeadLetters.KeepFor).Get(disconnected, &kept); err == nil {
			return kept
		}
		sleep(ctx, time.Second, "retention")
	}
}

// sleep waits whether or not the workflow has been cancelled.
func sleep(ctx workflow.Context, d time.Duration, summary string) {
	ctx, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	_ = workflow.NewTimerWithOptions(ctx, d, workflow.TimerOptions{Summary: summary}).Get(ctx, nil) // a disconnected timer is not cancelled
}
