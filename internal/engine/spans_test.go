package engine

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/tracing/tracingtest"
	"github.com/everpost/everpost/internal/webhook"
)

// A start that several requests share has a span in the trace of each, and one for each delivery that
// the relay has found.
func TestStartsAreTraced(t *testing.T) {
	t.Parallel()
	collector := tracingtest.New(t)
	tracer, err := tracing.New(t.Context(), tracing.Config{Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), URL: collector.URL() + "/v1/traces"})
	require.NoError(t, err)
	d := New(Config{Tracer: tracer, Logger: slog.New(slog.DiscardHandler)})
	one := webhook.Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	other := webhook.Trace("00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-00f067aa0ba902b7-01")
	group := []webhook.Start{{Trace: one}, {Trace: other}, {}, {Trace: one}, {}}

	traced, end := traceStart(d.Workflows.tracer, "fanout/x", group)
	require.Len(t, traced, 5)
	require.Equal(t, traced[0].Trace, traced[3].Trace)
	require.Equal(t, one, group[0].Trace, "the caller's is not changed")
	distinct := map[webhook.Trace]bool{}
	for _, start := range traced {
		require.Len(t, start.Trace, 55)
		distinct[start.Trace] = true
	}
	require.Len(t, distinct, 4)
	end(errors.New("canary"))
	tracer.Stop(t.Context())

	spans := collector.Spans("start workflow")
	require.Len(t, spans, 4)
	roots := 0
	for _, span := range spans {
		require.Equal(t, "fanout/x", span.Attributes["everpost.workflow.id"])
		require.Equal(t, "5", span.Attributes["everpost.workflow.deliveries"])
		require.True(t, span.Failed)
		if span.ParentID == "" {
			roots++
		}
	}
	require.Equal(t, 2, roots)
	require.NotContains(t, collector.Raw(), "canary")

	d.Workflows.tracer = nil
	same, end := traceStart(d.Workflows.tracer, "fanout/x", group)
	end(nil)
	require.Equal(t, group, same)
}
