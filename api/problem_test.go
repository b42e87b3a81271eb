package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// The exact response for every code of the domain.
func TestEveryCodeHasItsProblem(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial tcp 10.0.0.1: canary")
	for _, c := range []struct {
		err    error
		status int
		want   string
		retry  string
	}{
		{
			errors.New("canary"), 500,
			`{"type":"https://everpost.dev/errors/internal","title":"Internal error","status":500,` +
				`"detail":"internal error; the server's log has the cause under the request id","request_id":"req-1","help":"/docs/errors#internal"}`,
			"",
		},
		{
			&webhook.Error{Code: webhook.CodeInternal, Message: "canary", Err: secret}, 500,
			`{"type":"https://everpost.dev/errors/internal","title":"Internal error","status":500,` +
				`"detail":"internal error; the server's log has the cause under the request id","request_id":"req-1","help":"/docs/errors#internal"}`,
			"",
		},
		{
			&webhook.Error{Code: webhook.CodeInvalid, Fields: []webhook.FieldError{
				{Field: "endpoint_ids[1]", Message: "does not exist"},
				{Field: "type", Message: "is bad"},
			}}, 400,
			`{"type":"https://everpost.dev/errors/validation","title":"The request is not valid","status":400,` +
				`"detail":"endpoint_ids[1]: does not exist (and 1 more)","request_id":"req-1","help":"/docs/errors#validation",` +
				`"errors":[{"field":"endpoint_ids[1]","message":"does not exist"},{"field":"type","message":"is bad"}]}`,
			"",
		},
		{
			&webhook.Error{Code: webhook.CodeNotFound, Message: "no such tenant acme in shard 3"}, 404,
			`{"type":"https://everpost.dev/errors/not-found","title":"Not found","status":404,` +
				`"detail":"no such tenant","request_id":"req-1","help":"/docs/errors#not-found"}`,
			"",
		},
		{
			&webhook.Error{Code: webhook.CodeConflict, Message: "the first request is still under way"}, 409,
			`{"type":"https://everpost.dev/errors/conflict","title":"Not possible in the present state","status":409,` +
				`"detail":"the first request is still under way","request_id":"req-1","help":"/docs/errors#conflict"}`,
			"",
		},
		{
			&webhook.Error{Code: webhook.CodeTooLarge, Message: "too much"}, 413,
			`{"type":"https://everpost.dev/errors/too-large","title":"The request is too large","status":413,` +
				`"detail":"too much","request_id":"req-1","help":"/docs/errors#too-large"}`,
			"",
		},
		{
			&webhook.Error{Code: webhook.CodeMismatch, Message: "this external_id came with another body"}, 422,
			`{"type":"https://everpost.dev/errors/idempotency-mismatch","title":"The key was used with another body","status":422,` +
				`"detail":"this external_id came with another body","request_id":"req-1","help":"/docs/errors#idempotency-mismatch"}`,
			"",
		},
		{
			&webhook.Error{Code: webhook.CodeRateLimited, Message: "over the tenant's rate", RetryAfter: 1500 * time.Millisecond}, 429,
			`{"type":"https://everpost.dev/errors/rate-limited","title":"Too many requests","status":429,` +
				`"detail":"over the tenant's rate","request_id":"req-1","help":"/docs/errors#rate-limited"}`,
			"2",
		},
		{
			&webhook.Error{Code: webhook.CodeUnavailable, Err: secret}, 503,
			`{"type":"https://everpost.dev/errors/unavailable","title":"Not available at the moment","status":503,` +
				`"detail":"not available at the moment","request_id":"req-1","help":"/docs/errors#unavailable"}`,
			"1",
		},
		{
			&webhook.Error{Code: webhook.CodeForbidden, Message: "no"}, 403,
			`{"type":"https://everpost.dev/errors/forbidden","title":"The API key may not do this","status":403,` +
				`"detail":"no","request_id":"req-1","help":"/docs/errors#forbidden"}`,
			"",
		},
		{
			&webhook.Error{Code: webhook.CodeUnauthenticated, Message: "no"}, 401,
			`{"type":"https://everpost.dev/errors/unauthenticated","title":"No valid API key","status":401,` +
				`"detail":"no","request_id":"req-1","help":"/docs/errors#unauthenticated"}`,
			"",
		},
	} {
		b := setup(t)
		b.broken = c.err
		as, path, body := "ingest", "/v1/tenants/acme/events", `{"type":"a","payload":1}`
		if c.status == http.StatusForbidden { // every key may post events
			as, path, body = "admin", "/v1/tenants/acme/endpoints", `{"url":"https://example.com"}`
		}
		a := b.ok(t, c.status, as, "POST", path, body)
		require.Equal(t, c.want, strings.TrimSpace(a.text))
		require.Equal(t, c.retry, a.Header.Get("Retry-After"))
		require.Equal(t, c.status == 500, strings.Contains(b.log.String(), "canary"), "only an internal error's cause is logged")
	}
}

