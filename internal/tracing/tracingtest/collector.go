// Package tracingtest has a collector for tests: it takes spans by OTLP over HTTP, as a real one does,
// and keeps them.
package tracingtest

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	patience = 30 * time.Second
	poll     = 20 * time.Millisecond
	// maxBytes bounds one request of an exporter.
	maxBytes = 16 << 20
)

// Span is a span that has arrived. Ids are hexadecimal; ParentID is "" for a root.
type Span struct {
	Name, TraceID, SpanID, ParentID string

	Kind       tracepb.Span_SpanKind
	Failed     bool
	Began      time.Time
	Ended      time.Time
	Attributes map[string]string
	Links      []string // the traces that it links to
	Service    string   // of the resource
}

// Collector is a running collector.
type Collector struct {
	server *httptest.Server

	mu    sync.Mutex
	spans []Span
	raw   bytes.Buffer // all that has arrived
}

// New returns a collector that ends with the test.
func New(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{}
	c.server = httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(c.server.Close)
	return c
}

// URL is for OTEL_EXPORTER_OTLP_ENDPOINT. Spans go to /v1/traces below it.
func (c *Collector) URL() string { return c.server.URL }

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	var request collectorpb.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "not a request of an exporter", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(body)
	for _, resource := range request.GetResourceSpans() {
		service := attributes(resource.GetResource().GetAttributes())["service.name"]
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, spanOf(span, service))
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func spanOf(s *tracepb.Span, service string) Span {
	var links []string
	for _, link := range s.GetLinks() {
		links = append(links, hex.EncodeToString(link.GetTraceId()))
	}
	return Span{
		Name: s.GetName(), TraceID: hex.EncodeToString(s.GetTraceId()), SpanID: hex.EncodeToString(s.GetSpanId()),
		ParentID: hex.EncodeToString(s.GetParentSpanId()), Kind: s.GetKind(), Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
		Began: time.Unix(0, int64(s.GetStartTimeUnixNano())), Ended: time.Unix(0, int64(s.GetEndTimeUnixNano())), //nolint:gosec // until 2262
		Attributes: attributes(s.GetAttributes()), Links: links, Service: service,
	}
}

func attributes(all []*commonpb.KeyValue) map[string]string {
	texts := make(map[string]string, len(all))
	for _, a := range all {
		switch value := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			texts[a.GetKey()] = value.StringValue
		default:
			texts[a.GetKey()] = strconv.FormatInt(a.GetValue().GetIntValue(), 10)
		}
	}
	return texts
}

// Spans are those that have arrived with a name; all for "".
func (c *Collector) Spans(name string) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s Span) bool { return name != "" && s.Name != name })
}

// Raw is all that has arrived, as it came.
func (c *Collector) Raw() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

// Await waits until a trace has n spans of a name, and returns them in the order of their beginnings.
func (c *Collector) Await(t *testing.T, traceID, name string, n int) []Span {
	t.Helper()
	var found []Span
	require.Eventually(t, func() bool {
		found = slices.DeleteFunc(c.Spans(name), func(s Span) bool { return s.TraceID != traceID })
		return len(found) >= n
	}, patience, poll, "the trace %s has no %d spans %q", traceID, n, name)
	slices.SortFunc(found, func(a, b Span) int { return a.Began.Compare(b.Began) })
	return found
}
