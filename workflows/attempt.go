package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// The parts of acts are nil: only their methods are named, so that the compiler checks their types. The worker has the real ones.
var acts activities.Activities //nolint:gochecknoglobals // see above

const (
	attemptTimeout = 10 * time.Second // of a local activity; it returns after about 1 s
	// joinTimeout is an attempt's deadline twice, one of another process that died and one of this
	// one, and the time to store it.
	joinTimeout = 2*webhook.MaxTimeout + 30*time.Second
	// firstTaskLength is the history when the first task begins: workflow started, task
	// scheduled, task started. A task that has to be repeated finds more.
	firstTaskLength  = 3
	heartbeatTimeout = 4 * activities.HeartbeatEvery
	longestPause     = time.Minute // between tries to store a step
	// passAfter is how many deferrals in a row for want of an owner are borne. A local activity runs in the worker that has the workflow in
	// memory, which may be cut off from the owner for long. After that the attempt is an ordinary activity, for any worker, the owner
	// among them.
	passAfter   = 5
	passTimeout = 30 * time.Second // of an attempt that any worker may make: it is deferred again if none is free
)

// makeAttempt makes one attempt: as a local activity, and when the receiver is
// slow, joined by an ordinary one. Both run on a disconnected context: a cancel
// never aborts a request that is under way. slow is called before the wait for a slow receiver.
func makeAttempt(ctx workflow.Context, in DeliveryInput, slow func()) (activities.AttemptResult, error) {
	ctx, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	request := activities.AttemptInput{
		Ref: in.Ref, Progress: in.Progress, NotBefore: in.NotBefore, CommandDone: in.CommandDone, Forced: in.Forced, Running: in.Running,
		Faulted: in.Faults > 0,
		// Another workflow may have made the first attempt of a delivery that was handed over.
		FirstTask: !in.HandedOver && workflow.GetInfo(ctx).GetCurrentHistoryLength() <= firstTaskLength,
		Trace:     traceInRun(ctx, &in.DeliveryState),
	}
	summary := fmt.Sprintf("attempt %d", in.Attempts+1)
	if in.Faults > 0 {
		summary += ", after an internal fault"
	}
	var result activities.AttemptResult
	err := executeAttempt(ctx, in.passes(), summary, acts.Attempts.Attempt, request).Get(ctx, &result)
	elsewhere := in.Running && !result.ClaimedUntil.IsZero() // begun eagerly or by the shared workflow, in another process
	if err != nil || !result.Running && !elsewhere {
		return result, err
	}
	slow()
	joined := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		// Past the give-up time internal faults end it, which the workflow has to store.
		ScheduleToCloseTimeout: max(in.GiveUpAt.Sub(workflow.Now(ctx)), 0) + joinTimeout,
		StartToCloseTimeout:    joinTimeout, HeartbeatTimeout: heartbeatTimeout, Summary: summary + ": the receiver is slow, waiting for its answer",
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: longestPause},
	})
	result = activities.AttemptResult{}
	err = workflow.ExecuteActivity(joined, acts.Attempts.Join, request).Get(ctx, &result)
	return result, err
}

// traceInRun is the trace for the delivery's attempts in this run of the workflow.
func traceInRun(ctx workflow.Context, s *DeliveryState) webhook.Trace {
	return s.Trace.InRun(workflow.GetInfo(ctx).WorkflowExecution.RunID, s.DeliveryID)
}

// executeAttempt executes an activity that makes attempts: in this worker, or in any if they are passed on.
func executeAttempt(ctx workflow.Context, pass bool, summary string, activity, input any) workflow.Future {
	if !pass {
		return workflow.ExecuteLocalActivity(localOptions(ctx, summary), activity, input)
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: passTimeout, StartToCloseTimeout: attemptTimeout, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		DisableEagerExecution: true, // an eager one is made by the same worker again
		Summary:               summary + ", by any worker: the one before did not reach the owner of the endpoint's limits",
	}), activity, input)
}

// passes reports whether the next attempt is passed to any worker.
func (s *DeliveryState) passes() bool { return s.Unowned >= passAfter }

func localOptions(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: attemptTimeout, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: summary,
	})
}

// message is an error's innermost message, without the SDK's wrapping.
func message(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Message()
	}
	return err.Error()
}
