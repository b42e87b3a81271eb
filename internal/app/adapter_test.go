package app

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/statistics"
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
	c := observedEvents{store.Events, telemetry.NewMetrics("test"), statistics.New(statistics.Config{Store: store.Statistics, Now: time.Now})}
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
	require.Empty(t, u.CheckURL("https://example.com/"))
	wrong := u.CheckURL("http://127.0.0.1:8080/a b")
	require.Len(t, wrong, 4)
	for i, word := range []string{"blanks", "EVERPOST_ALLOW_HTTP", "EVERPOST_ALLOWED_CIDRS", "EVERPOST_EXTRA_PORTS"} {
		require.Contains(t, wrong[i], word)
	}
	wrong = u.CheckURL("https://93.184.215.14/")
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "EVERPOST_DENIED_CIDRS")
}

// With names for the proxy, the installation's own names are refused, and the proxy's; and doctor says whose duty addresses are.
func TestNamesForTheProxy(t *testing.T) {
	t.Parallel()
	c := config.Config{
		EgressProxy: "http://out:hunter2@proxy.example.net:3128", EgressProxyNames: true, DatabaseURL: "postgres://u:p@pg.example.org:5432/db",
		Listen: "api.example.org:8080", DeniedHosts: []string{"evil.example"}, NoProxy: []string{"db.internal"},
	}
	c.ConsoleURL = "https://hooks.example.org"
	u := urls{newGuard(c, "temporal.example.org:7233", nil)}
	for host, allowed := range map[string]bool{
		"shop.example": true, "a.hooks.example.org": true, "db.internal": true, "hooks.example.org": false, "pg.example.org": false, "api.example.org": false,
		"temporal.example.org": false, "proxy.example.net": false, "evil.example": false, "a.internal": false, "intranet": false,
	} {
		require.Equal(t, allowed, len(u.CheckURL("https://"+host+"/")) == 0, host)
	}
	if name, err := os.Hostname(); err == nil {
		require.NotEmpty(t, u.CheckURL("https://"+name+"/"))
	}
	c.EgressProxyNames = false
	u = urls{newGuard(c, "temporal.example.org:7233", nil)}
	require.Empty(t, u.CheckURL("https://pg.example.org/"), "its address is checked at the dial")
	require.NotEmpty(t, u.CheckURL("https://evil.example/"))
}

func TestDoctorSaysWhoseDutyAddressesAre(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(proxy.Close)
	for names, want := range map[bool]string{true: "EVERPOST_EGRESS_PROXY_NAMES", false: "by the proxy 127.0.0.1"} {
		c := diagnosis{Installation: Installation{Config: config.Config{EgressProxy: proxy.URL, EgressProxyNames: names, DeniedHosts: []string{"a.example"}}}}
		found := c.egress(t.Context())
		require.Contains(t, found.Detail, want)
		require.Equal(t, names, strings.Contains(found.Detail, proxysDuty))
		require.Contains(t, found.Detail, "without 1 host names")
	}
}
