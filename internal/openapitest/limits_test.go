package openapitest_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/webhook"
)

const acme = "/v1/tenants/" + own

// limit sets the limits of the tenant acme, as JSON.
func (w *world) limit(limits string) {
	w.Helper()
	w.ok(http.StatusOK, "operator", "PUT", acme, `{"limits":`+limits+`}`)
}

// problem returns the type and detail of the response's problem document.
func (a answer) problem(t *testing.T) (kind, detail string) {
	t.Helper()
	return a.field(t, "type"), a.field(t, "detail")
}

func TestTheRateOfATenantIsLimited(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.limit(`{"requests_per_second":0.01,"burst":3}`)
	for range 3 {
		w.ok(http.StatusOK, "admin", "GET", acme, "")
	}
	for _, as := range []string{"admin", "ingest"} { // the keys of one tenant share a bucket
		for _, path := range []string{acme + "/events", "/v1/retry-policies", "/v1/tenants/other/events"} {
			a := w.ok(http.StatusTooManyRequests, as, "GET", path, "")
			_, detail := a.problem(t)
			require.Equal(t, "the tenant may make 0.01 requests per second, 3 at once", detail)
			seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
			require.NoError(t, err)
			require.InDelta(t, 100, seconds, 10, "a hundred seconds for a hundredth per second")
		}
	}
	w.ok(http.StatusOK, "operator", "GET", acme, "")
	w.ok(http.StatusUnauthorized, "expired", "GET", acme, "")

	w.limit(`{"requests_per_second":0.01,"burst":5}`)
	w.ok(http.StatusTooManyRequests, "admin", "GET", acme, "") // a larger bucket is not full at once
	w.limit(`null`)
	for range 10 {
		w.ok(http.StatusOK, "admin", "GET", acme, "")
	}
}

func TestTheEndpointsOfATenantAreLimited(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.limit(`{"endpoints":2}`)
	first := w.endpoint(own)
	w.endpoint(own)
	a := w.ok(http.StatusConflict, "admin", "POST", acme+"/endpoints", `{"url":"`+w.hook+`"}`)
	kind, detail := a.problem(t)
	require.Equal(t, "https://everpost.dev/errors/quota-exceeded", kind)
	require.Equal(t, "the tenant's limit of endpoints is 2", detail)
	w.endpoint(foreign)
	w.ok(http.StatusNoContent, "admin", "DELETE", acme+"/endpoints/"+first, "")
	w.endpoint(own)
	w.limit(`{"endpoints":1}`) // existing endpoints stay
	w.ok(http.StatusOK, "admin", "GET", acme+"/endpoints", "")
	w.ok(http.StatusConflict, "admin", "POST", acme+"/endpoints", `{"url":"`+w.hook+`"}`)
}

func TestTheEndpointsOfAnEventAreLimited(t *testing.T) {
	t.Parallel()
	w := setup(t)
	create := func() {
		w.ok(http.StatusCreated, "admin", "POST", acme+"/endpoints", `{"url":"`+w.hook+`"}`)
	}
	create()
	w.limit(`{"endpoints_per_event":1}`)
	known := `{"type":"order.paid","payload":1,"external_id":"before"}`
	w.ok(http.StatusAccepted, "ingest", "POST", acme+"/events", known)
	create()
	a := w.ok(http.StatusUnprocessableEntity, "ingest", "POST", acme+"/events", `{"type":"order.paid","payload":1}`)
	kind, detail := a.problem(t)
	require.Equal(t, "https://everpost.dev/errors/too-many-deliveries", kind)
	require.Equal(t, "the event goes to more than 1 endpoints, the tenant's limit for one event", detail)
	a = w.ok(http.StatusUnprocessableEntity, "ingest", "POST", acme+"/events/batch", `{"events":[{"type":"order.paid","payload":1}]}`)
	_, detail = a.problem(t)
	require.Equal(t, "events[0]: the event goes to more than 1 endpoints, the tenant's limit for one event", detail)
	a = w.ok(http.StatusAccepted, "ingest", "POST", acme+"/events", known)
	require.Equal(t, "true", a.header.Get("Idempotent-Replayed"), "what was accepted before is answered as before")
	w.ok(http.StatusAccepted, "ingest", "POST", acme+"/events",
		fmt.Sprintf(`{"type":"order.paid","payload":1,"endpoint_ids":[%q]}`, w.endpoint(own)))
}

// Requests that do not post events have a rate of their own, which events do not use up.
func TestOtherRequestsOfATenantAreLimited(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.limit(`{"other_requests_per_second":0.01,"other_burst":2}`)
	post := func() {
		w.ok(http.StatusAccepted, "ingest", "POST", acme+"/events", `{"type":"order.paid","payload":1}`)
	}
	for range 5 {
		post()
	}
	w.ok(http.StatusOK, "admin", "GET", acme, "")
	w.ok(http.StatusOK, "ingest", "GET", acme+"/events", "")
	a := w.ok(http.StatusTooManyRequests, "admin", "GET", acme, "")
	_, detail := a.problem(t)
	require.Equal(t, "the tenant may make 0.01 requests per second other than posting events, 2 at once", detail)
	post()
	w.ok(http.StatusOK, "operator", "GET", acme, "")
}

