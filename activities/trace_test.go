package activities_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/tracing/tracingtest"
	"github.com/everpost/everpost/internal/webhook"
)

// An attempt and its request have spans. A receiver gets a traceparent if its endpoint asks for one, and
// that is recorded with what was sent. No span has the URL, a header field or the payload.
func TestAttemptsAreTraced(t *testing.T) {
	t.Parallel()
	b, collector := setup(t), tracingtest.New(t)
	tracer, err := tracing.New(t.Context(), tracing.Config{Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), URL: collector.URL() + "/v1/traces"})
	require.NoError(t, err)
	b.Script("/hook", receivertest.Step{Status: 503, Body: "canary-answer"})
	p := b.process(t, func(c *activities.Config) { c.Tracer = tracer })
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	_, in := b.event(t)
	in.Trace = "00-" + trace + "-00f067aa0ba902b7-01"
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Empty(t, b.Requests()[0].Header.Values("traceparent"), "unless the endpoint asks for it")

	b.update(t, func(e *webhook.Endpoint) {
		e.TraceContext = true
		e.Headers = map[string]string{"Traceparent": "canary-own"}
	})
	p.record.Endpoints.Cache().ForgetAll()
	in.Progress, in.DueAt = got.Progress, time.Time{}
	_, err = p.attempt(in)
	require.NoError(t, err)
	tracer.Stop(t.Context())

	attempts, posts := collector.Await(t, trace, "attempt", 2), collector.Await(t, trace, "POST", 2)
	require.Equal(t, attempts[1].SpanID, posts[1].ParentID)
	require.Equal(t, []string{"2", "delivered", in.DeliveryID.String()}, []string{
		attempts[1].Attributes["everpost.attempt.number"], attempts[1].Attributes["everpost.state"], attempts[1].Attributes["everpost.delivery.id"],
	})
	require.Equal(t, []string{"503", "http_503", "127.0.0.1"}, []string{
		posts[0].Attributes["http.response.status_code"], posts[0].Attributes["everpost.reason"], posts[0].Attributes["server.address"],
	})
	require.Equal(t, "retrying", attempts[0].Attributes["everpost.state"])
	require.True(t, posts[0].Failed)
	want := "00-" + trace + "-" + posts[1].SpanID + "-01"
	require.Equal(t, []string{want}, b.Requests()[1].Header.Values("traceparent"), "in place of its own")
	require.Equal(t, want, b.attempts(t, in)[0].RequestHeaders["traceparent"])
	for _, secret := range []string{"canary", secret, "order\": 17"} {
		require.NotContains(t, collector.Raw(), secret)
	}
}
