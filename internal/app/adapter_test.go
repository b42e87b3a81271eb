package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

// What is counted is what was stored: not what was refused, and not what was known.
func TestAcceptedEventsAreCounted(t *testing.T) {
	t.Parallel()
	store, err := postgres.Open(t.Context(), postgres.Config{URL: postgrestest.New(t), MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, _, err = store.PutTenant(t.Context(), webhook.Actor{}, webhook.Tenant{ID: "acme"})
	require.NoError(t, err)
	c := counted{store, telemetry.NewMetrics("test")}
	event := func(id string) webhook.NewEvent {
		return webhook.NewEvent{TenantID: "acme", Type: "a", Payload: []byte("1"), ExternalID: id}
	}
	batch := webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{event("x"), event("y"), event("")}}
	for range 2 {
		_, err = c.Accept(t.Context(), event("x"))
		require.NoError(t, err)
	}
	_, err = c.AcceptBatch(t.Context(), batch)
	require.NoError(t, err)
	batch.TenantID = "nobody"
	_, err = c.AcceptBatch(t.Context(), batch)
	require.Error(t, err)

	w := httptest.NewRecorder()
	c.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	require.Contains(t, w.Body.String(), "\neverpost_events_accepted_total 3\n")
}
