package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of packages has every package of all modules.
func TestTableOfPackagesIsComplete(t *testing.T) {
	t.Parallel()
	packages := map[string]bool{}
	for _, name := range sources(t, ".go") {
		packages[filepath.ToSlash(filepath.Dir(name))] = true
	}
	require.Greater(t, len(packages), 30)
	text, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	for name := range packages {
		require.Contains(t, string(text), "| `"+name+"` |", "architecture.md does not list the package %s", name)
	}
}

// sources are the files of all modules with these extensions, by their paths in the repository.
func sources(t *testing.T, extensions ...string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (strings.HasPrefix(name, ".") && name != ".." || name == "bin" || name == "testdata") {
			return filepath.SkipDir
		}
		if slices.Contains(extensions, filepath.Ext(name)) {
			names = append(names, filepath.ToSlash(strings.TrimPrefix(path, "../")))
		}
		return nil
	}))
	return names
}
