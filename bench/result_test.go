package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/bench/internal/installation"
)

func TestKeep(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "when", "absent")
	r := resultWith(cpuRow(0.5, 0.25), cpuRow(0.7, 0.25))
	r.At, r.Runs, r.Settings = time.Date(2026, 11, 20, 23, 59, 59, 0, time.UTC), 2, map[string]string{"EVERPOST_START_SLOTS": "4"}
	r.skip("batch", errNoBatch)
	r.skip("batch", errNoBatch) // in the second round
	for _, name := range []string{"2026-11-20-1.json", "2026-11-20-2.json", "2026-11-20-3.json"} {
		path, err := r.keep(dir)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, name), path)
		again, err := load(path)
		require.NoError(t, err)
		require.Equal(t, r, again)
	}
	for _, other := range []string{"2026-11-19-12.json", "notes.json", "2026-11-20-x.json", "2026-13-01-1.json", "2026-11-20-4.txt", "2026-11-20.json"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, other), []byte("{}"), 0o600))
	}
	paths, err := kept(dir)
	require.NoError(t, err)
	for i, path := range paths {
		paths[i] = filepath.Base(path)
	}
	require.Equal(t, []string{"2026-11-19-12.json", "2026-11-20-1.json", "2026-11-20-2.json", "2026-11-20-3.json"}, paths)

	paths, err = kept(filepath.Join(dir, "nowhere"))
	require.NoError(t, err)
	require.Empty(t, paths)
}

func TestSound(t *testing.T) {
	t.Parallel()
	require.NoError(t, resultWith(cpuRow(1, 1)).sound())
	require.EqualError(t, resultWith(row{"a", "", figures{lost: 1}}, row{"a", "", figures{}}, row{"b", "", figures{duplicates: 2}}).sound(),
		"a: 1 deliveries were lost and 0 arrived once more\nb: 0 deliveries were lost and 2 arrived once more")
}

func TestRender(t *testing.T) {
	t.Parallel()
	r := resultWith(
		row{"throughput", "one endpoint", figures{
			deliveriesPerSecond: 3300.4, ofCeiling: 0.61, acceptedPerSecond: 3400, acceptP50: 5, acceptP95: 10.25, acceptP99: 20,
			endToEndP50: 6, endToEndP95: 12, endToEndP99: 24.06, cpuGo: 0.4, cpuPostgres: 0.15, cpuBench: 0.11, cpuOthers: 0.3,
			rssMax: 350, lost: 0, duplicates: 0, refused: 3,
		}},
		row{"latency-50", "50/s", figures{ofLoop: 5.26}},
		row{"elsewhere", "without /proc", figures{deliveriesPerSecond: 1}},
		row{"start", "twice", figures{firstStart: 3.04, secondStart: 0.6, stopTime: 1.2}},
	)
	r.Runs, r.Settings = 3, map[string]string{"EVERPOST_START_SLOTS": "4"}
	*r.Machine = installation.Machine{Version: "v1", Go: "go1.26.8", PostgreSQL: "15.4", Cores: 2, MemoryGiB: 23.5, System: "linux/amd64"}
	r.skip("batch", errNoBatch)
	text := &strings.Builder{}
	require.NoError(t, r.render(text))
	require.Equal(t, `everpost v1, go1.26.8, PostgreSQL 15.4, 2 cores, 23.5 GiB, linux/amd64
Medians of 3 runs; lost and twice are sums.
With EVERPOST_START_SLOTS=4.

                           of the  accepted       accepted, ms     end to end, ms  CPU per delivery, ms  bench's       RSS
            deliveries/s  ceiling  events/s    p50 / p95 / p99    p50 / p95 / p99       Go + PostgreSQL  own, ms  max, MiB  lost  twice
throughput          3300     0.61      3400  5.0 / 10.2 / 20.0  6.0 / 12.0 / 24.1           0.40 + 0.15     0.11       350     0      0
elsewhere              1        –         –                  –                  –                     –        –         –     –      –

throughput: one endpoint
  3 times the API responded with 429 or 503, and the event was posted again
  other programs used 0.3 cores meanwhile: on an idle machine the figures are better

latency-50: 50/s
  5.3 times the end-to-end p50 of the plain loop at this rate

elsewhere: without /proc

start: twice
  3.04 s from the first start to ready
  0.60 s from the second start to ready
  1.20 s from SIGTERM to the end

batch: skipped: this version has no POST …/events/batch
`, text.String())

	text.Reset()
	require.NoError(t, resultWith(row{"elsewhere", "", figures{deliveriesPerSecond: 1}}).render(text))
	require.Contains(t, text.String(), "There is no /proc on this system: CPU and memory of Everpost and PostgreSQL were not measured.\n")
}
