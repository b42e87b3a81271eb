package app

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

// What is observedEvents is what was stored: not what was refused, and not what was known.
func TestAcceptedEventsAreCounted(t *testing.T) {
	t.Parallel()
	store, err := stores.Open(t.Context(), stores.Config{URL: postgrestest.New(t), MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, _, err = store.Tenants.PutTenant(t.Context(), webhook.Actor{}, webhook.Tenant{ID: "acme"})
	require.NoError(t, err)
	c := observedEvents{store.Events, telemetry.NewMetrics("test")}
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

// All that is wrong with a URL is said at once, each with the setting that would allow it.
func TestEachRefusalOfAURL(t *testing.T) {
	t.Parallel()
	u := urls{newGuard(config.Config{DeniedCIDRs: []netip.Prefix{netip.MustParsePrefix("93.184.215.0/24")}}, "", nil)}
	require.NoError(t, u.CheckURL("https://example.com/"))
	joined, ok := u.CheckURL("http://127.0.0.1:8080/a b").(interface{ Unwrap() []error })
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 4)
	for i, word := range []string{"blanks", "EVERPOST_ALLOW_HTTP", "EVERPOST_ALLOWED_CIDRS", "EVERPOST_EXTRA_PORTS"} {
		require.ErrorContains(t, joined.Unwrap()[i], word)
	}
	require.ErrorContains(t, u.CheckURL("https://93.184.215.14/"), "EVERPOST_DENIED_CIDRS")
}
