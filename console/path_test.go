package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/console"
)

// A browser that is given the address of the server alone finds the console, and its icon.
func TestOwns(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]bool{
		"GET /": true, "HEAD /": true, "POST /": false, "GET /favicon.ico": true, "PUT /favicon.ico": false,
		"GET /console": true, "POST /console/login": true, "GET /consoles": false, "GET /docs": false, "GET /v1/tenants": false,
	} {
		method, path, _ := strings.Cut(request, " ")
		require.Equal(t, want, console.Owns(httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)), request)
	}
}
