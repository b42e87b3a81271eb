package e2e_test

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// sessions are the console sessions of this run, by key: log-ins are limited.
var sessions sync.Map

// consoleKey is the cookie of a session that was opened with a key.
const consoleKey = "everpost_session"

// reader reads the console without a browser, with the session of a key.
type reader struct {
	t      *testing.T
	base   string // of the console
	client *http.Client
	cookie *http.Cookie
}

// newReader logs in with a key, unless a test of this run did so before.
func newReader(t *testing.T, in *instance, key string) *reader {
	t.Helper()
	r := &reader{t: t, base: in.addr["api"] + "/console", client: &http.Client{
		Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(r.client.CloseIdleConnections)
	once, _ := sessions.LoadOrStore(in.addr["api"]+key, sync.OnceValue(func() *http.Cookie { return r.logIn(key) }))
	r.cookie = once.(func() *http.Cookie)()
	require.NotNil(t, r.cookie, "log in")
	return r
}

// formToken finds the token of a form.
var formToken = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

func (r *reader) logIn(key string) *http.Cookie {
	response, page := r.do(http.MethodGet, "/login", nil)
	token := formToken.FindStringSubmatch(page)
	if token == nil {
		return nil
	}
	for _, c := range response.Cookies() {
		r.cookie = c
	}
	response, _ = r.do(http.MethodPost, "/login", url.Values{"csrf": {token[1]}, "key": {key}})
	for _, c := range response.Cookies() {
		if c.Name == consoleKey && c.Value != "" {
			return c
		}
	}
	return nil
}

// do makes a request, with a form if there is one, and returns the page.
func (r *reader) do(method, path string, form url.Values) (*http.Response, string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(contextFor(r.t, patience), method, r.base+path, strings.NewReader(form.Encode()))
	require.NoError(r.t, err)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if r.cookie != nil {
		request.AddCookie(r.cookie)
	}
	response, err := r.client.Do(request)
	require.NoError(r.t, err)
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	return response, string(page)
}

// page reads a page of the console.
func (r *reader) page(path string) string {
	r.t.Helper()
	response, page := r.do(http.MethodGet, path, nil)
	require.Equal(r.t, http.StatusOK, response.StatusCode, "%s: %s", path, page)
	return page
}

// as gives the window the session of a key.
func (w *window) as(in *instance, key string) {
	w.t.Helper()
	cookie := newReader(w.t, in, key).cookie
	httpOnly := true
	_, err := chromedp.Call(w.ctx, network.SetCookie, network.SetCookieParams{
		Name: cookie.Name, Value: cookie.Value, URL: w.base, Path: "/console", HTTPOnly: &httpOnly, SameSite: network.CookieSameSiteStrict,
	})
	require.NoError(w.t, err)
}

// below is a page's path below the tenant's.
func (b *bundle) below(parts ...string) string {
	return "/t/" + url.PathEscape(b.tenant) + "/" + strings.Join(parts, "/")
}

// key makes a key of the tenant.
func (b *bundle) key(scope string) (id, text string) {
	b.t.Helper()
	var made struct{ ID, Key string }
	b.ask(http.StatusCreated, http.MethodPost, "/keys", fieldsOf{"scope": scope, "name": "of a test"}, &made)
	return made.ID, made.Key
}

// link makes a one-time link to the tenant's portal, as a product does for its own customers.
func (b *bundle) link(fields fieldsOf) string {
	b.t.Helper()
	var made struct{ URL string }
	b.ask(http.StatusCreated, http.MethodPost, "/console-links", fields, &made)
	return made.URL
}
