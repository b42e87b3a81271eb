package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/webhook"
)

// What cannot be a token is not looked up, and an invented one once.
func TestInventedTokens(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := m.console(t)
	for _, text := range []string{"x", strings.Repeat("A", 25), strings.Repeat("A", 27), strings.Repeat("!", 26), strings.Repeat("a", 26)} {
		require.Equal(t, http.StatusSeeOther, request(s, http.MethodGet, "/console/tenants", keyCookie, text).Code)
	}
	require.Zero(t, m.lookUps)
	invented := rand.Text()
	for range 3 {
		require.Equal(t, http.StatusSeeOther, request(s, http.MethodGet, "/console/tenants", keyCookie, invented).Code)
	}
	require.Equal(t, 1, m.lookUps)
}

// A flood of invented tokens does not take the connections of the API, nor all look-ups from others. It is the same for
// pages and streams.
func TestLookUpsAreBounded(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.hold = make(chan struct{})
	s := m.console(t)
	var all sync.WaitGroup
	ask := func(source, accept string) {
		all.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console/tenants", http.NoBody)
			r.RemoteAddr = source
			r.Header.Set("Accept", accept)
			r.AddCookie(&http.Cookie{Name: keyCookie, Value: rand.Text()})
			s.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	for i := range 20 {
		ask("192.0.2.1:7", []string{"text/html", eventStream}[i%2])
	}
	require.Eventually(t, func() bool { return m.looked() == api.MaxLookUps/2 }, 5*time.Second, time.Millisecond)
	ask("192.0.2.2:7", "text/html")
	require.Eventually(t, func() bool { return m.looked() == api.MaxLookUps/2+1 }, 5*time.Second, time.Millisecond)
	close(m.hold)
	all.Wait()
}

// Streams keep neither a session nor a key in use, and what visitors of a portal do is no use of a key.
func TestWhatCountsAsUse(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := m.console(t)
	of := func(access webhook.ConsoleAccess) session {
		return session{token: m.session(webhook.ConsoleSession{TenantID: "acme", Access: access})}
	}
	find := func(name string, of session, accept string) {
		path := map[string]string{keyCookie: "/console/", portalCookie: "/portal/"}[name]
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		r.Header.Set("Accept", accept)
		r.AddCookie(&http.Cookie{Name: name, Value: of.token})
		found, err := s.findSession(r)
		require.NoError(t, err)
		require.True(t, found.signedIn())
	}
	key, portal := of(webhook.AccessKey), of(webhook.AccessView)
	find(keyCookie, key, "text/html")
	find(keyCookie, key, eventStream)
	find(portalCookie, portal, "text/html")
	find(portalCookie, portal, eventStream)
	require.Equal(t, []bool{true, false, true, false}, m.uses)
	require.Equal(t, []bool{true, false, false, false}, m.keyUses)
}

// An error while the key is confirmed does not use the link up. An earlier session of the browser ends with the link's.
func TestALinkSurvivesAnError(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := m.console(t)
	link, before := rand.Text(), m.session(webhook.ConsoleSession{Access: webhook.AccessView, TenantID: "acme"})
	m.links[sha256.Sum256([]byte(link))] = webhook.ConsoleLink{TenantID: "acme", Access: webhook.AccessView}
	open := func(token string) int {
		form := rand.Text()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/portal/links/"+token, strings.NewReader(csrfField+"="+csrfToken(form)))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(&http.Cookie{Name: formCookie, Value: form})
		r.AddCookie(&http.Cookie{Name: portalCookie, Value: before})
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	m.confirm = &webhook.Error{Code: webhook.CodeUnavailable}
	require.Equal(t, http.StatusServiceUnavailable, open(link))
	require.Len(t, m.links, 1)
	m.confirm = &webhook.Error{Code: webhook.CodeUnauthenticated}
	require.Equal(t, http.StatusGone, open(link))
	m.confirm = nil
	require.Len(t, m.sessions, 1)
	require.Equal(t, http.StatusSeeOther, open(link))
	require.Empty(t, m.links)
	require.Len(t, m.sessions, 1)
	_, err := m.Session(context.Background(), sha256.Sum256([]byte(before)), true)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	lookUps := m.lookUps
	require.Equal(t, http.StatusGone, open("nonsense"))
	require.Equal(t, lookUps, m.lookUps, "what cannot be a token is not looked up")
}

// Temporal's Web UI is for browsers in which an operator has logged in: they get a cookie for it, which other sessions do not have and end.
func TestTheWebUIIsForOperators(t *testing.T) {
	t.Parallel()
	m := newMemory()
	for _, asks := range []bool{true, false} {
		s, err := New(Config{API: m, Sessions: m, UISession: asks})
		require.NoError(t, err)
		for _, c := range []struct {
			of       webhook.ConsoleSession
			operator bool
		}{
			{webhook.ConsoleSession{Access: webhook.AccessKey}, true},
			{webhook.ConsoleSession{Access: webhook.AccessKey, TenantID: "acme"}, false},
			{webhook.ConsoleSession{Access: webhook.AccessManage, TenantID: "acme"}, false},
		} {
			token := m.session(c.of)
			c.of.ExpiresAt = time.Now().Add(time.Hour)
			w := httptest.NewRecorder()
			s.keep(w, httptest.NewRequest(http.MethodPost, "/console/login", http.NoBody), session{ConsoleSession: c.of, token: token})
			got := ""
			for _, cookie := range w.Result().Cookies() {
				if cookie.Name == uiCookie {
					require.Equal(t, "/", cookie.Path)
					require.True(t, cookie.HttpOnly)
					require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
					got = cookie.Value
				}
			}
			require.Equal(t, asks && c.operator, got == token, "%+v", c.of)
			require.Equal(t, !asks || !c.operator, got == "", "%+v", c.of)
		}
		request := func(token string) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces", http.NoBody)
			r.AddCookie(&http.Cookie{Name: uiCookie, Value: token})
			return r
		}
		require.True(t, s.IsOperator(request(m.session(webhook.ConsoleSession{Access: webhook.AccessKey}))))
		require.False(t, s.IsOperator(request(m.session(webhook.ConsoleSession{Access: webhook.AccessManage, TenantID: "acme"}))))
		require.False(t, s.IsOperator(request(rand.Text())))
		require.False(t, s.IsOperator(httptest.NewRequest(http.MethodGet, "/", http.NoBody)))
	}
}
