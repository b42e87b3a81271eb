package e2e_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIdempotency(t *testing.T) {
	t.Parallel()
	const body, other = `{"type":"order.paid","payload":{"n":1}}`, `{"type":"order.paid","payload":{"n":2}}`
	withID := func(body string) string { return strings.Replace(body, "{", `{"external_id":"order-17",`, 1) }
	for _, c := range []struct {
		name        string
		first, next string
		header      []string
	}{
		{"Idempotency-Key", body, other, []string{"Idempotency-Key", "k-1"}},
		{"external_id", withID(body), withID(other), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, r := setup(t), newReceiver(t)
			b.endpoint(r, "/hook", nil)
			var first, again event
			got := b.ask(http.StatusAccepted, http.MethodPost, "/events", c.first, &first, c.header...)
			require.Empty(t, got.header.Values("Idempotent-Replayed"))
			got = b.ask(http.StatusAccepted, http.MethodPost, "/events", c.first, &again, c.header...)
			require.Equal(t, []string{"true"}, got.header.Values("Idempotent-Replayed"))
			require.Equal(t, first, again)
			b.ask(http.StatusUnprocessableEntity, http.MethodPost, "/events", c.next, nil, c.header...)
			require.Len(t, first.Deliveries, 1)
			b.waitState(first.Deliveries[0].ID, "delivered")
			require.Equal(t, 1, r.Count())
		})
	}
}

