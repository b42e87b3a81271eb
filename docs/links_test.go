package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	fence   = regexp.MustCompile("(?ms)^ {0,4}```.*?\n {0,4}```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// dropped is what a heading's anchor leaves out of its text.
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Links between pages lead to files that exist, and to headings that are in them.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"../*.md", "*.md", "adr/*.md", "../deploy/*.md"} {
		absolute, err := filepath.Abs(pattern)
		require.NoError(t, err)
		found, err := filepath.Glob(absolute)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	require.Greater(t, len(pages), 20)
	anchors := map[string]map[string]bool{}
	for _, page := range pages {
		anchors[page] = anchorsOf(t, page)
	}
	for _, page := range pages {
		for _, match := range link.FindAllStringSubmatch(prose(t, page), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			_, err := os.Stat(path)
			require.NoError(t, err, "%s: %s", page, match[1])
			if anchor != "" {
				require.Contains(t, anchors, path, "%s: %s", page, match[1])
				require.True(t, anchors[path][anchor], "%s: %s: there is no such heading", page, match[1])
			}
		}
	}
}

// named is a file of this repository as the text of a page names it, by its whole path.
var named = regexp.MustCompile("`([a-z][\\w.-]*/[\\w./*-]+\\.(?:go|sql|yaml|md|svg))`")

// The files that these pages name by their path exist.
func TestNamedFilesExist(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		"../README.md", "../CONTRIBUTING.md", "architecture.md", "configuration.md", "glossary.md", "operations.md",
		"monitoring.md", "memory.md", "backup.md", "privacy.md", "several-workers.md",
	} {
		for _, match := range named.FindAllStringSubmatch(prose(t, page), -1) {
			found, err := filepath.Glob(filepath.Join("..", match[1]))
			require.NoError(t, err)
			require.NotEmpty(t, found, "%s: %s", page, match[1])
		}
	}
}

// prose is a page without its programs.
func prose(t *testing.T, page string) string {
	t.Helper()
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	return fence.ReplaceAllString(string(content), "")
}

// anchorsOf are the anchors of a page's headings, as GitHub makes them.
func anchorsOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	anchors := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(prose(t, page), -1) {
		text := link.ReplaceAllString(match[1], "")
		anchors[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(text), ""), " ", "-")] = true
	}
	return anchors
}
