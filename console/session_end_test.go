package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/console"
)

// A second log-in ends the first session of the browser.
func TestASecondLogInEndsTheFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, openAgain := range map[string]func(u *browser){
		"/console/t/acme/events": func(u *browser) {
			p := b.logInLink(t)
			u.get(t, http.StatusOK, p)
			u.post(t, http.StatusSeeOther, p)
		},
		"/portal/messages": func(u *browser) {
			p := b.link(t, "acme", `{"scope":"view"}`)
			u.get(t, http.StatusOK, p)
			u.post(t, http.StatusSeeOther, p)
		},
	} {
		u := b.browser(t)
		openAgain(u)
		at, err := url.Parse(b.url + path)
		require.NoError(t, err)
		old := b.browser(t)
		old.jar.SetCookies(at, u.jar.Cookies(at))
		old.get(t, http.StatusOK, path)
		openAgain(u)
		u.get(t, http.StatusOK, path)
		w, _ := old.do(t, http.MethodGet, path, nil)
		require.Contains(t, []int{http.StatusSeeOther, http.StatusUnauthorized}, w.StatusCode)
	}
}

// A browser may have a session of each kind: an operator who looks at a customer's portal stays logged in.
func TestASessionOfEachKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "operator")
	path := b.link(t, "acme", `{"scope":"view"}`)
	u.get(t, http.StatusOK, path)
	u.post(t, http.StatusSeeOther, path)
	u.get(t, http.StatusOK, "/portal/endpoints")
	u.get(t, http.StatusOK, "/console/tenants")
	// Each is good for its own pages only, whatever its cookie is called.
	at, err := url.Parse(b.url + "/portal/")
	require.NoError(t, err)
	for _, c := range u.jar.Cookies(at) {
		forged := b.browser(t)
		forged.jar = nil
		forged.with["Cookie"] = "everpost_session=" + c.Value
		w, _ := forged.do(t, http.MethodGet, "/console/t/acme/", nil)
		require.Equal(t, http.StatusSeeOther, w.StatusCode)
	}
	// A link to the console opens no portal, nor the other way round, and is not used up.
	logIn := b.logInLink(t)
	wrong := strings.Replace(logIn, "/console/", "/portal/", 1)
	u.get(t, http.StatusOK, wrong)
	u.post(t, http.StatusGone, wrong)
	u.get(t, http.StatusOK, logIn)
	u.post(t, http.StatusSeeOther, logIn)
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
		v.get(t, http.StatusOK, "/portal/links/nonsense")
		v.post(t, http.StatusGone, "/portal/links/nonsense")
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
