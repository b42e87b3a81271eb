package console_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/console"
)

// A second log-in ends the first session of the browser.
func TestASecondLogInEndsTheFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "acme admin")
	at, err := url.Parse(b.url + "/console/")
	require.NoError(t, err)
	first := u.jar.Cookies(at)
	old := b.browser(t)
	old.jar.SetCookies(at, first)
	old.get(t, http.StatusOK, "/console/t/acme/events")

	path := b.link(t, "acme", `{"scope":"view"}`)
	u.get(t, http.StatusOK, path)
	u.post(t, http.StatusSeeOther, path)
	u.get(t, http.StatusOK, "/console/t/acme/events")
	w, _ := old.do(t, http.MethodGet, "/console/t/acme/events", nil)
	require.Equal(t, http.StatusSeeOther, w.StatusCode)
}

// Log-ins with one key are limited: each is a session and an entry of the audit log. Those with another key go on.
func TestLogInsOfAKeyAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range console.LogInBurst {
		b.loggedIn(t, "acme admin")
	}
	u := b.browser(t)
	u.get(t, http.StatusOK, "/console/login")
	u.post(t, http.StatusTooManyRequests, "/console/login", "key", b.keys["acme admin"])
	b.loggedIn(t, "operator")
}

// Links and valid keys are not limited, also from an address that has tried too many keys.
func TestOnlyGuessesAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.browser(t)
	u.get(t, http.StatusOK, "/console/login")
	for range 10 {
		u.post(t, http.StatusUnauthorized, "/console/login", "key", "a guess")
	}
	u.post(t, http.StatusTooManyRequests, "/console/login", "key", "a guess")
	for range 12 {
		b.loggedIn(t, "acme admin")
		v := b.browser(t)
		v.get(t, http.StatusOK, "/console/links/nonsense")
		v.post(t, http.StatusGone, "/console/links/nonsense")
	}
	b.portal(t, "acme", "view")
}

// A stream of a page that is gone answers that it has ended: otherwise the browser would connect again and again.
func TestAStreamSaysThatItsPageIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "acme admin")
	_, lines, end := follow(t, u, "/console/t/acme/endpoints/"+id)
	defer end()
	await(t, lines, "event: live")
	b.api(t, http.StatusNoContent, "DELETE", "/v1/tenants/acme/endpoints/"+id, "")
	await(t, lines, "event: end")
}
