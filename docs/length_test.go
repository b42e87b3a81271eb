package docs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pages that would grow into diaries stay short: they say what holds today, and git keeps the rest.
func TestPagesStayShort(t *testing.T) {
	t.Parallel()
	for pattern, most := range map[string]int{"../README.md": 130, "adr/*.md": 50, "reliability.md": 200, "performance.md": 80, "operations.md": 250} {
		pages, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, pages, pattern)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			require.LessOrEqual(t, bytes.Count(text, []byte("\n")), most, "lines of %s", page)
		}
	}
}
