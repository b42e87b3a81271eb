package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// quietTime is the time between two log lines about a collector that does not take spans.
const quietTime = 5 * time.Minute

// loggingExporter logs what its exporter cannot send. The SDK would write it to standard error.
type loggingExporter struct {
	sdktrace.SpanExporter

	log *slog.Logger

	mu   sync.Mutex
	last time.Time // of the last log line
}

// ExportSpans implements sdktrace.SpanExporter. Spans that were not taken are lost, which is no error
// for their makers.
func (e *loggingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil && e.mayLog(time.Now()) {
		e.log.WarnContext(ctx, "the collector does not take spans; they are lost", "count", len(spans), "error", withoutURL(err))
	}
	return nil
}

func (e *loggingExporter) mayLog(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.last.IsZero() && now.Sub(e.last) < quietTime {
		return false
	}
	e.last = now
	return true
}

// withoutURL removes the collector's address from an error, which may contain credentials.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
