package app

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// Where the process that accepts an event has a worker, the request does not wait for the workflow, and its
// outcome is recorded although none comes. This Temporal never has a task for the worker.
func TestFirstRequestsAreEager(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	o := options(t, postgrestest.New(t))
	o.Worker, o.Temporal.HostPort = true, newFrontend(t).address
	o.Config.AllowHTTP, o.Config.ExtraPorts.Any = true, true
	o.Config.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	a := start(t, o)
	api := "http://" + a.APIAddr() + "/v1/tenants/acme"
	status, _ := call(t, "PUT", api, `{"name":"Acme"}`)
	require.Equal(t, http.StatusCreated, status)
	status, answer := call(t, "POST", api+"/endpoints", `{"url":"`+receiver.URL()+`/hook","event_types":["*"]}`)
	require.Equal(t, http.StatusCreated, status, answer)
	shown, _ := answer["id"].(string)
	id, err := webhook.ParseEndpointID(shown)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // until the process knows the endpoint, and has heard of its creation
		if _, err := a.store.Endpoints.Cache().Target(t.Context(), id); err != nil {
			return false
		}
		if status, _ := call(t, "POST", api+"/events", `{"type":"order.paid","payload":{}}`); status != http.StatusAccepted {
			return false
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := receiver.WaitFor(ctx, 1)
		return err == nil
	}, soon, time.Millisecond)
	require.Eventually(t, func() bool {
		_, answer := call(t, "GET", api+"/deliveries?state=delivered", "")
		items, _ := answer["data"].([]any)
		return len(items) > 0 && len(items) == receiver.Count()
	}, soon, 10*time.Millisecond)
}
