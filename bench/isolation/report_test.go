package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	r := &report{Name: "hang"}
	require.Equal(t, "NOT MEASURED", r.verdict())
	r.atMost("p99", 10, 10, "ms")
	r.exactly("lost", 0, 0, "events")
	require.Equal(t, "met", r.verdict())
	require.NoError(t, (&result{Reports: []*report{r}}).sound())
	r.atMost("p50", 10.01, 10, "ms")
	require.Equal(t, "NOT MET", r.verdict())
	require.EqualError(t, (&result{Reports: []*report{r}}).sound(), "hang: p50: 10.01 ms, the limit is 10")

	less := &report{Name: "less"}
	less.exactly("requests", 19, 20, "")
	require.Equal(t, "NOT MET", less.verdict(), "neither more nor less")
}

func TestCompare(t *testing.T) {
	t.Parallel()
	of := func(ms ...int) *outcome {
		o := &outcome{}
		for _, d := range ms {
			o.latencies = append(o.latencies, time.Duration(d)*time.Millisecond)
		}
		return o
	}
	for during, met := range map[int]bool{16: true, 17: false} {
		r := &report{}
		r.compare("the other", of(1, 10), of(1, during), 0.1, 5)
		require.Equal(t, met, r.verdict() == "met", "%d ms against 10", during)
	}
	r := &report{}
	r.compare("the other", of(10), &outcome{latencies: of(1).latencies, missing: 1}, 0.1, 5)
	require.Equal(t, "NOT MET", r.verdict(), "what is lost has no latency")
}

func TestRenderAndKeep(t *testing.T) {
	t.Parallel()
	one := &report{Name: "hang", About: "one hangs", Others: 1.5, Curves: []curve{{"with", []int{1, 2}}}}
	one.figure("p50", 12345.678, "ms")
	one.atMost("p99", 7, 5, "ms")
	r := &result{At: time.Date(2026, 11, 20, 1, 2, 3, 0, time.UTC), Reports: []*report{one}}
	text := &strings.Builder{}
	require.NoError(t, r.render(text))
	for _, want := range []string{"hang: NOT MET\n  one hangs\n", "12345.68 ms\n", "7 ms (limit 5): NOT MET\n", "other programs used 1.5 cores"} {
		require.Contains(t, text.String(), want)
	}

	dir := filepath.Join(t.TempDir(), "results")
	for _, name := range []string{"isolation-2026-11-20-1.json", "isolation-2026-11-20-2.json"} {
		path, err := r.keep(dir)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, name), path)
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		var again result
		require.NoError(t, json.Unmarshal(kept, &again))
		require.Equal(t, *r, again)
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := r.keep(file)
	require.ErrorContains(t, err, "keep the figures: ")
}
