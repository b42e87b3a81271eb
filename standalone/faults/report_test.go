package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables of the page are those of the results that are kept.
func TestPageShowsTheResults(t *testing.T) {
	t.Parallel()
	const page, kept = "../../docs/reliability.md", "results"
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
	require.Contains(t, ledgerTable(got), "| `none` | 1 | 2 | 0 | 12 | 2 | 0 | 1 | 1.5 s | 2.5 s |\n")
	require.Contains(t, ledgerTable(got), "5 delivered, 7 dead letters, 0 cancelled and 0 discarded. The runs are of 1 builds.\n")
	require.Contains(t, plantedTable(bugs), "2 bugs, 1 not found.\n\n| found by | bugs |\n|---|---|\n| **not found** | `b` |\n| `none` | `a` |\n")
}

func TestFamiliesOfClasses(t *testing.T) {
	t.Parallel()
	table := ledgerTable([]result{{Class: "kill-api", Acknowledged: 1}, {Class: "kill-worker", Acknowledged: 2}, {Class: "kill-worker"}, {Class: "none"}})
	require.Contains(t, table, "| `kill-…` | 2 | 3 | 0 | 3 | 0 | 0 | 0 | 0.0 s | 0.0 s |\n")
	_, without, _ := strings.Cut(table, "Classes without a run: ")
	require.Contains(t, without, "`kill-all`")
	require.NotContains(t, without, "`kill-api`")
}

func TestAMissedFaultHasNoRecovery(t *testing.T) {
	t.Parallel()
	happened := result{Class: "at-send-before", Shape: "split", Acknowledged: 5, Delivered: 5, Recovery: 1.5}
	missed := result{Class: "at-send-before", Shape: "split", Acknowledged: 7, Delivered: 7, Recovery: 9, Missed: true}
	require.Contains(t, ledgerTable([]result{happened, missed}), "| `at-send-before` | 1 | 2 | 1 | 12 | 0 | 0 | 0 | 1.5 s | 1.5 s |\n")
	require.Contains(t, ledgerTable([]result{missed}), "| `at-send-before` | 1 | 1 | 1 | 7 | 0 | 0 | 0 | – | – |\n")
}