func TestRouterProblems(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/", "/v1", "/v1/tenants/", "/v1/tenants/acme/nothing", "/v2/tenants", "/v1/tenants/acme/events/batch/x"} {
		a := b.ok(t, http.StatusNotFound, "admin", "GET", path, "")
		require.Equal(t, `{"type":"https://everpost.dev/errors/not-found","title":"Not found","status":404,"detail":"no such route",`+
			`"request_id":"req-1","help":"/docs/errors#not-found"}`, strings.TrimSpace(a.text))
	}
	a := b.ok(t, http.StatusMethodNotAllowed, "admin", "PUT", "/v1/tenants/acme/events", "")
	require.Equal(t, "GET, POST", a.Header.Get("Allow"))
	require.Equal(t, `{"type":"https://everpost.dev/errors/method-not-allowed","title":"The method is not allowed","status":405,`+
		`"detail":"this path does not support PUT","request_id":"req-1","help":"/docs/errors#method-not-allowed"}`, strings.TrimSpace(a.text))
}

func TestPanicIsAnsweredAndLoggedWithoutItsValue(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{"text": "canary", "error": errors.New("canary")} {
		b := setup(t)
		b.panicWith = value
		a := b.ok(t, http.StatusInternalServerError, "ingest", "POST", "/v1/tenants/acme/events", `{"type":"a","payload":"canary"}`)
		require.Equal(t, "internal error; the server's log has the cause under the request id", a.json["detail"], name)
		require.Contains(t, b.log.String(), `"msg":"panic","request_id":"req-1"`)
		require.NotContains(t, b.log.String(), "canary")
		require.Equal(t, []string{"reserve", "accept", "release"}, b.calls, "the reservation in the queue is released")
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for given, kept := range map[string]bool{
		"abc-123_DEF.4": true, strings.Repeat("x", 128): true, "": false, strings.Repeat("x", 129): false,
		"a b": false, "a\nb": false, `a"b`: false, "ä": false,
	} {
		a := b.ok(t, http.StatusNotFound, "admin", "GET", "/v1", "", header("X-Request-Id", given))
		require.Equal(t, kept, a.Header.Get("X-Request-Id") == given, given)
		require.Len(t, a.Header["X-Request-Id"], 1)
		require.Equal(t, a.Header.Get("X-Request-Id"), a.json["request_id"])
	}
}

func TestLogHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ok(t, http.StatusCreated, "admin", "POST", "/v1/tenants/acme/endpoints", `{"url":"https://example.com/canary",`+
		`"headers":{"X-Token":"canary"},"secret":"whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5"}`)
	b.ok(t, http.StatusAccepted, "ingest", "POST", "/v1/tenants/acme/events", `{"type":"a","payload":"canary"}`, header("Idempotency-Key", "canary"))
	b.ok(t, http.StatusBadRequest, "ingest", "POST", "/v1/tenants/acme/events?canary=1", `{"type":"a","payload":"canary"}`)
	b.refused(t, "ingest", "POST", "/v1/tenants/acme/events", `{"type":"a","payload":1,"payload":1}`, "payload", "is given more than once")
	require.Contains(t, b.log.String(), `"route":"/v1/tenants/:tenant/events","status":202`)
	for _, secret := range []string{"canary", "Y2FuYXJ5", b.keys["admin"][30:], "evk_"} {
		require.NotContains(t, b.log.String(), secret)
	}
}

func TestADisconnectedClientIsNotAnInternalError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.broken = context.Canceled
	b.do(t, "admin", "GET", "/v1/tenants/acme", "", func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		*r = *r.WithContext(ctx)
	})
	require.NotContains(t, b.log.String(), "ERROR")
}

