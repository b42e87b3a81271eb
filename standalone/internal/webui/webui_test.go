package webui_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/hosts"
	"github.com/everpost/everpost/standalone/internal/webui"
)

// start serves a UI for a Temporal that does not run.
func start(t *testing.T) *webui.UI {
	t.Helper()
	u, err := webui.Start(t.Context(), webui.Options{Temporal: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, u.Stop(context.WithoutCancel(t.Context()))) })
	return u
}

func get(t *testing.T, rawURL string, edit func(*http.Request)) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, rawURL, http.NoBody)
	require.NoError(t, err)
	if edit != nil {
		edit(request)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestServesThePages(t *testing.T) {
	t.Parallel()
	u := start(t)
	for _, path := range []string{"/", "/namespaces/default/workflows"} {
		status, body := get(t, u.URL()+path, nil)
		require.Equal(t, http.StatusOK, status, path)
		require.Contains(t, body, "<html", path)
		require.Contains(t, body, "/_app/", path)
	}
	status, body := get(t, u.URL()+"/api/v1/settings", nil)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `"DefaultNamespace":"default"`)
	require.Contains(t, body, `"DisableWriteActions":false`)
}

// Beyond loopback only authorized requests are served, and health checks.
func TestAuthorizes(t *testing.T) {
	t.Parallel()
	bound, err := webui.Listen(t.Context(), "0.0.0.0:0")
	require.NoError(t, err)
	_, err = webui.Start(t.Context(), webui.Options{Bound: bound, Temporal: "127.0.0.1:1"})
	require.ErrorContains(t, err, "have to be authorized")
	bound, err = webui.Listen(t.Context(), "0.0.0.0:0")
	require.NoError(t, err)
	u, err := webui.Start(t.Context(), webui.Options{
		Bound: bound, Temporal: "127.0.0.1:1", Authorize: func(r *http.Request) bool { return r.Header.Get("Cookie") == "a=session" },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, u.Stop(context.WithoutCancel(t.Context()))) })
	for _, path := range []string{"/", "/api/v1/settings", "/api/v1/namespaces/default/workflows/x", "/healthz", "//healthz", "/healthz/../api/v1/settings"} {
		want := http.StatusUnauthorized
		if path == "/healthz" {
			want = http.StatusOK
		}
		status, _ := get(t, u.URL()+path, nil)
		require.Equal(t, want, status, path)
	}
	status, _ := get(t, u.URL()+"/api/v1/settings", func(r *http.Request) { r.Header.Set("Cookie", "a=session") })
	require.Equal(t, http.StatusOK, status)
}

// Host names are checked on every bound address; a container's UI is bound to all
// addresses.
func TestRefusesForeignNames(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		bound, err := webui.Listen(t.Context(), listen)
		require.NoError(t, err)
		u, err := webui.Start(t.Context(), webui.Options{
			Bound: bound, Temporal: "127.0.0.1:1", Hosts: hosts.Allowed{Names: []string{"ui.internal"}}, Authorize: func(*http.Request) bool { return true },
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, u.Stop(context.WithoutCancel(t.Context()))) })
		_, port, err := net.SplitHostPort(u.Address())
		require.NoError(t, err)
		for host, want := range map[string]int{
			"localhost:" + port:    http.StatusOK,
			"localhost":            http.StatusOK,
			"127.0.0.1":            http.StatusOK,
			"192.0.2.7:" + port:    http.StatusOK,
			"[::1]:" + port:        http.StatusOK,
			"[::1]":                http.StatusOK,
			"ui.internal:" + port:  http.StatusOK,
			"evil.example":         http.StatusForbidden,
			"evil.example:" + port: http.StatusForbidden,
			"localhost.example":    http.StatusForbidden,
		} {
			for _, path := range []string{"/", "/api/v1/settings", "/healthz"} {
				status, text := get(t, u.URL()+path, func(r *http.Request) { r.Host = host })
				require.Equal(t, want, status, "%s%s", host, path)
				if want != http.StatusOK {
					require.Contains(t, text, "EVERPOST_UI_HOSTS")
				}
			}
		}
	}
}

func TestNoForeignOrigin(t *testing.T) {
	t.Parallel()
	u := start(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.URL()+"/api/v1/settings", http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Origin", "https://evil.example")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Empty(t, response.Header.Get("Access-Control-Allow-Origin"))
}

// TestWritesNeedTheToken: a page of this origin reads the CSRF cookie and sends it as a
// header; a page of another origin cannot.
func TestWritesNeedTheToken(t *testing.T) {
	t.Parallel()
	u := start(t)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := http.Client{Jar: jar}
	response, err := client.Get(u.URL() + "/")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	base, err := url.Parse(u.URL())
	require.NoError(t, err)
	var token string
	for _, cookie := range jar.Cookies(base) {
		if cookie.Name == "_csrf" {
			token = cookie.Value
		}
	}
	require.NotEmpty(t, token, "the cookie works over http")

	post := func(token string) int {
		target := u.URL() + "/api/v1/namespaces/default/workflows/w/cancel"
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader("{}"))
		require.NoError(t, err)
		request.Header.Set("X-CSRF-Token", token)
		response, err := client.Do(request)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode
	}
	require.Equal(t, http.StatusForbidden, post("wrong"))
	require.Equal(t, http.StatusServiceUnavailable, post(token), "let through to Temporal, which is not there")
}

func TestTakenAddressIsNamed(t *testing.T) {
	t.Parallel()
	u := start(t)
	_, err := webui.Listen(t.Context(), u.Address())
	require.EqualError(t, err, "web UI's address "+u.Address()+": address already in use")
}

func TestStopFreesThePort(t *testing.T) {
	t.Parallel()
	u, err := webui.Start(t.Context(), webui.Options{Temporal: "127.0.0.1:1"})
	require.NoError(t, err)
	require.NoError(t, u.Stop(t.Context()))
	require.NoError(t, u.Stop(t.Context()), "stopping twice is harmless")
	bound, err := webui.Listen(t.Context(), u.Address())
	require.NoError(t, err)
	again, err := webui.Start(t.Context(), webui.Options{Bound: bound, Temporal: "127.0.0.1:1"})
	require.NoError(t, err)
	require.NoError(t, again.Stop(t.Context()))
}
