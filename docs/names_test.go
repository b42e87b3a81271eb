package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// place is an identifier with the file that it is in, as a page names both: `decide` in `acquire.go`, `Client.Send` (`client.go`).
var place = regexp.MustCompile("`([A-Za-z_][\\w.]*)`(?:,? (?:there )?in | of | \\()`([\\w./-]+\\.(?:go|sql))`")

// What these pages say is in a file is in it. A file is named by its path or by the end of it.
func TestNamesAreWherePagesSay(t *testing.T) {
	t.Parallel()
	files := sources(t, ".go", ".sql")
	pages, err := filepath.Glob("adr/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "architecture.md", "glossary.md", "../CONTRIBUTING.md") {
		for _, match := range place.FindAllStringSubmatch(strings.Join(strings.Fields(prose(t, page)), " "), -1) {
			name, file := match[1][strings.LastIndex(match[1], ".")+1:], match[2]
			require.True(t, isIn(t, name, file, files), "%s: %s", page, match[0])
		}
	}
}

// isIn reports whether an identifier is in one of the files with this name.
func isIn(t *testing.T, identifier, name string, files []string) bool {
	t.Helper()
	word := regexp.MustCompile(`\b` + identifier + `\b`)
	for _, file := range files {
		if file != name && !strings.HasSuffix(file, "/"+name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		if word.Match(text) {
			return true
		}
	}
	return false
}
