package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/bench/internal/installation"
)

func resultWith(rows ...row) *result {
	r := &result{Machine: &installation.Machine{Cores: 2}}
	for _, one := range rows {
		r.add(one)
	}
	return r
}

// words is a text without its alignment.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

func cpuRow(inGo, inPostgres float64) row {
	return row{"throughput", "events", figures{cpuGo: inGo, cpuPostgres: inPostgres, deliveriesPerSecond: 1}}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	quick, elsewhere := resultWith(cpuRow(1, 1)), resultWith(cpuRow(1, 1))
	quick.Quick, elsewhere.Machine.Cores = true, 8
	const nothing = "no work is in both runs with its CPU"
	for _, c := range []struct {
		name     string
		old, now *result
		says     string
		err      string
	}{
		{"the same", resultWith(cpuRow(0.4, 0.2)), resultWith(cpuRow(0.4, 0.2)), "+0 % same", ""},
		{"just within", resultWith(cpuRow(0.5, 0.5)), resultWith(cpuRow(0.7, 0.49)), "+19 % same", ""},
		{"beyond, in Go", resultWith(cpuRow(0.5, 0.5)), resultWith(cpuRow(0.71, 0.5)), "+21 % WORSE", "more CPU per delivery than before: throughput"},
		{"beyond, in PostgreSQL", resultWith(cpuRow(0.5, 0.5)), resultWith(cpuRow(0.5, 0.71)), "+21 % WORSE", "more CPU per delivery than before: throughput"},
		{"less", resultWith(cpuRow(0.5, 0.5)), resultWith(cpuRow(0.3, 0.3)), "-40 % better", ""},
		{"other work", resultWith(row{"throughput", "fewer", figures{cpuGo: 1}}), resultWith(cpuRow(1, 1)), "was other work: fewer", nothing},
		{"new work", resultWith(), resultWith(cpuRow(1, 1)), "not in the run before", nothing},
		{"without /proc", resultWith(row{"throughput", "events", figures{}}), resultWith(cpuRow(1, 1)), "not measured before", nothing},
		{
			"the ceiling is not ours", resultWith(row{ceilingName, "", figures{cpuGo: 0, cpuPostgres: 1}}),
			resultWith(row{ceilingName, "", figures{cpuGo: 0, cpuPostgres: 9}}), "", nothing,
		},
		{
			"nor is it at a fixed rate", resultWith(cpuRow(1, 1), row{"ceiling-50", "", figures{cpuGo: 0, cpuPostgres: 1}}),
			resultWith(cpuRow(1, 1), row{"ceiling-50", "", figures{cpuGo: 0, cpuPostgres: 9}}), "+0 % same", "",
		},
		{"quick", resultWith(cpuRow(1, 1)), quick, "", "one of them is a quick run: they cannot be compared"},
		{"elsewhere", resultWith(cpuRow(1, 1)), elsewhere, "", "they ran on different machines: they cannot be compared"},
	} {
		text := &strings.Builder{}
		err := compare(c.old, c.now, false, text)
		if c.err == "" {
			require.NoError(t, err, c.name)
		} else {
			require.EqualError(t, err, c.err, c.name)
		}
		require.Contains(t, words(text.String()), c.says, c.name)
	}
}

// With -print runs of different machines are compared, and no figure is an error.
func TestComparePrints(t *testing.T) {
	t.Parallel()
	loop := func(ms float64) row { return row{ceilingName, "loop", figures{cpuGo: 0, cpuPostgres: ms}} }
	old, recent := resultWith(loop(0.1), cpuRow(0.5, 0.5)), resultWith(loop(0.2), cpuRow(2, 2))
	recent.Machine.Cores = 8
	var paths []string
	for _, r := range []*result{old, recent} {
		path, err := r.keep(t.TempDir())
		require.NoError(t, err)
		paths = append(paths, path)
	}
	text := &strings.Builder{}
	require.ErrorContains(t, compareCommand(paths, text, text), "different machines")
	require.NoError(t, compareCommand(append([]string{"-print"}, paths...), text, text))
	require.Contains(t, words(text.String()), "ceiling 0.10 0.20 +100 % WORSE throughput 1.00 4.00 +300 % WORSE")
}

// TestCompareOld: a stored run without rows of the plain loop at fixed rates is still read
// and compared, on either side.
func TestCompareOld(t *testing.T) {
	t.Parallel()
	const path = "results/2026-11-20-latency.json"
	old, err := load(path)
	require.NoError(t, err)
	recent, err := load(path)
	require.NoError(t, err)
	for _, m := range recent.Rows[1:] {
		m.Median[ofLoop] = 5
	}
	recent.add(row{"ceiling-50", "one endpoint, 50/s", figures{cpuGo: 0, cpuPostgres: 9, endToEndP50: 1}})
	for _, c := range [][2]*result{{old, recent}, {recent, old}} {
		text := &strings.Builder{}
		require.NoError(t, compare(c[0], c[1], false, text))
		require.Regexp(t, `latency-50 .* \+0 % +same\n`, text.String())
		require.NotContains(t, text.String(), "ceiling")
	}
}

// TestCompareCommand compares the newest stored run with the one before it, unless runs are
// named.
func TestCompareCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	compareThem := func(args ...string) (string, error) {
		text := &strings.Builder{}
		err := command(t.Context(), append([]string{"compare", "-results", dir}, args...), text, text)
		return text.String(), err
	}
	_, err := compareThem()
	require.ErrorContains(t, err, "there are not two runs to compare in "+dir)

	var paths []string
	for i := range 11 { // the tenth and eleventh are later than the second, though not by their names' letters
		path, err := resultWith(cpuRow(float64(i+1), 1)).keep(dir)
		require.NoError(t, err)
		paths = append(paths, path)
	}
	text, err := compareThem()
	require.NoError(t, err)
	require.Contains(t, text, "before: "+paths[9])
	require.Contains(t, text, "now:    "+paths[10])
	require.Contains(t, words(text), "throughput 11.00 12.00 +9 % same")

	text, err = compareThem(paths[0])
	require.ErrorIs(t, err, errRegression)
	require.Contains(t, text, "before: "+paths[0])
	require.Contains(t, text, "now:    "+paths[10])

	_, err = compareThem(paths[10], paths[0])
	require.NoError(t, err)
	_, err = compareThem(paths[0], paths[1], paths[2])
	require.Error(t, err)
	_, err = compareThem(paths[0], filepath.Join(dir, "none.json"))
	require.ErrorContains(t, err, "none.json")
	_, err = compareThem("-nonsense")
	require.ErrorIs(t, err, installation.ErrUsage)
}
