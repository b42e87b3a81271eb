package hosts_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/hosts"
)

func TestAdmits(t *testing.T) {
	t.Parallel()
	allowed := hosts.Allowed{Names: []string{"everpost.internal", "*.example.com"}}
	for host, want := range map[string]bool{
		"":                       true,
		"127.0.0.1":              true,
		"127.0.0.1:8081":         true,
		"10.1.2.3:8081":          true, // the address of a pod
		"[::1]":                  true,
		"[::1]:8081":             true,
		"[fe80::1%eth0]:8081":    true,
		"localhost":              true,
		"LocalHost.:8081":        true,
		"everpost.internal":      true,
		"EVERPOST.internal:8081": true,
		"everpost.internal.":     true,
		"a.example.com":          true,
		"a.b.example.com:8081":   true,
		"example.com":            false,
		".example.com":           false,
		"badexample.com":         false,
		"everpost.internal.evil": false,
		"evil.example":           false,
		"evil.example:8081":      false,
		"localhost.example":      false,
		"localhost@evil.example": false,
		"127.0.0.1.evil.example": false,
		"2130706433":             false,
		"evil.example:80:81":     false,
		"[evil.example]":         false,
	} {
		require.Equal(t, want, allowed.Admits(host), host)
	}
	require.True(t, hosts.Allowed{Any: true}.Admits("evil.example"))
	require.False(t, hosts.Allowed{}.Admits("everpost.internal"))
}

func ok(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

func status(h http.Handler, edit func(*http.Request)) (int, string) {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8081/debug/pprof/", http.NoBody)
	edit(r)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestCheckNamesTheSetting(t *testing.T) {
	t.Parallel()
	h := hosts.Check(http.HandlerFunc(ok), hosts.Allowed{}, "EVERPOST_ADMIN_HOSTS")
	code, _ := status(h, func(*http.Request) {})
	require.Equal(t, http.StatusOK, code)
	code, text := status(h, func(r *http.Request) { r.Host = "<script>.example" })
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, text, "EVERPOST_ADMIN_HOSTS")
	require.NotContains(t, text, "script")
}

func TestSameSite(t *testing.T) {
	t.Parallel()
	h := hosts.SameSite(http.HandlerFunc(ok))
	for _, c := range []struct {
		site, origin string
		want         int
	}{
		{"", "", http.StatusOK}, // not a browser
		{"none", "", http.StatusOK},
		{"same-origin", "", http.StatusOK},
		{"same-origin", "http://127.0.0.1:8081", http.StatusOK},
		{"same-site", "", http.StatusForbidden},
		{"cross-site", "", http.StatusForbidden},
		{"else", "", http.StatusForbidden},
		{"", "http://127.0.0.1:8081", http.StatusOK},
		{"", "http://127.0.0.1:8080", http.StatusForbidden},
		{"", "https://evil.example", http.StatusForbidden},
		{"", "null", http.StatusForbidden},
		{"", "http://%zz", http.StatusForbidden},
	} {
		code, _ := status(h, func(r *http.Request) {
			if c.site != "" {
				r.Header.Set("Sec-Fetch-Site", c.site)
			}
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
		})
		require.Equal(t, c.want, code, "%+v", c)
	}
}
