// Package worker runs the workflows and activities: it registers them, serves
// the task queues and stops gracefully.
package worker

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/worker"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// slots is how many tasks of a kind may be under way. A slow receiver holds a
// local activity's slot for a second at most, so this many are never the limit.
const slots = 4000

// cachedWorkflows is how many workflows are kept in memory between two of their tasks:
// about 60 KB each. The SDK's default is 10,000, which deliveries that wait for hours
// would fill for nothing; one that is not there is read again from its history.
const cachedWorkflows = 1000

// StopTimeout is how long a stopping worker waits for what is under way: an
// attempt's deadline and 2 s to record it.
const StopTimeout = webhook.MaxTimeout + 2*time.Second

// Workers are the workers of a process, one for each task queue.
type Workers struct {
	workers []sdk.Worker
}

// Start begins to serve all task queues. An eager start needs the very client
// that starts the workflows. fatal is called when a worker has given up by itself,
// because its namespace is gone for one.
func Start(c client.Client, a *activities.Activities, fatal func(error)) (*Workers, error) {
	return StartWith(c, func(r Registry) { Register(r, a) }, fatal)
}

// StartWith is Start for what is registered, which is another release's in a test.
func StartWith(c client.Client, register func(Registry), fatal func(error)) (*Workers, error) {
	w := &Workers{}
	sdk.SetStickyWorkflowCacheSize(cachedWorkflows)
	for _, queue := range workflows.TaskQueues() {
		one := sdk.New(c, queue, sdk.Options{
			MaxConcurrentWorkflowTaskExecutionSize:  slots,
			MaxConcurrentLocalActivityExecutionSize: slots,
			MaxConcurrentActivityExecutionSize:      slots,
			WorkflowTaskPollerBehavior:              sdk.NewPollerBehaviorAutoscaling(sdk.PollerBehaviorAutoscalingOptions{}),
			ActivityTaskPollerBehavior:              sdk.NewPollerBehaviorAutoscaling(sdk.PollerBehaviorAutoscalingOptions{}),
			// Two busy cores may keep a workflow task from running for longer than the
			// default of 1 s; that is no deadlock.
			DeadlockDetectionTimeout: 10 * time.Second,
			WorkerStopTimeout:        StopTimeout,
			OnFatalError:             fatal,
		})
		register(one)
		if err := one.Start(); err != nil {
			w.Stop()
			return nil, fmt.Errorf("start the worker of %s: %w", queue, err)
		}
		w.workers = append(w.workers, one)
	}
	return w, nil
}

// Registry is where workflows and activities are registered: a worker or a test
// environment.
type Registry interface {
	RegisterWorkflow(w any)
	RegisterActivity(a any)
}

// Register makes the workflows and activities known.
func Register(r Registry, a *activities.Activities) {
	r.RegisterWorkflow(workflows.DeliveryWorkflow)
	r.RegisterWorkflow(workflows.FanoutWorkflow)
	r.RegisterWorkflow(workflows.DeadLetterWorkflow)
	r.RegisterWorkflow(workflows.ReplayWorkflow)
	r.RegisterWorkflow(workflows.ProbeWorkflow)
	r.RegisterActivity(a.Attempt)
	r.RegisterActivity(a.Attempts)
	r.RegisterActivity(a.HandOver)
	r.RegisterActivity(a.Join)
	r.RegisterActivity(a.RecordStep)
	r.RegisterActivity(a.Reopen)
	r.RegisterActivity(a.KeepFor)
	r.RegisterActivity(a.ReleaseReplay)
	r.RegisterActivity(a.CountReplay)
	r.RegisterActivity(a.RecordReplay)
}

// Stop takes no more tasks and waits up to StopTimeout for those under way.
func (w *Workers) Stop() {
	for _, one := range w.workers {
		one.Stop()
	}
}