func TestTheRunningReplaysOfATenantAreLimited(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.limit(`{"running_replays":2}`)
	create := func() (id, state string) {
		a := w.ok(http.StatusAccepted, "admin", "POST", acme+"/replays", `{"source":"dead_letters"}`)
		return a.field(t, "id"), a.field(t, "state")
	}
	for range 2 {
		_, state := create()
		require.Equal(t, "running", state)
	}
	third, state := create()
	require.Equal(t, "queued", state)
	w.ok(http.StatusAccepted, "admin", "POST", acme+"/replays/"+third+"/pause", "")
	w.ok(http.StatusAccepted, "admin", "POST", acme+"/replays/"+third+"/cancel", "")
	w.limit(`null`)
	_, state = create()
	require.Equal(t, "running", state, "the installation's limit is higher")
}

func TestThePendingDeliveriesOfATenantAreLimited(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.endpoint(own)
	post := fmt.Sprintf(`{"type":"order.paid","payload":1,"endpoint_ids":[%q]}`, id)
	w.limit(`{"pending_deliveries":2}`)
	first := w.ok(http.StatusAccepted, "ingest", "POST", acme+"/events", post)
	w.ok(http.StatusAccepted, "ingest", "POST", acme+"/events", post)
	a := w.ok(http.StatusTooManyRequests, "ingest", "POST", acme+"/events", post)
	_, detail := a.problem(t)
	require.Equal(t, "the tenant's limit of pending deliveries is 2, and it has about 2", detail)
	require.Equal(t, "3", a.header.Get("Retry-After"))
	w.ok(http.StatusAccepted, "ingest", "POST", acme+"/events", `{"type":"nobody.wants.it","payload":1}`)
	a = w.ok(http.StatusConflict, "ingest", "POST", acme+"/events/batch", `{"events":[`+post+`,`+post+`,`+post+`]}`)
	_, detail = a.problem(t)
	require.Equal(t, "the tenant's limit of pending deliveries is 2", detail, "waiting would not help")

	var event struct{ Deliveries []struct{ ID string } }
	first.into(t, &event)
	w.giveUp(own, event.Deliveries[0].ID)
	require.Eventually(t, func() bool {
		return w.do("ingest", "POST", acme+"/events", post).status == http.StatusAccepted
	}, 20*time.Second, 100*time.Millisecond, "room shows in the next count")
	w.ok(http.StatusTooManyRequests, "ingest", "POST", acme+"/events", post)
	w.limit(`{"pending_deliveries":3}`)
	w.ok(http.StatusAccepted, "ingest", "POST", acme+"/events", post)
}

func TestAnOperatorsDefaultsHoldForTenantsWithoutLimits(t *testing.T) {
	t.Parallel()
	w := setup(t, "--tenant-endpoints=1", "--tenant-requests-per-second=0.01", "--tenant-burst=2", "--tenant-pending-deliveries=7",
		"--tenant-endpoints-per-event=8")
	w.ok(http.StatusTooManyRequests, "ingest", "GET", acme+"/events", "") // the set-up has used both tokens
	w.endpoint(own)
	w.ok(http.StatusConflict, "operator", "POST", acme+"/endpoints", `{"url":"`+w.hook+`"}`)
	w.limit(`{"endpoints":2,"requests_per_second":100}`)
	w.endpoint(own)
	require.Eventually(t, func() bool { return w.do("ingest", "GET", acme+"/events", "").status == http.StatusOK },
		20*time.Second, 10*time.Millisecond, "the bucket fills at the new rate")
}

// A change by one process takes effect in another within 2 s.
func TestOtherProcessesFollow(t *testing.T) {
	t.Parallel()
	w := setup(t)
	other := w.another()
	within := func(what string, change func(), followed func() bool) {
		t.Helper()
		change()
		begun := time.Now()
		require.Eventually(t, followed, 20*time.Second, 10*time.Millisecond, what)
		require.Less(t, time.Since(begun), 2*time.Second, what)
	}
	status := func() int { return other.do("ingest", "GET", acme+"/events", "").status }
	require.Equal(t, http.StatusOK, status())

	within("a limit", func() { w.limit(`{"requests_per_second":0.01,"burst":1}`) }, func() bool { return status() == http.StatusTooManyRequests })
	within("no limit", func() { w.limit(`null`) }, func() bool { return status() == http.StatusOK })
	id, _, err := api.ParseKey(w.keys["ingest"])
	require.NoError(t, err)
	within("a revoked key", func() { w.ok(http.StatusNoContent, "admin", "DELETE", acme+"/keys/"+id.String(), "") },
		func() bool { return status() == http.StatusUnauthorized })

	soon := time.Now().Add(time.Second)
	w.keys["short"] = w.key(webhook.ScopeIngest, soon)
	require.Equal(t, http.StatusOK, other.do("short", "GET", acme+"/events", "").status)
	require.Eventually(t, func() bool { return other.do("short", "GET", acme+"/events", "").status == http.StatusUnauthorized },
		20*time.Second, 10*time.Millisecond, "an expired key")
	require.WithinDuration(t, soon, time.Now(), time.Second, "from memory, and to the moment all the same")
}
