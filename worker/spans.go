package worker

import (
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// Spans returns an interceptor that makes a span of each run of a DeliveryWorkflow
// when the run ends, for each of its deliveries that has a trace. A run that is terminated has none.
func Spans(t *tracing.Tracer) interceptor.WorkerInterceptor { return &spans{tracer: t} }

type spans struct {
	interceptor.WorkerInterceptorBase

	tracer *tracing.Tracer
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (s *spans) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &runSpans{interceptor.WorkflowInboundInterceptorBase{Next: next}, s.tracer}
}

type runSpans struct {
	interceptor.WorkflowInboundInterceptorBase

	tracer *tracing.Tracer
}

// ExecuteWorkflow implements interceptor.WorkflowInboundInterceptor. It does nothing when a workflow
// leaves the cache, which ends its goroutine without a return, and nothing in a replay.
func (s *runSpans) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	result, err := s.Next.ExecuteWorkflow(ctx, in)
	if workflow.IsReplaying(ctx) || len(in.Args) != 1 {
		return result, err
	}
	info := workflow.GetInfo(ctx)
	run := tracing.WorkflowRun{
		Type: info.WorkflowType.Name, WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID,
		Began: info.WorkflowStartTime, Ended: workflow.Now(ctx),
	}
	if !workflow.IsContinueAsNewError(err) {
		run.Err = err
	}
	eachTraced(in.Args[0], func(ref webhook.Ref, trace webhook.Trace) {
		run.Ref, run.Trace = ref, trace
		s.tracer.Workflow(&run)
	})
	return result, err
}

// eachTraced visits the deliveries of a workflow's input that have a trace.
func eachTraced(input any, visit func(webhook.Ref, webhook.Trace)) {
	in, ok := input.(workflows.DeliveryInput)
	if !ok {
		return
	}
	for _, m := range in.Members {
		if m != nil && m.Trace != "" {
			visit(m.Ref, m.Trace)
		}
	}
}
