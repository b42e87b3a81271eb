package tracing_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A caller that is not authenticated decides neither the trace nor whether it is sampled.
func TestStrangers(t *testing.T) {
	t.Parallel()
	tracer, collector := setup(t)
	const theirs = "4bf92f3577b34da6a3ce929d0e0e4736"
	began := time.Now().Add(-time.Second)
	for _, sampled := range []string{"00", "01"} {
		tracer.Stranger(http.Header{"Traceparent": {"00-" + theirs + "-00f067aa0ba902b7-" + sampled}}, "linked", began).End(nil)
	}
	tracer.Stranger(http.Header{"Traceparent": {"rubbish"}}, "alone", began).End(nil)
	tracer.Stop(t.Context())
	linked := collector.Spans("linked")
	require.Len(t, linked, 2)
	for _, span := range linked {
		require.Empty(t, span.ParentID)
		require.NotEqual(t, theirs, span.TraceID)
		require.Equal(t, []string{theirs}, span.Links)
		require.WithinDuration(t, began, span.Began, time.Millisecond)
	}
	require.Empty(t, collector.Spans("alone")[0].Links)
}
