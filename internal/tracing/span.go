package tracing

import (
	"context"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Span is a span that has begun. A nil Span does nothing.
type Span struct{ span trace.Span }

// Below begins a span below the one that the context has, and returns a context with it. Without one
// it returns the context and nil.
func Below(ctx context.Context, name string) (context.Context, *Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() {
		return ctx, nil
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name)
	return ctx, &Span{span: span}
}

// Receiver begins the span of a request to a receiver, below the one that the context has. Of the URL
// it has host and port only.
func Receiver(ctx context.Context, address string) *Span {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() {
		return nil
	}
	_, span := parent.TracerProvider().Tracer(scope).Start(ctx, "POST", trace.WithSpanKind(trace.SpanKindClient))
	s := &Span{span: span}
	s.Text("http.request.method", "POST")
	if u, err := url.Parse(address); err == nil {
		s.Text("server.address", u.Hostname())
		if port, err := strconv.Atoi(u.Port()); err == nil {
			s.Number("server.port", port)
		}
	}
	return s
}

// Of returns the trace of the context's span; "" without one.
func Of(ctx context.Context) webhook.Trace {
	return traceOf(trace.SpanContextFromContext(ctx))
}

// traceOf returns a span's place as a traceparent (W3C Trace Context, section 3.2).
func traceOf(sc trace.SpanContext) webhook.Trace {
	if !sc.IsValid() {
		return ""
	}
	return webhook.Trace("00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + (sc.TraceFlags() & trace.FlagsSampled).String())
}

// In returns a context with the span.
func (s *Span) In(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// Trace returns the trace for spans below this one; "" of a nil Span.
func (s *Span) Trace() webhook.Trace {
	if s == nil {
		return ""
	}
	return traceOf(s.span.SpanContext())
}

// Text sets an attribute.
func (s *Span) Text(name, value string) {
	if s != nil && s.span.IsRecording() {
		s.span.SetAttributes(attribute.String(name, value))
	}
}

// Number sets an attribute.
func (s *Span) Number(name string, value int) {
	if s != nil && s.span.IsRecording() {
		s.span.SetAttributes(attribute.Int(name, value))
	}
}

// Delivery sets the ids of a delivery.
func (s *Span) Delivery(ref webhook.Ref) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	s.span.SetAttributes(
		attribute.String("everpost.tenant", ref.TenantID), attribute.String("everpost.event.id", ref.EventID.String()),
		attribute.String("everpost.event.type", ref.EventType), attribute.String("everpost.endpoint.id", ref.EndpointID.String()),
		attribute.String("everpost.delivery.id", ref.DeliveryID.String()),
	)
}

// Outcome sets the outcome of a request to a receiver. The span is an error unless it was delivered.
func (s *Span) Outcome(o retry.Outcome) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	s.span.SetAttributes(attribute.String("everpost.decision", o.Decision.String()), attribute.String("everpost.reason", string(o.Reason)))
	if o.Status != 0 {
		s.span.SetAttributes(attribute.Int("http.response.status_code", o.Status))
	}
	if o.Decision != retry.Delivered {
		s.span.SetAttributes(attribute.String("error.type", string(o.Reason)))
		s.span.SetStatus(codes.Error, string(o.Reason))
	}
}

// Answered sets the status of the API's answer. Only a 5xx makes the span of a server an error.
func (s *Span) Answered(status int) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	s.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= 500 {
		s.span.SetStatus(codes.Error, "")
	}
}

// End ends the span. An error makes it an error. The text of an error may hold data of a tenant, so
// the span has its kind only.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	s.fail(err)
	s.span.End()
}

func (s *Span) fail(err error) {
	if err == nil || !s.span.IsRecording() {
		return
	}
	kind := webhook.CodeOf(err).String()
	s.span.SetAttributes(attribute.String("error.type", kind))
	s.span.SetStatus(codes.Error, kind)
}
