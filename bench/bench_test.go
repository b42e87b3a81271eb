package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/bench/internal/installation"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.Remove(builtBinary()) // it may never have been made
		os.Exit(code)
	}))
}

func builtBinary() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("everpost-bench-test-%d", os.Getpid()))
}

// binaryForTests builds the standalone binary, unless EVERPOST_TEST_BINARY names one.
var binaryForTests = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("EVERPOST_TEST_BINARY"); given != "" {
		return filepath.Abs(given)
	}
	out := builtBinary()
	command := exec.Command("go", "build", "-buildvcs=false", "-o", out, ".")
	command.Dir = filepath.Join("..", "standalone")
	if text, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, text)
	}
	return out, nil
})

// tiny is as little work as still covers every line.
func tiny() size {
	return size{
		warmUp: 20, events: 100, fanOut: 10, batched: 250, retried: 20, broken: 10, paces: []pace{{40, 1}}, waiting: 150, rounds: 1,
		growth: grown{history{days: 2, perDay: 50, payload: 64}, pace{40, 1}, pace{40, 1}, 2},
		pages: pages{
			history: history{days: 2, perDay: 100, payload: 64, deadEvery: 10}, endpoints: 20, waiting: 20, busy: 3,
			looks: 2, watchers: 2, beside: pace{40, 1}, turns: 1,
		},
		rest: time.Second, linger: 100 * time.Millisecond, stall: time.Minute, patience: time.Minute, profile: time.Second, report: time.Second,
	}
}

// setup returns a run of tiny work in a directory that must be empty afterwards.
func setup(t *testing.T) (*bench, options) {
	t.Helper()
	binary, err := binaryForTests()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "everpost-bench-test-") //nolint:usetesting // as root, the database's user has to come through
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, entries, "nothing is left behind")
		require.NoError(t, os.Remove(dir))
		requireNoProcess(t, dir)
	})
	o := options{binary: binary, dir: dir, runs: 1, size: tiny(), progress: &bytes.Buffer{}}
	b := &bench{options: o, padding: newPadding()}
	b.receiver, err = startReceiver(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.receiver.stop()) })
	return b, o
}

// requireNoProcess requires that no process has the directory in its command line.
func requireNoProcess(t *testing.T, dir string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil {
			require.NotContains(t, string(line), dir, "%s is of a process left running", path)
		}
	}
}

// TestBench measures end to end and checks what is printed and stored. It checks no figure
// against a threshold: other tests run at the same time.
func TestBench(t *testing.T) {
	t.Parallel()
	_, o := setup(t)
	o.only, o.settings = []string{"throughput", "start"}, map[string]string{"EVERPOST_LOG_LEVEL": "warn"}
	o.profiles = filepath.Join(t.TempDir(), "profiles")
	results := t.TempDir()
	stdout, stderr := &strings.Builder{}, &strings.Builder{}
	o.progress = stderr
	require.NoError(t, measureCommand(t.Context(), o, results, stdout, stderr))
	t.Logf("%s%s", stdout, stderr)

	require.Contains(t, stderr.String(), "run 1 of 1: throughput")
	paths, err := kept(results)
	require.NoError(t, err)
	require.Len(t, paths, 1)
	require.Contains(t, stderr.String(), "kept as "+paths[0])
	r, err := load(paths[0])
	require.NoError(t, err)
	require.Equal(t, []string{"ceiling", "throughput", "start"}, names(r))
	require.Equal(t, o.settings, r.Settings)
	require.Positive(t, r.Machine.Cores)
	require.NotEmpty(t, r.Machine.Version)
	require.Equal(t, runtime.Version(), r.Machine.Go)
	require.Regexp(t, `^\d+`, r.Machine.PostgreSQL)
	for _, m := range r.Rows {
		require.Len(t, m.Rounds, 1, m.Name)
		require.Equal(t, median(m.Rounds), m.Median)
	}
	throughput := r.row("throughput")
	requireMeasured(t, throughput, acceptedPerSecond, ofCeiling)
	require.Zero(t, throughput.Median[lost])
	for _, m := range []metric{firstStart, secondStart, stopTime} {
		require.Positive(t, r.row("start").Median[m], m)
	}
	require.Contains(t, words(stdout.String()), fmt.Sprintf("throughput %.0f %.2f ", throughput.Median[deliveriesPerSecond], throughput.Median[ofCeiling]))
	require.Contains(t, stdout.String(), "One run, not a median.")

	for _, name := range []string{"throughput-cpu-1", "throughput-allocs-1"} {
		text, err := os.ReadFile(filepath.Join(o.profiles, name+".pprof"))
		require.NoError(t, err)
		require.Equal(t, []byte{0x1f, 0x8b}, text[:2], "pprof's files are gzipped")
	}
	require.NoError(t, command(t.Context(), []string{"compare", "-results", results, paths[0], paths[0]}, stdout, stderr))
}