func TestBodies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const events, ok = "/v1/tenants/acme/events", `{"type":"a","payload":1}`
	for _, media := range []string{"application/json", "Application/JSON; charset=utf-8", ""} {
		b.ok(t, http.StatusAccepted, "ingest", "POST", events, ok, header("Content-Type", media))
	}
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonp"} {
		a := b.ok(t, http.StatusUnsupportedMediaType, "ingest", "POST", events, ok, header("Content-Type", media))
		require.Equal(t, "https://everpost.dev/errors/unsupported-media-type", a.json["type"])
	}
	b.ok(t, http.StatusUnsupportedMediaType, "ingest", "POST", events, ok, header("Content-Encoding", "gzip"))
	b.refused(t, "ingest", "POST", events, "", "body", "is required")
	b.refused(t, "admin", "PATCH", events[:len(events)-6]+"endpoints/"+b.endpoint(t), "", "body", "is required")

	sized := func(payload, padding int) string {
		return `{"type":"a","payload":"` + strings.Repeat("x", payload-2) + `"` + strings.Repeat(" ", padding) + `}`
	}
	exact := sized(webhook.DefaultMaxPayload, roomAroundPayload-len(`{"type":"a","payload":}`))
	require.Len(t, exact, webhook.DefaultMaxPayload+roomAroundPayload)
	for _, option := range []func(*http.Request){func(*http.Request) {}, unsized} {
		b.ok(t, http.StatusAccepted, "ingest", "POST", events, exact, option)
		a := b.ok(t, http.StatusRequestEntityTooLarge, "ingest", "POST", events, sized(webhook.DefaultMaxPayload+1, 0), option)
		require.Equal(t, "payload: has 262145 bytes; the limit is 262144", a.json["detail"])
		a = b.ok(t, http.StatusRequestEntityTooLarge, "ingest", "POST", events, exact+" ", option)
		require.Contains(t, []any{"body: is larger than 327680 bytes", "body: has 327681 bytes; the limit is 327680"}, a.json["detail"])
	}
	a := b.ok(t, http.StatusBadRequest, "ingest", "POST", events, ok, func(r *http.Request) { r.ContentLength = 100 })
	require.Equal(t, "body: could not be read to its end", a.json["detail"])
}

// An installation chooses the largest payload: of an event, in a batch, of a test request.
func TestTheLargestPayloadIsASetting(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"smaller": 1 << 10, "the largest": webhook.LargestMaxPayload} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *Config) { c.MaxPayload = most })
			payload := func(size int) string { return `"` + strings.Repeat("x", size-2) + `"` }
			event := func(size int) string { return `{"type":"a","payload":` + payload(size) + `}` }
			const events = "/v1/tenants/acme/events"
			refusal := fmt.Sprintf("payload: has %d bytes; the limit is %d", most+1, most)

			a := b.ok(t, http.StatusAccepted, "ingest", "POST", events, event(most))
			b.ok(t, http.StatusOK, "ingest", "GET", events+"/"+a.json["id"].(string)+"/payload", "")
			a = b.ok(t, http.StatusRequestEntityTooLarge, "ingest", "POST", events, event(most+1))
			require.Equal(t, refusal, a.json["detail"])

			b.ok(t, http.StatusAccepted, "ingest", "POST", events+"/batch", `{"events":[`+event(most)+`]}`)
			a = b.ok(t, http.StatusRequestEntityTooLarge, "ingest", "POST", events+"/batch", `{"events":[`+event(2)+`,`+event(most+1)+`]}`)
			require.Equal(t, "events[1]."+refusal, a.json["detail"])

			b.test = func(context.Context, string, []byte) (webhook.Attempt, error) {
				return webhook.Attempt{StartedAt: testNow(), Outcome: retry.Outcome{Decision: retry.Delivered, Reason: retry.ReasonDelivered, Status: 200}}, nil
			}
			test := "/v1/tenants/acme/endpoints/" + b.endpoint(t) + "/test"
			b.ok(t, http.StatusOK, "admin", "POST", test, `{"payload":`+payload(most)+`}`)
			a = b.ok(t, http.StatusRequestEntityTooLarge, "admin", "POST", test, `{"payload":`+payload(most+1)+`}`)
			require.Equal(t, refusal, a.json["detail"])
		})
	}
}

func TestServerIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := b.server.HTTPServer(b.server.Handler())
	for _, d := range []time.Duration{server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout, server.IdleTimeout} {
		require.Positive(t, d)
	}
	require.Positive(t, server.MaxHeaderBytes)
}
