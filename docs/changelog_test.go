package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every release in the changelog has a version and a date, which the newest one gets when it is made, and says how to upgrade to it.
func TestChangelog(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../CHANGELOG.md")
	require.NoError(t, err)
	releases := strings.Split(string(text), "\n## ")[1:]
	require.NotEmpty(t, releases)
	title := regexp.MustCompile(`^\d+\.\d+\.\d+ \((unreleased|\d{4}-\d\d-\d\d)\)$`)
	for i, release := range releases {
		name, body, _ := strings.Cut(release, "\n")
		require.Regexp(t, title, name)
		require.True(t, i == 0 || !strings.Contains(name, "unreleased"), name)
		require.Equal(t, 1, strings.Count(body, "\n### Upgrade\n"), name)
	}
}