// TestBadInput throws at the API what it should refuse. Whatever that is, it is
// the caller's fault and said so; and afterwards the API still works.
func TestBadInput(t *testing.T) {
	t.Parallel()
	needsStandalone(t, itsOwn)
	b, r := setup(t), newReceiver(t)
	ep := b.endpoint(r, "/hook", nil)
	bodies := []string{
		"", " ", "null", "[]", "0", `"x"`, "{", "}", "{}", "{}{}", "{\"a\":1,}", "\x00", "\xff\xfe", "\ufeff{}", "NaN", "tru",
		`{"type":1,"payload":1}`, `{"type":"a"}`, `{"payload":1}`, `{"type":"A B","payload":1}`, `{"type":"","payload":1}`,
		`{"type":"a","type":"b","payload":1}`, `{"type":"a","payload":1,"x":2}`, `{"type":"a\u0000","payload":1}`,
		`{"type":"a","payload":1} trailing`, `{"type":"a","payload":` + strings.Repeat("[", 100_000), `{"type":"a","payload":01}`,
		`{"type":"a","payload":1,"deliver_at":"soon"}`, `{"type":"a","payload":1,"deliver_at":"9999-12-31T23:59:59Z"}`,
		`{"type":"a","payload":1,"deliver_at":-1}`, `{"type":"a","payload":1,"endpoint_ids":[]}`, `{"type":"a","payload":1,"endpoint_ids":["ep_0"]}`,
		`{"type":"a","payload":1,"endpoint_ids":"` + ep.ID + `"}`, `{"type":"a","payload":1,"external_id":""}`,
		`{"type":"a","payload":1,"external_id":"` + strings.Repeat("x", 256) + `"}`, `{"type":"` + strings.Repeat("a", 129) + `","payload":1}`,
		`{"type":"a","payload":"` + strings.Repeat("x", 256<<10) + `"}`, `{"type":"a","payload":"` + strings.Repeat("x", 1<<20) + `"}`,
		`{"url":""}`, `{"url":1}`, `{"url":"ftp://example.com"}`, `{"url":"http://user:pw@example.com"}`, `{"url":"http://[::1%25lo]/"}`,
		`{"url":"https://169.254.169.254/"}`, `{"url":"https://example.com/#f"}`, `{"url":"https://` + strings.Repeat("x", 3000) + `/"}`,
		`{"url":"https://example.com","timeout":"-1s"}`, `{"url":"https://example.com","timeout":"1e9h"}`, `{"url":"https://example.com","max_in_flight":0}`,
		`{"url":"https://example.com","rate_limit_per_second":1e400}`, `{"url":"https://example.com","retry_policy":{"base":"0s"}}`,
		`{"url":"https://example.com","retry_policy":{"factor":-1}}`, `{"url":"https://example.com","retry_policy":"no such preset"}`,
		`{"url":"https://example.com","headers":{"Host":"x"}}`, `{"url":"https://example.com","headers":{"webhook-id":"x"}}`,
		`{"url":"https://example.com","headers":{"X":"a\r\nb: c"}}`, `{"url":"https://example.com","event_types":["*.*"]}`,
		`{"url":"https://example.com","secret":"whsec_short"}`, `{"url":"https://example.com","metadata":{"a":{"b":1}}}`,
		`{"scope":"operator"}`, `{"scope":7}`, `{"scope":"ingest","expires_at":"2001-01-01T00:00:00Z"}`,
		`{"reason":1}`, `{"reason":"` + strings.Repeat("x", 5000) + `"}`,
	}
	places := []struct{ method, path string }{
		{"POST", b.path("/events")}, {"POST", b.path("/endpoints")}, {"PATCH", b.path("/endpoints/" + ep.ID)}, {"POST", b.path("/keys")},
		{"PUT", "/v1/tenants/" + b.tenant}, {"POST", b.path("/deliveries/dlv_0/cancel")}, {"POST", "/v1/retry-policies/preview"},
	}
	ctx := contextFor(t, 2*patience)
	for _, place := range places {
		for _, body := range bodies {
			got, err := b.client.call(ctx, place.method, place.path, body)
			require.NoError(t, err, "%s %s %.80q", place.method, place.path, body)
			requireCallersFault(t, got, fmt.Sprintf("%s %s %.80q", place.method, place.path, body))
			if place.path == b.path("/events") {
				require.GreaterOrEqual(t, got.status, 400, "%.80q was accepted", body)
			}
		}
	}
	for _, path := range []string{
		"/v1", "/v1/", "/v2/tenants", "/v1/tenants/%00", "/v1/tenants/%ff/events", "/v1/tenants/../tenants", "/v1/tenants/" + strings.Repeat("x", 4000),
		"/v1/tenants/a%2fb", b.path("/events/evt_"), b.path("/events/" + strings.Repeat("9", 300)), b.path("/deliveries/dlv_%F0%9F%98%80"),
		b.path("/deliveries?limit=0"), b.path("/deliveries?limit=-1"), b.path("/deliveries?limit=99999999999999999999"), b.path("/deliveries?limit=1&limit=2"),
		b.path("/deliveries?cursor=x"), b.path("/deliveries?cursor=AAAA"), b.path("/deliveries?cursor=%00"), b.path("/deliveries?state=odd"),
		b.path("/deliveries?since=yesterday"), b.path("/deliveries?since=0000-00-00T00:00:00Z"), b.path("/events?type=%ff"), b.path("/events?external_id=%00"),
		b.path("/dead-letters?status=one"), b.path("/dead-letters?reason=%00"), b.path("/events?%zz"), b.path("/events?a;b"),
		b.path("/endpoints/" + ep.ID + "/nothing"),
	} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "ODD"} {
			got, err := b.client.call(ctx, method, path, nil)
			require.NoError(t, err, "%s %s", method, path)
			requireCallersFault(t, got, method+" "+path)
			if method != "OPTIONS" { // says what an address takes, also of one that is nothing
				require.GreaterOrEqual(t, got.status, 400, "%s %s", method, path)
			}
		}
	}
	for _, key := range []string{
		"", "evk_", "evk_" + strings.Repeat("0", 80), strings.Repeat("x", 8000), "\xff\xfe", b.client.key + "x", b.client.key[:len(b.client.key)-1],
	} {
		got, err := (&apiClient{base: b.client.base, key: key, http: b.client.http}).call(ctx, "GET", "/v1/tenants", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, got.status, "%q", key)
	}

	_, d := b.postOne("order.paid", `{}`)
	b.waitState(d.ID, "delivered")
}

// requireCallersFault requires that an answer is not a 5xx, and that an error is a problem document.
func requireCallersFault(t *testing.T, got answer, what string) {
	t.Helper()
	require.Less(t, got.status, 500, "%s: %s", what, got.body)
	if got.status >= 400 && len(got.body) > 0 {
		require.Equal(t, "application/problem+json", got.header.Get("Content-Type"), what)
		var p problem
		require.NoError(t, got.into(&p), what)
		require.Equal(t, got.status, p.Status, what)
	}
}

// TestBrokenHTTP writes what is not HTTP to the API's port.
func TestBrokenHTTP(t *testing.T) {
	t.Parallel()
	needsStandalone(t, itsOwn)
	b := setup(t)
	address := strings.TrimPrefix(b.in.addr["api"], "http://")
	for _, raw := range []string{
		"\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
		"POST /v1/tenants/a/events HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
		"POST /v1/tenants/a/events HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"POST /v1/tenants/a/events HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 2<<20) + "\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, _ = conn.Write([]byte(raw)) // the server may have left in the middle of it
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		// No answer at all is fine too: the connection ends then.
		if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			require.NotContains(t, []int{500, 502, 503, 504}, response.StatusCode, "%.60q", raw)
		}
		require.NoError(t, conn.Close())
	}
	b.post("order.paid", `{}`)
}
