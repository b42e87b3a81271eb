package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// All patches apply to the source as it is, and change it.
func TestPlantedBugsApply(t *testing.T) {
	t.Parallel()
	bugs, err := plantedBugs()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(bugs), 12)
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			overlay, err := b.apply(t.Context(), "../..", t.TempDir())
			require.NoError(t, err, "make the patch again")
			text, err := os.ReadFile(overlay)
			require.NoError(t, err)
			require.Contains(t, string(text), ".go")
		})
	}
}

func TestPlantedBugsAreDescribed(t *testing.T) {
	t.Parallel()
	good := "What: a bug\nClasses: none\nShape: standalone\nSeeds: 3\n\n--- a/x\n"
	b, err := parseBug("x", []byte(good))
	require.NoError(t, err)
	require.Equal(t, "a bug", b.what)
	for _, line := range []string{"What: a bug\n", "Classes: none\n", "Shape: standalone\n", "Seeds: 3\n"} {
		_, err := parseBug("x", []byte(strings.Replace(good, line, "", 1)))
		require.Error(t, err, line)
	}
}
