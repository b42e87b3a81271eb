// Package tracing makes the spans of a process and sends them to an OpenTelemetry collector, by OTLP
// over HTTP. A nil Tracer and a nil Span do nothing and allocate nothing: tracing that is off costs
// nothing.
//
// Attributes hold ids, numbers, states and host names: never a payload, a header or a URL.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// scope names the instrumentation.
	scope = "github.com/everpost/everpost"
	// serviceName applies unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has another.
	serviceName = "everpost"
	// flushTime bounds what Stop waits for the spans that are still to be sent.
	flushTime = 2 * time.Second
)

// Config configures a Tracer. Where spans go and which are sampled is read by the SDK from its own
// variables: OTEL_EXPORTER_OTLP_…, OTEL_TRACES_SAMPLER, OTEL_BSP_…, OTEL_RESOURCE_ATTRIBUTES.
type Config struct {
	Version string
	// Logger gets a warning when the collector does not take spans.
	Logger *slog.Logger
	// URL is the collector's address, for tests. Defaults to the SDK's variables.
	URL string
}

// Tracer makes spans. Nil makes none.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// New returns a Tracer that sends in the background. It does not wait for the collector. An error
// means that the SDK's variables cannot be used.
func New(ctx context.Context, c Config) (*Tracer, error) {
	from, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", serviceName), attribute.String("service.version", c.Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	var options []otlptracehttp.Option
	if c.URL != "" {
		options = append(options, otlptracehttp.WithEndpointURL(c.URL))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("open the OTLP exporter: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(from), sdktrace.WithIDGenerator(idGenerator{}), sdktrace.WithBatcher(&loggingExporter{SpanExporter: exporter, log: c.Logger}),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(c.Version))}, nil
}

// Stop sends the spans that have ended, for 2 s at most, and ends the Tracer.
func (t *Tracer) Stop(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what is not sent by then is lost, as if the collector was away
}

// Request makes the span of an authenticated request to the API, which began at a time. It is below that of the
// caller if it has sent a traceparent. The name of a span is the method and the route.
func (t *Tracer) Request(ctx context.Context, header http.Header, name string, began time.Time) *Span {
	if t == nil {
		return nil
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
	_, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(began))
	return &Span{span: span}
}

// Stranger is Request for a caller that is not authenticated. It begins a trace, with a link to the caller's.
func (t *Tracer) Stranger(header http.Header, name string, began time.Time) *Span {
	if t == nil {
		return nil
	}
	ctx := context.Background()
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(began)}
	if from := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))); from.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	_, span := t.tracer.Start(ctx, name, options...)
	return &Span{span: span}
}

// Start begins a span below parent. Without a parent it begins a new trace.
func (t *Tracer) Start(parent webhook.Trace, name string) *Span {
	if t == nil {
		return nil
	}
	_, span := t.tracer.Start(contextOf(parent), name)
	return &Span{span: span}
}

// WorkflowRun is what one run of a workflow did for a delivery.
type WorkflowRun struct {
	Type       string
	WorkflowID string
	RunID      string
	Began      time.Time
	Ended      time.Time
	Err        error

	Ref   webhook.Ref
	Trace webhook.Trace // of the run's input
}

// Workflow makes the span of a workflow's run, below that of its start. Its id is the one that
// webhook.Trace.InRun gives to the spans below it.
func (t *Tracer) Workflow(run *WorkflowRun) {
	if t == nil || run.Trace == "" {
		return
	}
	id := trace.SpanContextFromContext(contextOf(run.Trace.InRun(run.RunID, run.Ref.DeliveryID))).SpanID()
	_, span := t.tracer.Start(withSpanID(contextOf(run.Trace), id), "workflow", trace.WithTimestamp(run.Began))
	s := &Span{span: span}
	s.Delivery(run.Ref)
	s.Text("everpost.workflow.type", run.Type)
	s.Text("everpost.workflow.id", run.WorkflowID)
	s.fail(run.Err)
	span.End(trace.WithTimestamp(run.Ended))
}

// contextOf is a context with a span of another process, or of this one, as the parent.
func contextOf(parent webhook.Trace) context.Context {
	if parent == "" {
		return context.Background()
	}
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{headerName: string(parent)})
}

// headerName is the header field of W3C Trace Context.
const headerName = "traceparent"
