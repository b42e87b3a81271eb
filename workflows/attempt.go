package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
)

// The parts of acts are nil: only their methods are named, so that the compiler checks their types. The worker has the real ones.
var acts activities.Activities //nolint:gochecknoglobals // see above

const (
	attemptTimeout = 10 * time.Second // of a local activity; it returns after about 1 s
	// firstTaskLength is the history when the first task begins: workflow started, task
	// scheduled, task started. A task that has to be repeated finds more.
	firstTaskLength = 3
	// passAfter is how many deferrals in a row for want of an owner are borne. A local activity runs in the worker that has the workflow in
	// memory, which may be cut off from the owner for long. After that the attempt is an ordinary activity, for any worker, the owner
	// among them.
	passAfter   = 5
	passTimeout = 30 * time.Second // of an attempt that any worker may make: it is deferred again if none is free
)

// executeAttempts makes the next attempts of members: in this worker, or in any if they are passed on. A slow request outlives the
// activity: its outcome is looked for later.
func executeAttempts(ctx workflow.Context, due []*Member, inputs []activities.AttemptInput) workflow.Future {
	first := due[0]
	summary := fmt.Sprintf("attempt %d", first.Attempts+1) + ofSeveral(len(due))
	switch {
	case first.isChecking():
		summary += ", the answer to a slow request"
	case first.Faults > 0:
		summary += ", after an internal fault"
	}
	if !first.passes() {
		return workflow.ExecuteLocalActivity(localOptions(ctx, summary), acts.Attempts.Attempts, inputs)
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: passTimeout, StartToCloseTimeout: attemptTimeout, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		DisableEagerExecution: true, // an eager one is made by the same worker again
		Summary:               summary + ", by any worker: the one before did not reach the owner of the endpoint's limits",
	}), acts.Attempts.Attempts, inputs)
}

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
