// Package worker registers the workflows and activities, serves the task queue and stops
// gracefully.
package worker

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// slots bounds the concurrent tasks of each kind. A slow receiver occupies a local
// activity's slot for a second at most, so the bound is never reached in practice.
const slots = 4000

// cachedWorkflows bounds the workflows that are kept in memory between two workflow tasks,
// about 60 KB each. The SDK's default of 10,000 would fill with deliveries that wait for
// hours. A workflow outside the cache is replayed from its history.
const cachedWorkflows = 1000

// StopTimeout bounds the wait of a stopping worker for tasks under way: an attempt's
// deadline and 2 s to record it.
const StopTimeout = webhook.MaxTimeout + 2*time.Second

// Worker is the worker of a process.
type Worker struct {
	worker sdk.Worker
}

// Deployment is the name of the worker deployment; its versions are the releases.
const Deployment = "everpost"

// Options say how a worker runs.
type Options struct {
	// Version is the release, which versions the worker. "" is a worker without a version.
	Version string
	// Fatal is called when the worker ends by itself, for example because its namespace does not exist.
	Fatal func(error)
	// Interceptors are called for each task; see Spans.
	Interceptors []interceptor.WorkerInterceptor
}

// deployment is the versioning of a worker. Workflows go on under the current version, whichever began them: they live
// for as long as dead letters do, too long to keep old workers for them.
func (o Options) deployment() sdk.DeploymentOptions {
	if o.Version == "" {
		return sdk.DeploymentOptions{}
	}
	return sdk.DeploymentOptions{
		UseVersioning: true, Version: sdk.WorkerDeploymentVersion{DeploymentName: Deployment, BuildID: o.Version},
		DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
	}
}

// Start starts a worker. Eager workflow starts require the client that starts the workflows.
func Start(c client.Client, a *activities.Activities, o Options) (*Worker, error) {
	return StartWith(c, func(r Registry) { Register(r, a) }, o)
}

// StartWith is Start with other registrations; a test registers those of another release.
func StartWith(c client.Client, register func(Registry), o Options) (*Worker, error) {
	sdk.SetStickyWorkflowCacheSize(cachedWorkflows)
	w := sdk.New(c, workflows.TaskQueue, sdk.Options{
		MaxConcurrentWorkflowTaskExecutionSize:  slots,
		MaxConcurrentLocalActivityExecutionSize: slots,
		MaxConcurrentActivityExecutionSize:      slots,
		WorkflowTaskPollerBehavior:              sdk.NewPollerBehaviorAutoscaling(sdk.PollerBehaviorAutoscalingOptions{}),
		ActivityTaskPollerBehavior:              sdk.NewPollerBehaviorAutoscaling(sdk.PollerBehaviorAutoscalingOptions{}),
		// On a busy machine a workflow task may run for longer than the default of 1 s
		// without a deadlock.
		DeadlockDetectionTimeout: 10 * time.Second,
		WorkerStopTimeout:        StopTimeout,
		OnFatalError:             o.Fatal,
		Interceptors:             o.Interceptors,
		DeploymentOptions:        o.deployment(),
	})
	register(w)
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("start the worker of %s: %w", workflows.TaskQueue, err)
	}
	return &Worker{w}, nil
}

// Registry registers workflows and activities: a worker or a test environment.
type Registry interface {
	RegisterWorkflow(w any)
	RegisterActivity(a any)
}

// Register registers all workflows and activities.
func Register(r Registry, a *activities.Activities) {
	r.RegisterWorkflow(workflows.DeliveryWorkflow)
	r.RegisterWorkflow(workflows.DeadLetterWorkflow)
	r.RegisterWorkflow(workflows.ReplayWorkflow)
	r.RegisterWorkflow(workflows.TenantDeletionWorkflow)
	r.RegisterWorkflow(workflows.ProbeWorkflow)
	r.RegisterActivity(a.Attempts.Attempts)
	r.RegisterActivity(a.Steps.RecordSteps)
	r.RegisterActivity(a.DeadLetters.Keep)
	r.RegisterActivity(a.DeadLetters.Reopen)
	r.RegisterActivity(a.DeadLetters.Look)
	r.RegisterActivity(a.DeadLetters.KeepFor)
	r.RegisterActivity(a.Replays.ReleaseReplay)
	r.RegisterActivity(a.Replays.CountReplay)
	r.RegisterActivity(a.Replays.RecordReplay)
	r.RegisterActivity(a.RefusedSignals.RecordRefusedSignals)
	r.RegisterActivity(a.TenantDeletions.EraseTenantRows)
	r.RegisterActivity(a.TenantDeletions.EraseTenantWorkflows)
	r.RegisterActivity(a.TenantDeletions.CompleteTenantDeletion)
}

// Inputs has a value of the type of each input of the workflows and activities, without those that are only a text: a tenant's id. The
// store knows which tenants are being deleted.
func Inputs() []any {
	return []any{
		workflows.DeliveryInput{}, workflows.DeadLetterInput{}, workflows.ReplayInput{}, workflows.TenantDeletionInput{},
		[]activities.AttemptInput{}, []webhook.Step{}, activities.Keeping{}, []activities.Reopening{},
		activities.Batch{}, webhook.ReplayID{}, webhook.ReplayStep{}, webhook.RefusedSignals{},
	}
}

// Stop stops polling for tasks and waits up to StopTimeout for those under way.
func (w *Worker) Stop() { w.worker.Stop() }
