package app

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// process is a running process whose workers share the health of their endpoints at once.
func process(t *testing.T, o Options) *App {
	t.Helper()
	o.shareHealthEvery = 5 * time.Millisecond
	a, err := New(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(a.Stop)
	require.NoError(t, a.Start(t.Context()))
	return a
}

// endpoint makes one of the tenant acme, with a circuit breaker that opens soon.
func endpoint(t *testing.T, a *App, url string) string {
	t.Helper()
	api := "http://" + a.APIAddr() + "/v1/tenants/acme"
	_, _ = call(t, "PUT", api, `{"name":"Acme"}`)
	status, answer := call(t, "POST", api+"/endpoints", `{"url":"`+url+`","circuit_breaker":{"min_requests":2}}`)
	require.Equal(t, http.StatusCreated, status, answer)
	return answer["id"].(string)
}

// fail lets n requests of a process fail.
func (a *App) fail(t *testing.T, id string, n int) {
	t.Helper()
	for range n {
		a.pass(t, id, admission.Result{Latency: 20 * time.Millisecond, Number: 1, Reason: "http_503", Answered: true, BreakerFailure: true})
	}
}

// pass sends a request of a process and ends it with a result.
func (a *App) pass(t *testing.T, id string, r admission.Result) {
	t.Helper()
	endpoint, err := webhook.ParseEndpointID(id)
	require.NoError(t, err)
	e, err := a.store.Endpoints.Endpoint(t.Context(), "acme", endpoint)
	require.NoError(t, err)
	pass := a.admission.Acquire(t.Context(), admission.Request{
		Endpoint: endpoint, Delivery: webhook.DeliveryIDOf(webhook.NewEventID(), endpoint), Limits: admission.LimitsOf(&e),
	}).Permit
	require.NotNil(t, pass)
	pass.Done(r)
}

// What an API says of an endpoint is what its own admission and those of other processes see.
func TestHealthIsShared(t *testing.T) {
	t.Parallel()
	database := postgrestest.New(t)
	alone := start(t, options(t, database))
	id := endpoint(t, alone, "https://example.com/hook")
	health := func(a *App) map[string]any {
		t.Helper()
		status, answer := call(t, "GET", "http://"+a.APIAddr()+"/v1/tenants/acme/endpoints/"+id+"/health", "")
		require.Equal(t, http.StatusOK, status, answer)
		return answer
	}
	circuit := func(a *App) any { return health(a)["circuit"].(map[string]any)["state"] }
	require.Equal(t, "Active; no failure on record; nothing waits.", health(alone)["summary"])

	temporal := newFrontend(t)
	o := options(t, database)
	o.Worker, o.Temporal, o.Process = true, client.Options{HostPort: temporal.address}, "w1"
	both := process(t, o)
	o.API, o.Process = false, "w2"
	worker := process(t, o)

	worker.fail(t, id, 2)
	for _, a := range []*App{alone, both} {
		require.Eventually(t, func() bool { return circuit(a) == "open" }, 20*time.Second, 5*time.Millisecond)
		answer := health(a)
		require.Regexp(t, `^Circuit open since \d\d:\d\d UTC after 2 of 2 requests failed, the last with 503 Service Unavailable`+
			`; next probe in \d+ s; nothing waits\.$`,
			answer["summary"])
		require.InDelta(t, 2, answer["failure_streak"], 0)
		require.InDelta(t, 0, answer["success_rate"], 0)
		require.InDelta(t, 20, answer["latency_ms"], 0)
		require.InDelta(t, 0, answer["rate_per_second"], 0)
		require.NotNil(t, answer["next_probe_at"])
	}

	// What a process sees itself is counted once, and without delay.
	worker.admission.Reset(parse(t, id))
	both.fail(t, id, 1)
	require.Equal(t, 3, both.seen(t, id).Failed)
	require.Eventually(t, func() bool { return alone.seen(t, id).Failed == 3 }, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, 3, both.seen(t, id).Failed, "not its own shared observation again")
	require.Eventually(t, func() bool { return circuit(alone) == "closed" }, 20*time.Second, 5*time.Millisecond)

	// What a process has shared ends with it.
	both.Stop()
	worker.Stop()
	require.Equal(t, "Active; no failure on record; nothing waits.", health(alone)["summary"])
	var n int
	require.NoError(t, alone.store.Pool().QueryRow(t.Context(), `select count(*) from endpoint_health`).Scan(&n))
	require.Zero(t, n)
}

// With timeout "auto" a sending process shows its own timeout, the default while little is known, and uses it for tests. A process that does
// not send shows what others share.
func TestAutoTimeoutIsShown(t *testing.T) {
	t.Parallel()
	database := postgrestest.New(t)
	alone := start(t, options(t, database))
	o := options(t, database)
	o.Config.AllowHTTP, o.Config.ExtraPorts.Any, o.Config.AllowedCIDRs = true, true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	o.Worker, o.Temporal, o.Process = true, client.Options{HostPort: newFrontend(t).address}, "w1"
	both := process(t, o)
	receiver := receivertest.New(t)
	id := endpoint(t, both, receiver.URL()+"/hook")
	url := func(a *App) string { return "http://" + a.APIAddr() + "/v1/tenants/acme/endpoints/" + id }
	timeout := func(a *App) any {
		t.Helper()
		status, answer := call(t, "GET", url(a)+"/health", "")
		require.Equal(t, http.StatusOK, status, answer)
		return answer["timeout"]
	}
	require.Equal(t, []any{"15s", "15s"}, []any{timeout(alone), timeout(both)})
	status, answer := call(t, "PATCH", url(both), `{"timeout":"auto"}`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, "auto", answer["timeout"])
	require.Equal(t, []any{nil, "15s"}, []any{timeout(alone), timeout(both)})

	for range 20 {
		both.pass(t, id, admission.Result{Latency: time.Millisecond, Number: 1, Delivered: true, Answered: true})
	}
	require.Equal(t, []any{nil, "5s"}, []any{timeout(alone), timeout(both)})
	receiver.Script("/hook", receivertest.Step{Hang: true})
	status, answer = call(t, "POST", url(both)+"/test", "")
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, "timeout_headers", answer["reason"])
	require.InDelta(t, 5000, answer["latency_ms"], 900)
	require.Equal(t, "5s", timeout(both), "a test counts for nothing")

	both.fail(t, id, 1)
	require.Eventually(t, func() bool { return timeout(alone) == "5s" }, 20*time.Second, 5*time.Millisecond, "shared with its failures")
}

