package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables of the page are those of the results in the directory with its name.
func TestPageShowsTheResults(t *testing.T) {
	t.Parallel()
	const page, kept = "../../docs/reliability.md", "../../docs/reliability"
	want, err := os.ReadFile(page)
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(copied, want, 0o600))
	require.NoError(t, writeLedger(kept, copied))
	got, err := os.ReadFile(copied)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "make faults-report regenerates it")
}

func TestResultsAreKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	one := result{Class: "none", Shape: "split", Seed: 3, Acknowledged: 5, Delivered: 5, Duplicates: map[string]int{"under_way": 1}, Recovery: 1.5}
	other := result{Class: "none", Shape: "standalone", Seed: 4, Acknowledged: 7, Dead: 7, Lost: 2, Recovery: 2.5}
	for _, r := range []result{one, other} {
		require.NoError(t, appendResult(dir, r))
	}
	got, err := readResults(dir)
	require.NoError(t, err)
	require.Equal(t, []result{one, other}, got)
	require.NoError(t, keepPlanted(dir, found{Bug: "b", Seeds: 1}))
	require.NoError(t, keepPlanted(dir, found{Bug: "a", Class: "none"}))
	require.NoError(t, keepPlanted(dir, found{Bug: "b", Seeds: 2}))
	bugs, err := readPlanted(dir)
	require.NoError(t, err)
	require.Equal(t, []found{{Bug: "a", Class: "none"}, {Bug: "b", Seeds: 2}}, bugs)
	require.Contains(t, ledgerTable(got), "| `none` | 2 | 2 | 0 | 12 | 5 | 7 | 0 | 0 | 2 | 0 | 1 | 1.5 s, 2.5 s |\n")
}

func TestAMissedFaultHasNoRecovery(t *testing.T) {
	t.Parallel()
	happened := result{Class: "at-send-before", Shape: "split", Acknowledged: 5, Delivered: 5, Recovery: 1.5}
	missed := result{Class: "at-send-before", Shape: "split", Acknowledged: 7, Delivered: 7, Recovery: 9, Missed: true}
	require.Contains(t, ledgerTable([]result{happened, missed}), "| `at-send-before` | 1 | 2 | 1 | 12 | 12 | 0 | 0 | 0 | 0 | 0 | 0 | 1.5 s, 1.5 s |\n")
	require.Contains(t, ledgerTable([]result{missed}), "| `at-send-before` | 1 | 1 | 1 | 7 | 7 | 0 | 0 | 0 | 0 | 0 | 0 | – |\n")
}
