package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/tracing/tracingtest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func setup(t *testing.T) (*tracing.Tracer, *tracingtest.Collector) {
	t.Helper()
	c := tracingtest.New(t)
	tracer, err := tracing.New(t.Context(), tracing.Config{Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), URL: c.URL() + "/v1/traces"})
	require.NoError(t, err)
	t.Cleanup(func() { tracer.Stop(context.WithoutCancel(t.Context())) })
	return tracer, c
}

func ref() webhook.Ref {
	event, endpoint := webhook.NewEventID(), webhook.NewEndpointID()
	return webhook.Ref{DeliveryID: webhook.DeliveryIDOf(event, endpoint), EventID: event, EndpointID: endpoint, TenantID: "acme", EventType: "order.paid"}
}

// The spans of a delivery are one trace, below the caller's, although workflow and attempts know no
// more of each other than a text.
func TestTraceOfADelivery(t *testing.T) {
	t.Parallel()
	tracer, collector := setup(t)
	const caller, callerSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	delivery := ref()

	request := tracer.Request(t.Context(), http.Header{"Traceparent": {"00-" + caller + "-" + callerSpan + "-01"}}, "POST /v1/events", time.Now())
	ctx, commit := tracing.Below(request.In(t.Context()), "commit events")
	require.NotEqual(t, tracing.Of(ctx), request.Trace())
	commit.End(nil)
	request.Answered(http.StatusAccepted)
	start := tracer.Start(tracing.Of(request.In(t.Context())), "start workflow")
	attempt := tracer.Start(start.Trace().InRun("run", delivery.DeliveryID), "attempt")
	attempt.Delivery(delivery)
	attempt.Number("everpost.attempt.number", 1)
	sent := tracing.Receiver(attempt.In(t.Context()), "https://user:canary@receiver.example:8443/canary?token=canary#canary")
	receivers := sent.Trace()
	sent.Outcome(retry.Outcome{Decision: retry.Retry, Reason: "http_503", Status: 503})
	sent.End(nil)
	attempt.End(errors.New("canary"))
	start.End(nil)
	request.End(nil)
	tracer.Workflow(&tracing.WorkflowRun{
		Type: "DeliveryWorkflow", WorkflowID: delivery.WorkflowID(1), RunID: "run", Began: time.Now().Add(-time.Hour), Ended: time.Now(),
		Ref: delivery, Trace: start.Trace(),
	})
	tracer.Stop(t.Context())

	span := func(name string) tracingtest.Span {
		t.Helper()
		return collector.Await(t, caller, name, 1)[0]
	}
	api := span("POST /v1/events")
	require.Equal(t, []any{callerSpan, tracepb.Span_SPAN_KIND_SERVER, "everpost", "202"},
		[]any{api.ParentID, api.Kind, api.Service, api.Attributes["http.response.status_code"]})
	require.Equal(t, api.SpanID, span("commit events").ParentID)
	require.Equal(t, api.SpanID, span("start workflow").ParentID)
	workflow := span("workflow")
	require.Equal(t, span("start workflow").SpanID, workflow.ParentID)
	require.InDelta(t, time.Hour, workflow.Ended.Sub(workflow.Began), float64(time.Minute))
	require.Equal(t, workflow.SpanID, span("attempt").ParentID, "its id was known before it began")
	require.Equal(t, delivery.DeliveryID.String(), span("attempt").Attributes["everpost.delivery.id"])
	require.True(t, span("attempt").Failed)
	post := span("POST")
	require.Equal(t, span("attempt").SpanID, post.ParentID)
	require.Equal(t, webhook.Trace("00-"+caller+"-"+post.SpanID+"-01"), receivers)
	require.True(t, post.Failed)
	require.Equal(t, map[string]string{
		"http.request.method": "POST", "server.address": "receiver.example", "server.port": "8443", "http.response.status_code": "503",
		"everpost.decision": "retry", "everpost.reason": "http_503", "error.type": "http_503",
	}, post.Attributes, "of the URL no more than the host")
	require.NotContains(t, collector.Raw(), "canary", "neither a URL nor the text of an error")
}

// Without a parent, or with one that makes no sense, a trace begins.
func TestRoots(t *testing.T) {
	t.Parallel()
	tracer, collector := setup(t)
	roots := []*tracing.Span{
		tracer.Start("", "root"), tracer.Start("rubbish", "root"), tracer.Request(t.Context(), http.Header{"Traceparent": {"00-0-0-01"}}, "root", time.Now()),
	}
	for _, root := range roots {
		root.End(nil)
	}
	tracer.Workflow(&tracing.WorkflowRun{Type: "DeliveryWorkflow", Ref: ref()}) // of a delivery without a trace
	tracer.Stop(t.Context())
	all := collector.Spans("")
	require.Len(t, all, 3)
	seen := map[string]bool{}
	for _, span := range all {
		require.Empty(t, span.ParentID)
		require.False(t, seen[span.TraceID])
		seen[span.TraceID] = true
	}
}

// A caller that does not want its request to be traced decides for the delivery, too.
func TestNotSampled(t *testing.T) {
	t.Parallel()
	tracer, collector := setup(t)
	request := tracer.Request(t.Context(), http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}}, "request", time.Now())
	require.Regexp(t, `^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-00$`, string(request.Trace()))
	attempt := tracer.Start(request.Trace(), "attempt")
	attempt.Delivery(ref())
	sent := tracing.Receiver(attempt.In(t.Context()), "https://receiver.example")
	require.NotNil(t, sent)
	sent.End(nil)
	attempt.End(nil)
	request.End(nil)
	tracer.Stop(t.Context())
	require.Empty(t, collector.Spans(""))
}

// Nothing of it costs anything while tracing is off.
func TestOffAllocatesNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts what others allocate, too
	var off *tracing.Tracer
	ctx, delivery, header, failed := t.Context(), ref(), http.Header{}, errors.New("x")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		span := off.Request(ctx, header, "request", time.Time{})
		in, below := tracing.Below(span.In(ctx), "below")
		below.End(failed)
		attempt := off.Start(span.Trace(), "attempt")
		attempt.Delivery(delivery)
		attempt.Number("n", 1)
		attempt.Text("t", "t")
		sent := tracing.Receiver(attempt.In(in), "https://receiver.example")
		sent.Outcome(retry.Outcome{})
		sent.End(nil)
		span.Answered(http.StatusOK)
		if tracing.Of(in) != "" || sent.Trace() != "" {
			t.Fail()
		}
	}))
	off.Workflow(&tracing.WorkflowRun{Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
	off.Stop(ctx)
}

// A collector that is away is logged once, and neither its address nor what is in it.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer refusing.Close()
	for name, url := range map[string]string{"refuses": refusing.URL + "/x?key=canary", "away": "http://user:canary@127.0.0.1:1"} {
		var log bytes.Buffer
		tracer, err := tracing.New(t.Context(), tracing.Config{Version: "1.2.3", Logger: slog.New(slog.NewTextHandler(&log, nil)), URL: url})
		require.NoError(t, err)
		for range 2 {
			tracer.Start("", "lost").End(nil)
			tracer.Flush(t.Context())
		}
		tracer.Stop(t.Context())
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("the collector does not take spans")), "%s: %s", name, log.String())
		require.NotContains(t, log.String(), "canary", name)
	}
}
