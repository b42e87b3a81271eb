package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// tellTimeout bounds a signal that need not arrive.
const tellTimeout = time.Second

// Workflows makes single calls about the workflows of deliveries: it starts, signals, inspects and ends them.
type Workflows struct {
	client      client.Client
	converter   converter.DataConverter
	tracer      *tracing.Tracer // nil without traces
	log         *slog.Logger
	maxEventIDs int
	eager       bool // a worker of this process may get the first task with the answer
}

func newWorkflows(c *Config) *Workflows {
	return &Workflows{
		client: c.Client, converter: c.Converter, tracer: c.Tracer, log: c.Logger, maxEventIDs: c.MaxEventIDs, eager: c.LocalWorker,
	}
}

const (
	// startOnce refuses the start if there is a workflow of the id, running or closed.
	startOnce = enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE
	// startAgain refuses it only while one is running: a workflow that has closed may be followed by another.
	startAgain = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
)

// options are the options of every start.
func (w *Workflows) options(id string, reuse enumspb.WorkflowIdReusePolicy) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID: id, TaskQueue: workflows.TaskQueue,
		WorkflowIDReusePolicy:                    reuse,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		EnableEagerStart:                         w.eager,
	}
}

// ownOptions are the options of the own workflow of a delivery's run.
func (w *Workflows) ownOptions(ref webhook.Ref, run int, reuse enumspb.WorkflowIdReusePolicy) client.StartWorkflowOptions {
	options := w.options(ref.WorkflowID(run), reuse)
	options.TypedSearchAttributes = workflows.SearchAttributes(ref)
	options.StaticSummary = workflows.Summary([]webhook.Ref{ref})
	return options
}

// startShared starts the shared workflow of several deliveries. serviceerror.WorkflowExecutionAlreadyStarted: there is or was one of
// the id.
func (w *Workflows) startShared(ctx context.Context, id string, group []webhook.Start) (err error) {
	group, end := traceStart(w.tracer, id, group)
	defer func() { end(ignoreAlreadyStarted(err)) }()
	options := w.options(id, startOnce)
	refs := refsOf(group)
	options.TypedSearchAttributes = workflows.SharedAttributes(refs, w.maxEventIDs)
	options.StaticSummary = workflows.Summary(refs)
	_, err = w.client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, workflows.InputOf(group...))
	return err //nolint:wrapcheck // classify handles it
}

func refsOf(starts []webhook.Start) []webhook.Ref {
	refs := make([]webhook.Ref, len(starts))
	for i := range starts {
		refs[i] = starts[i].Ref
	}
	return refs
}

// ignoreAlreadyStarted returns the error of a start, but none if the workflow was started before.
func ignoreAlreadyStarted(err error) error {
	if _, already := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); already {
		return nil
	}
	return err
}

// signal sends the signal of a command for a run of a delivery to a workflow; without a command it does nothing.
func (w *Workflows) signal(ctx context.Context, id string, of webhook.Ref, run int, c webhook.PendingCommand) error {
	switch c.Command {
	case webhook.CommandNone:
		return nil
	case webhook.CommandReplay: // by hand; it opens the next run, whichever that is
		run = 0
	case webhook.CommandCancel, webhook.CommandRetry, webhook.CommandReschedule, webhook.CommandDiscard:
	}
	signal := workflows.CommandSignal{CommandID: c.ID, Reason: c.Reason, Run: run, At: c.At, DeliveryID: of.DeliveryID}
	return w.client.SignalWorkflow(ctx, id, "", workflows.SignalName(c.Command), signal) //nolint:wrapcheck // classify handles it
}

// endEarlierRuns signals to the workflows that keep the dead letters of the runs before that other ones have been started, in the workflow
// of the id: one signal to each. It does so once: a workflow that does not get the signal finds out from the store.
func (w *Workflows) endEarlierRuns(ctx context.Context, id string, started []webhook.Start) {
	opened := map[string][]workflows.OpenedRun{}
	for i := range started {
		if start := &started[i]; start.Earlier != "" && start.Relayed <= 1 {
			opened[start.Earlier] = append(opened[start.Earlier], workflows.OpenedRun{DeliveryID: start.DeliveryID, Run: start.Run, WorkflowID: id})
		}
	}
	ForEach(ConcurrentStarts, slices.Collect(maps.Keys(opened)), func(keeper string) {
		ctx, cancel := context.WithTimeout(ctx, tellTimeout)
		defer cancel()
		err := w.client.SignalWorkflow(ctx, keeper, "", workflows.SignalReplay, workflows.CommandSignal{Opened: opened[keeper]})
		if err != nil && !isGone(err) {
			w.log.DebugContext(ctx, "the workflow of replayed dead letters could not be told", "workflow", keeper, "error", err)
		}
	})
}