func names(r *result) []string {
	var all []string
	for _, m := range r.Rows {
		all = append(all, m.Name)
	}
	return all
}

// requireMeasured checks that a row has the figures of every row of deliveries, and further
// ones.
func requireMeasured(t *testing.T, m *measured, further ...metric) {
	t.Helper()
	wanted := slices.Concat(further, []metric{deliveriesPerSecond, endToEndP50, endToEndP95, endToEndP99, cpuBench})
	if _, ok := installation.UsageOf(os.Getpid()); ok {
		wanted = append(wanted, cpuGo, cpuPostgres, rssMax)
	}
	for _, name := range wanted {
		require.Positive(t, m.Median[name], "%s of %s", name, m.Name)
	}
	require.Contains(t, m.Median, lost)
	require.Zero(t, m.Median[duplicates], m.Name)
}

// TestWorks runs every other work once, on one installation.
func TestWorks(t *testing.T) {
	t.Parallel()
	long(t)
	b, _ := setup(t)
	in, err := b.fresh(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, in.End()) })
	for _, w := range []work{b.fanOutWork(), b.batchWork(), b.retriesWork(false), b.retriesWork(true)} {
		f, err := b.measure(t.Context(), in, w)
		require.NoError(t, err, w.name)
		m := &measured{Name: w.name, Median: f}
		requireMeasured(t, m)
		require.Zero(t, f[lost], w.name)
		if strings.HasPrefix(w.name, "retries") {
			require.GreaterOrEqual(t, f[endToEndP50], 900.0, "the second attempt comes a second later")
		}
	}
	require.Zero(t, b.receiver.unexpected.Load(), "all that arrived is known")

	b.size.patience = 20 * pollInterval
	_, err = b.measure(t.Context(), in, work{name: "slow", events: 1000, endpoints: 1, connections: 2, batch: 1, rate: 1})
	require.ErrorIs(t, err, errTooSlow)

	_, err = in.api.postEvents(t.Context(), false, []byte(`{"type":"bench.a"}`))
	failed, ok := errors.AsType[*installation.StatusError](err)
	require.True(t, ok, err)
	require.Equal(t, 400, failed.Status)
	in.api.Base += "/elsewhere"
	_, err = in.api.postEvents(t.Context(), true, []byte(`{}`))
	require.ErrorIs(t, err, errNoBatch)
}

