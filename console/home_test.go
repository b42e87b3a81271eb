package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Operators see first what needs attention, whichever tenant it is of.
func TestHome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "operator")
	require.Contains(t, u.get(t, http.StatusOK, "/console/"), "every endpoint is healthy or idle")
	ill := b.endpoint(t, "other", `,"description":"Warehouse <b>"`)
	b.api(t, http.StatusOK, "POST", "/v1/tenants/other/endpoints/"+ill+"/pause", `{"reason":"it moves"}`)
	var home string
	require.Eventually(t, func() bool {
		home = u.get(t, http.StatusOK, "/console/")
		return strings.Contains(home, "/console/t/other/endpoints/"+ill)
	}, eventually, poll, "it is 5 s old at most")
	require.Contains(t, home, "Warehouse &lt;b&gt;")
	require.Contains(t, home, `<div class="hint">receiver.example</div>`, "two endpoints may have one description")
	require.Contains(t, home, "paused by hand (it moves)", "the cause in a few words")
	require.Contains(t, home, `<a href="/console/t/other/endpoints?trouble=true">1</a>`)
	require.NotContains(t, u.get(t, http.StatusOK, "/console/?text=acme"), ill)
	require.Contains(t, u.get(t, http.StatusOK, "/console/?text=WAREHOUSE&sort=waiting&range=7d"), ill)
	overview := u.get(t, http.StatusOK, "/console/t/other/")
	require.Contains(t, overview, `Endpoints <span class="count" title="in need of attention">1<span class="hidden"> in need of attention</span></span></a>`)
	require.Contains(t, overview, `<div class="hint">receiver.example</div>`)

	w, _ := b.loggedIn(t, "acme admin").do(t, http.MethodGet, "/console/", nil)
	require.Equal(t, "/console/t/acme/", w.Header.Get("Location"))
}

// The overview says how many endpoints it does not show.
func TestOverviewSaysWhatItCutsOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 12 {
		b.api(t, http.StatusOK, "POST", "/v1/tenants/acme/endpoints/"+b.endpoint(t, "acme", "")+"/pause", "")
	}
	u := b.loggedIn(t, "operator")
	require.Eventually(t, func() bool {
		_, text := u.do(t, http.MethodGet, "/console/t/acme/", nil)
		return strings.Contains(text, `2 more endpoints: <a href="/console/t/acme/endpoints?trouble=true">all that are unhealthy</a>`)
	}, eventually, poll, "conditions are 2 s old at most, and counts 5 s")
}

func TestSwitchTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "operator")
	for typed, to := range map[string]string{"other": "/console/t/other/", "oth": "/console/tenants?prefix=oth", "": "/console/tenants?prefix="} {
		w, _ := u.do(t, http.MethodGet, "/console/switch?tenant="+typed, nil)
		require.Equal(t, to, w.Header.Get("Location"), typed)
	}
	found := u.get(t, http.StatusOK, "/console/tenants?prefix=oth")
	require.Contains(t, found, "/console/tenants/other")
	require.NotContains(t, found, "/console/tenants/acme")
	require.Contains(t, u.get(t, http.StatusBadRequest, "/console/tenants?prefix=%3Cb%3E"), "must be the beginning of an id")
	require.JSONEq(t, `["other"]`, u.get(t, http.StatusOK, "/console/switch/suggestions?q=oth"))
	require.JSONEq(t, `["acme","other"]`, u.get(t, http.StatusOK, "/console/switch/suggestions?q=%3Cb%3E"))
	b.loggedIn(t, "acme admin").get(t, http.StatusNotFound, "/console/switch?tenant=other")
}
