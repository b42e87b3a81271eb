package engine

import (
	"slices"

	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// traceStart begins the spans of a workflow's start, and returns the deliveries with their traces below
// them. Deliveries of one trace share a span; one that the relay has found begins a new trace. end ends
// the spans.
func traceStart(tracer *tracing.Tracer, workflowID string, group []webhook.Start) (traced []webhook.Start, end func(error)) {
	if tracer == nil {
		return group, func(error) {}
	}
	traced = slices.Clone(group)
	var begun []*tracing.Span
	byParent := map[webhook.Trace]*tracing.Span{}
	for i := range traced {
		parent := traced[i].Trace
		span := byParent[parent]
		if span == nil {
			span = tracer.Start(parent, "start workflow")
			span.Text("everpost.workflow.id", workflowID)
			span.Number("everpost.workflow.deliveries", len(group))
			if begun = append(begun, span); parent != "" {
				byParent[parent] = span
			}
		}
		traced[i].Trace = span.Trace()
	}
	return traced, func(err error) {
		for _, span := range begun {
			span.End(err)
		}
	}
}