// TestLatency: the plain loop keeps the rate as well, and the installation's ratio to it is
// reported.
func TestLatency(t *testing.T) {
	t.Parallel()
	long(t)
	b, _ := setup(t)
	b.size.paces = append(b.size.paces, pace{80, 1})
	rows, err := latency(t.Context(), b)
	require.NoError(t, err)
	r := resultWith(rows...)
	require.Equal(t, []string{"ceiling-40", "ceiling-80", "latency-40", "latency-80"}, names(r))
	for i, p := range b.size.paces {
		loop, m := r.Rows[i], r.Rows[len(b.size.paces)+i]
		require.Equal(t, fmt.Sprintf("one endpoint, %d/s for 0.5 s, 1 KiB each, insert a row with commit, POST it: no engine", p.rate), loop.About)
		require.NotContains(t, loop.Median, acceptP50)
		require.NotContains(t, loop.Median, ofLoop)
		require.Positive(t, loop.Median[endToEndP50])
		for one, events := range map[*measured]int{loop: p.rate / 2, m: p.rate} {
			require.Zero(t, one.Median[lost], one.Name)
			require.LessOrEqual(t, one.Median[deliveriesPerSecond], float64(events*p.rate)/float64(events-1), "%s: none comes before it is due", one.Name)
		}
		requireMeasured(t, m, acceptedPerSecond)
		require.InDelta(t, m.Median[endToEndP50]/loop.Median[endToEndP50], m.Median[ofLoop], 0.001)
	}
	require.Zero(t, b.ceiling, "a paced loop is no ceiling of deliveries/s")
}

// TestWaiting checks both rows and the ratios between them.
func TestWaiting(t *testing.T) {
	t.Parallel()
	long(t)
	b, _ := setup(t)
	rows, err := waiting(t.Context(), b)
	require.NoError(t, err)
	r := resultWith(rows...)
	require.Equal(t, []string{"waiting-before", "waiting-beside"}, names(r))
	for _, m := range r.Rows {
		requireMeasured(t, m, acceptedPerSecond)
		require.Zero(t, m.Median[lost])
		require.Contains(t, m.Median, restGo)
		require.Contains(t, m.Median, restPostgres)
		require.Positive(t, m.Median[rssRest])
	}
	before, beside := r.Rows[0].Median, r.Rows[1].Median
	require.InDelta(t, beside[acceptedPerSecond]/before[acceptedPerSecond], beside[acceptRatio], 0.001)
	require.InDelta(t, beside[deliveriesPerSecond]/before[deliveriesPerSecond], beside[throughputRatio], 0.001)
	require.Positive(t, beside[fillTime])
}

// TestInterrupted: a signal during the work, or during a start, leaves nothing behind;
// setup's clean-up checks that.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]func(b *bench) bool{
		"at work": func(b *bench) bool {
			worked := false
			b.receiver.ledgers.Range(func(_, found any) bool {
				l, _ := found.(*ledger)
				worked = l.work.name == "throughput" && l.done.Load() > 50
				return !worked
			})
			return worked
		},
		"starting": func(b *bench) bool {
			logs, err := filepath.Glob(filepath.Join(b.dir, "*", "data", "postgres*"))
			return err == nil && len(logs) > 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setup(t)
			b.size.events = 1e6
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error)
			go func() {
				_, err := throughput(ctx, b)
				ended <- err
			}()
			tick := time.NewTicker(pollInterval)
			defer tick.Stop()
			for !when(b) {
				select {
				case err := <-ended:
					require.NoError(t, err, "it ended by itself")
				case <-tick.C:
				}
			}
			cancel(errStopIt)
			require.ErrorIs(t, <-ended, errStopIt)
		})
	}
}

// long skips a test that starts installations for a single scenario: TestBench and TestWorks measure with what it uses.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("EVERPOST_TEST_LONG") == "" {
		t.Skip("starts several installations: set EVERPOST_TEST_LONG")
	}
}

// TestAll runs the command like a user, with tiny sizes.
func TestAll(t *testing.T) {
	t.Parallel()
	long(t)
	_, o := setup(t)
	text, results := &strings.Builder{}, t.TempDir()
	require.NoError(t, measureCommand(t.Context(), o, results, text, text))
	paths, err := kept(results)
	require.NoError(t, err)
	r, err := load(paths[0])
	require.NoError(t, err)
	require.Equal(t, []string{
		"ceiling", "throughput", "fan-out-10", "batch-100", "ceiling-40", "latency-40", "retries", "retries-breaker", "start", "waiting-before",
		"waiting-beside", "growth-empty", "growth-beside", "growth-steady-empty", "growth-steady-beside", "growth-retention",
	}, names(r))
	require.Empty(t, r.Skipped)
	for _, m := range r.Rows {
		require.True(t, slices.Contains(strings.Fields(text.String()), m.Name+":"), m.Name)
	}
	raw, err := os.ReadFile(paths[0])
	require.NoError(t, err)
	require.True(t, json.Valid(raw))
}

