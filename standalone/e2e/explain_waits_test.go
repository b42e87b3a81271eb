package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// closedPort is an address at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// outdated is the address of a receiver whose certificate has expired.
func outdated(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-90 * 24 * time.Hour), NotAfter: time.Now().Add(-3 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// next is when the next attempt of a waiting delivery is made: it may be due while it is read.
const next = `attempt \d (follows at ` + clock + `, in \d+ (s|min)|is due now); tried until ` + clock + `\.`

// waitLong waits until a delivery to the endpoint waits for a reason, and for a while.
func (b *bundle) waitLong(ep endpoint, reason string) (found delivery) {
	b.t.Helper()
	eventually(contextFor(b.t, patience), b.t, func() string {
		for _, d := range b.listDeliveries(url.Values{"endpoint_id": {ep.ID}, "state": {"pending"}}) {
			if found = d; text(d.Reason) == reason && !d.NextAttemptAt.IsZero() && time.Until(d.NextAttemptAt.Time) > 30*time.Second {
				return ""
			}
		}
		return "none waits long for " + reason
	})
	return found
}

// A delivery that waits for the rate of its endpoint, or for a pause that its receiver asked for, says so.
func TestExplanationsOfPacing(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	limited := b.endpoint(r, "/limited", fieldsOf{"event_types": []string{"a.limited"}, "rate_limit_per_second": 1})
	b.postMany("a.limited", 100)
	b.requireExplained(b.waitLong(limited, "rate"), "waits_rate", `Waits for its turn at the endpoint's rate of 1 request per second; `+next, "")
	b.requireHealth(limited, "endpoint_at_rate_limit", `Active, at its rate of 1 request per second; .*\.`)
	b.ask(http.StatusNoContent, http.MethodDelete, "/endpoints/"+limited.ID, nil, nil)

	r.Script("/tired", receivertest.Step{Status: http.StatusTooManyRequests, Header: map[string]string{"Retry-After": "600"}})
	tired := b.endpoint(r, "/tired", fieldsOf{"event_types": []string{"a.tired"}, "retry_policy": patiently()})
	_, first := b.postOne("a.tired", `{}`)
	b.requireExplained(b.waitState(first.ID, "retrying"),
		"retry_after", `Attempt 1 at `+clock+` got 429 Too Many Requests and asked for a pause of 10 min`+hours,
		"Its Retry-After is kept")
	_, second := b.postOne("a.tired", `{}`)
	b.requireExplained(b.delivery(second.ID), "waits_receiver", `Waits because the receiver at 127\.0\.0\.1 asked for a pause until `+clock+`; `+next,
		"that holds for the whole endpoint")
	b.requireHealth(tired, "endpoint_pause_requested", `The receiver asked for a pause \(429 with Retry-After\); next request in \d+ (s|min); .*\.`)
}

// What is held because too many wait says so, and what comes before it.
func TestExplanationsOfABacklog(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	r.Hold()
	defer r.Release()
	ep := b.endpoint(r, "/hang", busy("a.slow", fieldsOf{"retry_policy": patiently()}))
	b.postMany("a.slow", manyBehind)
	newest := b.waitHeldInStore(ep.ID, 1)[0] // the last that is released as the first requests time out
	b.requireExplained(newest, "held_backlog", `Waits because the endpoint has got more deliveries than it takes soon; `+
		`sent after those before it, or given up at `+clock+`\.`, "Deliveries come faster than the endpoint takes them.")
	b.ask(http.StatusNoContent, http.MethodDelete, "/endpoints/"+ep.ID, nil, nil)
}

// What was discarded, or ended with its endpoint, says so.
func TestExplanationsOfEnds(t *testing.T) {
	t.Parallel()
	b, _, d := deadLettered(t)
	b.ask(http.StatusAccepted, http.MethodPost, "/dead-letters/"+d.ID+"/discard", fieldsOf{"reason": "not needed"}, nil)
	b.requireExplained(d, "discarded", `Discarded at `+clock+`, \d+ s ago, on request \("not needed"\), after 1 attempt\.`, "not needed")

	b, _, d = waiting(t)
	b.ask(http.StatusNoContent, http.MethodDelete, "/endpoints/"+d.EndpointID, nil, nil)
	b.requireExplained(d, "cancelled", `Cancelled at `+clock+`, \d+ s ago, because its endpoint was deleted, after 1 attempt\.`,
		"Deliveries to a deleted endpoint are cancelled.")
}

// operationalEvent is an operational event as it reaches an endpoint.
type operationalEvent struct {
	Summary  string `json:"summary"`
	Delivery struct {
		ID string `json:"id"`
	} `json:"delivery"`
}

// waitOperationalEvent waits for an operational event of a type, and returns its payload.
func waitOperationalEvent(t *testing.T, r *receiver, kind string) (payload operationalEvent) {
	t.Helper()
	eventually(contextFor(t, patience), t, func() string {
		for _, request := range r.Requests() {
			if request.Header.Get("everpost-event-type") == kind {
				require.NoError(t, json.Unmarshal(request.Body, &payload))
				return ""
			}
		}
		return "no " + kind + " has come"
	})
	return payload
}

// Operational events say what the API says of the same delivery and the same endpoint.
func TestExplanationsInOperationalEvents(t *testing.T) {
	t.Parallel()
	b, r, listener := setup(t), newReceiver(t), newReceiver(t)
	b.endpoint(listener, "/told", fieldsOf{"event_types": []string{"everpost.*"}})

	r.Script("/secret", receivertest.Step{Status: http.StatusUnauthorized})
	secret := b.endpoint(r, "/secret", fieldsOf{"event_types": []string{"a.secret"}})
	_, d := b.postOne("a.secret", `{}`)
	d = b.waitState(d.ID, "dead_lettered")
	given := waitOperationalEvent(t, listener, "everpost.delivery.dead_lettered")
	require.Equal(t, d.ID, given.Delivery.ID)
	require.Equal(t, "The delivery was given up after 1 attempt: 401 Unauthorized: it refuses the credentials.", given.Summary)
	b.requireExplained(d, "refused", `Given up at .*: attempt 1 got 401 Unauthorized, which is final`+kept, "answered 401 (Unauthorized).")

	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+secret.ID+"/pause", nil, nil)
	require.Equal(t, "The endpoint is paused; its deliveries are held until it is resumed.",
		waitOperationalEvent(t, listener, "everpost.endpoint.paused").Summary)
	b.requireHealth(secret, "endpoint_paused", `Paused by hand: nothing is sent; nothing waits\.`)

	r.Script("/gone", receivertest.Step{Status: http.StatusGone})
	gone := b.endpoint(r, "/gone", fieldsOf{"event_types": []string{"a.gone"}})
	b.postOne("a.gone", `{}`)
	require.Equal(t, "The endpoint is disabled, because the receiver answered 410: it accepts no more events; its deliveries are held until it is resumed.",
		waitOperationalEvent(t, listener, "everpost.endpoint.disabled").Summary)
	b.requireHealth(gone, "endpoint_disabled", `Disabled \(the receiver answered 410: it accepts no more events\): nothing is sent; nothing waits\.`)

	unavailable := receivertest.Step{Status: http.StatusServiceUnavailable}
	r.Script("/broken", unavailable, unavailable)
	broken := b.endpoint(r, "/broken", fieldsOf{
		"event_types": []string{"a.broken"}, "retry_policy": patiently(), "circuit_breaker": fieldsOf{"min_requests": 2, "cooldown": "5m"},
	})
	for range 2 {
		_, d := b.postOne("a.broken", `{}`)
		b.waitState(d.ID, "retrying")
	}
	require.Equal(t, "The circuit of the endpoint is open: 2 of 2 requests failed, the last with 503 Service Unavailable.",
		waitOperationalEvent(t, listener, "everpost.endpoint.circuit_opened").Summary)
	b.requireHealth(broken, "endpoint_circuit_open", `Circuit open since `+clock+` after 2 of 2 requests failed, the last with 503 Service Unavailable; .*\.`)
}
