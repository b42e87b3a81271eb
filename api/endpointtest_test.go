package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func (m *memory) TestEndpoint(ctx context.Context, by webhook.Actor, tenant string, id webhook.EndpointID, eventType string, payload []byte,
) (webhook.Attempt, error) {
	unlock := m.lock()
	_, err := m.endpoint(tenant, id)
	m.actors = append(m.actors, by)
	test := m.test
	unlock()
	if err != nil || test == nil {
		return webhook.Attempt{}, err
	}
	return test(ctx, eventType, payload)
}

func TestTestEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/v1/tenants/acme/endpoints/" + b.endpoint(t) + "/test"
	var got []string
	b.test = func(_ context.Context, eventType string, payload []byte) (webhook.Attempt, error) {
		got = append(got, eventType+" "+string(payload))
		return webhook.Attempt{
			StartedAt: testNow(), Latency: 41 * time.Millisecond, ResponseBody: []byte("busy"), Truncated: true,
			RequestHeaders:  map[string]string{"webhook-id": "evt_1"},
			ResponseHeaders: map[string][]string{"Retry-After": {"30"}},
			Outcome:         retry.Outcome{Decision: retry.Retry, Reason: "http_503", Status: 503, RetryAfter: 30 * time.Second},
		}, nil
	}
	a := b.ok(t, http.StatusOK, "admin", "POST", path, "")
	require.Equal(t, map[string]any{
		"number": 0.0, "run": nil, "started_at": "2026-01-31T09:30:00.123456Z", "latency_ms": 41.0, "times": nil, "waited_for": nil, "late_ms": nil,
		"status": 503.0, "decision": "retry",
		"reason": "http_503", "error": nil, "retry_after_ms": 30_000.0, "delay_ms": nil, "delay_source": nil,
		"request_headers": map[string]any{"webhook-id": "evt_1"}, "response_headers": map[string]any{"Retry-After": "30"},
		"response_body": "busy", "response_truncated": true,
	}, a.json)
	for _, body := range []string{
		`{}`, `{"type":null}`, `{"type":"order.paid"}`, `{"payload":[1.0, "\u00e9"] }`, `{"payload":null,"type":"everpost.endpoint.disabled"}`,
	} {
		b.ok(t, http.StatusOK, "admin", "POST", path, body)
	}
	require.Equal(t, []string{
		`everpost.test {"test":true}`, `everpost.test {"test":true}`, `everpost.test {"test":true}`, `order.paid {"test":true}`,
		`everpost.test [1.0, "\u00e9"]`, `everpost.endpoint.disabled null`,
	}, got)
	require.Equal(t, "req-1", b.actors[len(b.actors)-1].RequestID, "the request id is passed on, for the audit log")

	b.refused(t, "admin", "POST", path, `{"type":"No Type"}`, "type", notAType)
	b.refused(t, "admin", "POST", path, `{"typ":"a"}`, "typ", "is not a known field")
	b.ok(t, http.StatusRequestEntityTooLarge, "admin", "POST", path, `{"payload":"`+strings.Repeat("x", webhook.DefaultMaxPayload-1)+`"}`)
	require.Len(t, got, 6)

	b.test = func(context.Context, string, []byte) (webhook.Attempt, error) {
		return webhook.Attempt{}, &webhook.Error{Code: webhook.CodeRateLimited, Message: "this endpoint is being tested already", RetryAfter: 5 * time.Second}
	}
	a = b.ok(t, http.StatusTooManyRequests, "admin", "POST", path, "")
	require.Equal(t, "5", a.Header.Get("Retry-After"))
	require.Equal(t, "this endpoint is being tested already", a.json["detail"])
}

// A test may take longer than the server's limit for other requests, and ends when its client
// disconnects.
func TestTestOutlastsTheServersLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/v1/tenants/acme/endpoints/" + b.endpoint(t) + "/test"
	server := b.server.HTTPServer(b.server.Handler())
	server.ReadTimeout, server.WriteTimeout = 200*time.Millisecond, 300*time.Millisecond
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(ctx context.Context) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+listener.Addr().String()+path, strings.NewReader(`{"type":"a"}`))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+b.keys["admin"])
		return client.Do(r)
	}

	b.test = func(ctx context.Context, _ string, _ []byte) (webhook.Attempt, error) {
		select {
		case <-ctx.Done():
			return webhook.Attempt{}, ctx.Err()
		case <-time.After(3 * server.WriteTimeout):
			return webhook.Attempt{Outcome: retry.Outcome{Decision: retry.Delivered, Reason: "delivered", Status: 200}}, nil
		}
	}
	response, err := ask(t.Context())
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, string(text))

	began, ended := make(chan struct{}), make(chan struct{})
	b.test = func(ctx context.Context, _ string, _ []byte) (webhook.Attempt, error) {
		close(began)
		<-ctx.Done()
		close(ended)
		return webhook.Attempt{}, ctx.Err()
	}
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-began
		leave()
	}()
	_, err = ask(ctx)
	require.ErrorIs(t, err, context.Canceled)
	<-ended
}

// The longest test fits into testTime, with time to read and to respond.
func TestTestTime(t *testing.T) {
	t.Parallel()
	require.Greater(t, testTime, webhook.MaxTimeout+10*time.Second)
}
