package api

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// counting is an endless body that counts the bytes read.
type counting struct{ n atomic.Int64 }

func (c *counting) Read(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return copy(p, bytes.Repeat([]byte(" "), len(p))), nil
}

func (c *counting) Close() error { return nil }

// A body is read only for an authorised caller and never beyond its limit. A body whose known length
// is over the limit is not read.
func TestBodiesAreCappedBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		as, path string
		length   int64
		status   int
		most     int64
	}{
		{"", "/v1/tenants/acme/events", -1, http.StatusUnauthorized, 0},
		{"foreign", "/v1/tenants/acme/events", -1, http.StatusNotFound, 0},
		{"ingest", "/v1/tenants/acme/endpoints", -1, http.StatusForbidden, 0},
		{"ingest", "/v1/tenants/acme/events", (webhook.DefaultMaxPayload + roomAroundPayload) + 1, http.StatusRequestEntityTooLarge, 0},
		{"ingest", "/v1/tenants/acme/events/batch", minBatchBytes + 1, http.StatusRequestEntityTooLarge, 0},
		{"ingest", "/v1/tenants/acme/events", -1, http.StatusRequestEntityTooLarge, 2 * (webhook.DefaultMaxPayload + roomAroundPayload)},
		{"ingest", "/v1/tenants/acme/events/batch", -1, http.StatusRequestEntityTooLarge, 2 * minBatchBytes},
		{"admin", "/v1/tenants/acme/endpoints", -1, http.StatusRequestEntityTooLarge, 2 * (webhook.DefaultMaxPayload + roomAroundPayload)},
	} {
		body := &counting{}
		b.ok(t, c.status, c.as, "POST", c.path, "x", func(r *http.Request) { r.Body, r.ContentLength = body, c.length })
		require.LessOrEqual(t, body.n.Load(), c.most, "%s as %q", c.path, c.as)
	}
}

// No response has a CORS header, whatever the Origin; the check of each response covers all other
// tests.
func TestCORSIsOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	origin := header("Origin", "https://elsewhere.example")
	b.ok(t, http.StatusOK, "admin", "GET", "/v1/tenants/acme", "", origin)
	b.ok(t, http.StatusNoContent, "", "OPTIONS", "/v1/tenants/acme/events", "", origin, header("Access-Control-Request-Method", "POST"))
	b.ok(t, http.StatusNotFound, "", "OPTIONS", "/elsewhere", "", origin)
}

// No response to a request with a key may be cached.
func TestNothingIsCached(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, r := range routes() {
		if r.scope == scopeNone {
			continue
		}
		for _, as := range []string{"", "operator", "admin", "ingest", "foreign"} {
			a := b.do(t, as, r.method, fill(r, "acme"), "")
			require.Equal(t, "no-store", a.Header.Get("Cache-Control"), "%s as %q", r.id, as)
		}
	}
}

// One invalid byte is one error with its position, and the error does not repeat the input.
func TestErrorsDoNotRepeatTheInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const canary = "canary-4711"
	for _, body := range []string{
		`{"type":"` + canary + `!","payload":1}`, `{"type":"a","payload":"` + canary + `"`, `{"type":"a","payload":1,"external_id":"` + canary + `\u0000"}`,
		`{"type":"a","payload":1,"deliver_at":"` + canary + `"}`, `{"type":"a","payload":1,"endpoint_ids":["` + canary + `"]}`, canary,
	} {
		a := b.ok(t, http.StatusBadRequest, "ingest", "POST", "/v1/tenants/acme/events", body)
		require.NotContains(t, a.text, canary, body)
	}
	require.NotContains(t, b.log.String(), canary)
}
