package app

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

// An API without a worker closes the circuits of all workers within 2 s, each of them once.
func TestACircuitIsClosedInEveryWorker(t *testing.T) {
	t.Parallel()
	database := postgrestest.New(t)
	alone := start(t, options(t, database))
	id := endpoint(t, alone, "https://example.com/hook")
	o := options(t, database)
	o.Worker, o.API, o.Temporal = true, false, client.Options{HostPort: newFrontend(t).address}
	var workers []*App
	for _, name := range []string{"w1", "w2"} {
		o.Process = name
		workers = append(workers, process(t, o))
	}
	path := "http://" + alone.APIAddr() + "/v1/tenants/acme/endpoints/" + id + "/close-circuit"
	circuits := func() (all []webhook.CircuitState) {
		for _, w := range workers {
			all = append(all, w.admission.Health(parse(t, id)).Circuit)
		}
		return all
	}

	status, answer := call(t, "POST", path, "")
	require.Equal(t, http.StatusConflict, status, answer)
	for _, w := range workers {
		w.fail(t, id, 2)
	}
	require.Equal(t, []webhook.CircuitState{"open", "open"}, circuits())
	require.Eventually(t, func() bool {
		seen, _, err := alone.health.Circuit(t.Context(), "acme", parse(t, id))
		require.NoError(t, err)
		return seen.Circuit == webhook.CircuitOpen
	}, 20*time.Second, 5*time.Millisecond, "the API has to know first")
	status, answer = call(t, "POST", path, "")
	require.Equal(t, http.StatusOK, status, answer)
	require.Nil(t, answer["probe_delivery_id"], "nothing waits")
	require.Eventually(t, func() bool { return slices.Equal(circuits(), []webhook.CircuitState{"half_open", "half_open"}) }, 2*time.Second, 5*time.Millisecond)

	// The probe fails, and it was said once.
	w := workers[0]
	w.pass(t, id, admission.Result{Latency: 20 * time.Millisecond, Number: 1, Reason: "http_503", Answered: true, BreakerFailure: true})
	require.Equal(t, []webhook.CircuitState{"open", "half_open"}, circuits())
	closed, err := w.store.EndpointHealth.CircuitClosings(t.Context(), w.admission.OpenCircuits())
	require.NoError(t, err)
	require.Contains(t, closed, parse(t, id))
	require.False(t, w.admission.CloseCircuit(parse(t, id), closed[parse(t, id)]), "it was carried out before")
	require.Equal(t, []webhook.CircuitState{"open", "half_open"}, circuits())
	entries, err := alone.store.Audit.ListAudit(t.Context(), webhook.AuditFilter{}, webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, "endpoint.close_circuit", entries[0].Action)
	require.Equal(t, id, entries[0].Subject)
}