// TestNoBinary: the error contains the remedy.
func TestNoBinary(t *testing.T) {
	t.Parallel()
	err := command(t.Context(), []string{"-binary", filepath.Join(t.TempDir(), "everpost"), "-results="}, &strings.Builder{}, &strings.Builder{})
	require.ErrorContains(t, err, "make build makes it")
}

// TestGrowth writes a history that the store finds, and has retention remove it.
func TestGrowth(t *testing.T) {
	t.Parallel()
	long(t)
	b, _ := setup(t)
	rows, err := growth(t.Context(), b)
	require.NoError(t, err)
	r := resultWith(rows...)
	require.Equal(t, []string{"growth-empty", "growth-beside", "growth-steady-empty", "growth-steady-beside", "growth-retention"}, names(r))
	for _, m := range r.Rows {
		requireMeasured(t, m)
		require.Zero(t, m.Median[lost])
	}
	require.Positive(t, r.row("growth-beside").Median[throughputRatio])
	require.Positive(t, r.row("growth-steady-beside").Median[latencyRatio])
	require.Positive(t, r.row("growth-retention").Median[retainTime])
}

// TestPages looks at every page of a small installation.
func TestPages(t *testing.T) {
	t.Parallel()
	long(t)
	b, _ := setup(t)
	rows, err := lookAtPages(t.Context(), b)
	require.NoError(t, err)
	r := resultWith(rows...)
	for _, kind := range pageKinds() {
		m := r.row("page-" + kind.name)
		require.Positive(t, m.Median[pageP95], kind.name)
		require.Positive(t, m.Median[pageKiB], kind.name)
	}
	for _, name := range []string{"pages-alone", "pages-watched"} {
		requireMeasured(t, r.row(name))
		require.Zero(t, r.row(name).Median[lost])
	}
	require.Positive(t, r.row("pages-watched").Median[p99Ratio])
	text := &strings.Builder{}
	require.NoError(t, r.render(text))
	require.Contains(t, text.String(), "a page, ms")
}

// TestPast checks that the history equals rows that the store itself writes, as far as they
// can be read.
func TestPast(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	in, err := b.fresh(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, in.End()) })
	require.NoError(t, b.warmUp(t.Context(), in))
	past, err := openPast(t.Context(), in)
	require.NoError(t, err)
	t.Cleanup(func() { past.close(context.WithoutCancel(t.Context())) })
	count := func(table string) (n int) {
		require.NoError(t, past.connection.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n))
		return n
	}
	tables := []string{"events", "deliveries", "attempts", "idempotency_keys"}
	require.Eventually(t, func() bool { return count("attempts") == b.size.warmUp }, time.Minute, pollInterval, "all arrivals are recorded")
	before := map[string]int{}
	for _, table := range tables {
		before[table] = count(table)
	}
	require.NoError(t, past.write(t.Context(), b.size.growth.history))
	for _, table := range tables {
		require.Equal(t, before[table]+b.size.growth.deliveries(), count(table), table)
	}
	for _, table := range tables[:3] {
		require.Zero(t, count(table+"_default"), "each day has a partition")
	}
	n, err := in.api.count(t.Context(), "", b.size.warmUp+b.size.growth.deliveries(), "delivered")
	require.NoError(t, err)
	require.Equal(t, b.size.warmUp+b.size.growth.deliveries(), n, "the API shows them")
	require.NoError(t, past.killOne(t.Context()))
	require.NoError(t, past.retain(t.Context(), b.size.growth.history))
	for _, table := range tables {
		require.Equal(t, before[table]+1, count(table), "%s: those of the dead letter stay", table)
	}
}
