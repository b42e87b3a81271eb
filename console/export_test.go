package console

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pages are the patterns of all pages of the console that are shown without a form, and PortalPages those of the portal.
func Pages() []string       { return pagesOf(routes()) }
func PortalPages() []string { return pagesOf(portalRoutes()) }

// PortalForms are the patterns of all forms of the portal.
func PortalForms() (patterns []string) {
	for _, r := range portalRoutes() {
		if rest, found := strings.CutPrefix(r.pattern, "POST "); found {
			patterns = append(patterns, rest)
		}
	}
	return patterns
}

func pagesOf(all []route) (patterns []string) {
	for _, r := range all {
		if len(r.pattern) > 4 && r.pattern[:4] == "GET " {
			patterns = append(patterns, r.pattern[4:])
		}
	}
	return patterns
}

// LogInBurst is how many log-ins with one key are allowed at once.
const LogInBurst = logInBurst

// Limits of the streams.
const (
	MaxSessionStreams = maxSessionStreams
	MaxForm           = maxForm
)

// fillForTest executes a template over data.
func fillForTest(t *testing.T, name string, data any) string {
	t.Helper()
	s, err := New(Config{})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, s.templates.ExecuteTemplate(&b, name, data))
	return b.String()
}
