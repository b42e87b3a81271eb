package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of packages has every package of all modules.
func TestTableOfPackagesIsComplete(t *testing.T) {
	t.Parallel()
	packages := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (strings.HasPrefix(name, ".") && name != ".." || name == "bin" || name == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) == ".go" {
			packages[filepath.ToSlash(filepath.Dir(strings.TrimPrefix(path, "../")))] = true
		}
		return nil
	}))
	require.Greater(t, len(packages), 30)
	text, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	for name := range packages {
		require.Contains(t, string(text), "| `"+name+"` |", "architecture.md does not list the package %s", name)
	}
}