func parse(t *testing.T, id string) webhook.EndpointID {
	t.Helper()
	parsed, err := webhook.ParseEndpointID(id)
	require.NoError(t, err)
	return parsed
}

// seen is an endpoint as a process sees it, by itself and by what others share.
func (a *App) seen(t *testing.T, id string) webhook.Observation {
	t.Helper()
	h, err := a.health.Health(t.Context(), "acme", parse(t, id))
	require.NoError(t, err)
	return h.Observed
}

// Other processes compare its times, so they are by the database's clock.
func TestTimesOfTheAdmission(t *testing.T) {
	t.Parallel()
	at := time.Now()
	o := webhook.Observation{
		Circuit: webhook.CircuitOpen, Since: at, NextProbe: at.Add(time.Second), ProbeOver: at.Add(2 * time.Second), BlockedUntil: at.Add(3 * time.Second),
	}
	for _, off := range []time.Duration{-10 * time.Minute, 0, 10 * time.Minute} {
		got := observedBy(func() time.Time { return time.Now().Add(off) }, o)
		for n, seen := range []time.Time{got.Since, got.NextProbe, got.ProbeOver, got.BlockedUntil} {
			require.WithinDuration(t, at.Add(off+time.Duration(n)*time.Second), seen, 100*time.Millisecond)
		}
		require.Zero(t, observedBy(time.Now, webhook.Observation{}).BlockedUntil)
	}
}

// An API alone tests an endpoint: at once, whatever its state, and a few at a time.
func TestEndpointIsTested(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	o := options(t, postgrestest.New(t))
	o.Config.AllowHTTP, o.Config.AllowedCIDRs, o.Config.ExtraPorts.Any = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, true
	a := start(t, o)
	api := "http://" + a.APIAddr() + "/v1/tenants/acme/endpoints/"
	id := endpoint(t, a, receiver.URL()+"/hook")
	status, _ := call(t, "POST", api+id+"/pause", "")
	require.Equal(t, http.StatusOK, status)

	status, answer := call(t, "POST", api+id+"/test", `{"type":"order.paid","payload":{"n": 1}}`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, []any{"delivered", 200.0, 0.0, nil}, []any{answer["decision"], answer["status"], answer["number"], answer["run"]})
	got := receiver.Requests()
	require.Len(t, got, 1)
	require.Equal(t, `{"n": 1}`, string(got[0].Body))
	status, secret := call(t, "GET", api+id+"/secret", "")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, got[0].Verify(secret["secret"].(string)))
	audited := func() (n int) {
		t.Helper()
		const sql = `select count(*) from audit_log where action = 'endpoint.test' and subject = $1`
		require.NoError(t, a.store.Pool().QueryRow(t.Context(), sql, id).Scan(&n))
		return n
	}
	require.Equal(t, 1, audited())

	_, _ = call(t, "PUT", "http://"+a.APIAddr()+"/v1/tenants/other", `{"name":"Other"}`)
	status, _ = call(t, "POST", "http://"+a.APIAddr()+"/v1/tenants/other/endpoints/"+id+"/test", "")
	require.Equal(t, http.StatusNotFound, status)

	receiver.Hold()
	const atOnce = 3
	var answers sync.WaitGroup
	for range atOnce {
		answers.Go(func() {
			status, answer := call(t, "POST", api+id+"/test", "")
			assert.Equal(t, http.StatusOK, status, answer)
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, receiver.WaitHeld(ctx, atOnce))
	status, answer = call(t, "POST", api+id+"/test", "")
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Equal(t, "this endpoint is being tested already; wait for the answers", answer["detail"])
	require.Equal(t, 1+atOnce, audited(), "what was refused is not in the log")
	status, _ = call(t, "POST", "http://"+a.APIAddr()+"/v1/tenants/other/endpoints/"+id+"/test", "")
	require.Equal(t, http.StatusNotFound, status, "another tenant does not learn of it")
	receiver.Release()
	answers.Wait()
	require.Equal(t, 1+atOnce, receiver.Count())
}
