package console

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pages are the patterns of all pages that are shown without a form.
func Pages() (patterns []string) {
	for _, r := range routes() {
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
