package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
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
	return filepath.Join(os.TempDir(), fmt.Sprintf("everpost-isolation-test-%d", os.Getpid()))
}

// binaryForTests builds the standalone binary, unless EVERPOST_TEST_BINARY names one.
var binaryForTests = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("EVERPOST_TEST_BINARY"); given != "" {
		return filepath.Abs(given)
	}
	command := exec.Command("go", "build", "-buildvcs=false", "-o", builtBinary(), ".")
	command.Dir = filepath.Join("..", "..", "standalone")
	if text, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, text)
	}
	return builtBinary(), nil
})

func newLab() *lab { return &lab{began: time.Now(), options: options{progress: &bytes.Buffer{}}} }

// TestScenario runs one tiny scenario from the command line. Its latencies are not checked:
// other tests run at the same time.
func TestScenario(t *testing.T) {
	t.Parallel()
	binary, err := binaryForTests()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "everpost-isolation-test-") //nolint:usetesting // as root, the database's user has to come through
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.Remove(dir), "nothing is left behind") })
	tiny := quickSize()
	tiny.base, tiny.backlog = time.Second, 150
	r, err := measureAll(t.Context(), options{binary: binary, dir: dir, only: []string{hangName}, size: tiny, progress: &bytes.Buffer{}})
	require.NoError(t, err)
	require.Len(t, r.Reports, 1)
	got := map[string]float64{}
	for _, c := range r.Reports[0].Criteria {
		got[c.Text] = c.Got
	}
	require.Zero(t, got["the other endpoint, end to end: lost or twice, exactly"])
	require.InDelta(t, 10, got["connections of the receiver that hangs, at once"], 0, "all places are taken, and no more")
	require.Positive(t, got["the other endpoint, end to end, during: p99"])
	text := &strings.Builder{}
	require.NoError(t, r.render(text))
	require.Contains(t, text.String(), hangName+": ")
}

// TestReceiver checks each behaviour, what is recorded, and the maximum of concurrent
// requests.
func TestReceiver(t *testing.T) {
	t.Parallel()
	p := &place{lab: newLab()}
	r, err := p.receive(t.Context(), answers)
	require.NoError(t, err)
	client := installation.NewHTTPClient()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		require.NoError(t, r.stop())
	})
	ask := func(ctx context.Context, id string) (int, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base, strings.NewReader("{}"))
		require.NoError(t, err)
		request.Header.Set("webhook-id", id) //nolint:canonicalheader // as it is written in the contract
		response, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	for _, c := range []struct {
		manner manner
		status []int
	}{{answers, []int{200, 200}}, {fails, []int{503, 503}}, {alternate, []int{200, 503}}, {refuses, []int{400, 400}}} {
		r.become(c.manner, 0)
		for _, want := range c.status {
			status, err := ask(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, want, status)
		}
	}
	good := 0
	for _, a := range r.soFar() {
		require.Equal(t, "a", a.event)
		if a.good {
			good++
		}
	}
	require.Equal(t, 3, good)

	r.become(hangs, 0)
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			_, err := ask(t.Context(), "b")
			require.Error(t, err)
		})
	}
	both, err := wait(t.Context(), time.Minute, func() bool { return r.underWay() == 2 })
	require.NoError(t, err)
	require.True(t, both)
	requests, connections := r.atOnce()
	require.Equal(t, []int{2, 2}, []int{requests, connections})
	r.become(answers, 0)
	asking.Wait()
	ended, err := wait(t.Context(), time.Minute, func() bool { return r.underWay() == 0 })
	require.NoError(t, err)
	require.True(t, ended)
	r.resetMost()
	requests, _ = r.atOnce()
	require.Zero(t, requests)
}

func TestClosedPort(t *testing.T) {
	t.Parallel()
	address, release, err := closedPort()
	require.NoError(t, err)
	defer release()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	require.NoError(t, err)
	_, err = installation.NewHTTPClient().Do(request)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestFlow: events are posted when they are due, whatever happens to them, and none after
// the end.
func TestFlow(t *testing.T) {
	t.Parallel()
	l := newLab()
	l.began = time.Now()
	posts, err := l.run(t.Context(), flow{rate: 100, lasts: 200 * time.Millisecond, one: func(_ context.Context, i int) (string, error) {
		return strconv.Itoa(i), nil
	}})
	require.NoError(t, err)
	require.Len(t, posts, 20)
	for i, p := range posts {
		require.Equal(t, strconv.Itoa(i), p.event)
		require.Equal(t, time.Duration(i)*10*time.Millisecond, p.due-posts[0].due)
	}

	stop := make(chan struct{})
	posts, err = l.run(t.Context(), flow{rate: 1, lasts: time.Hour, stop: stop, one: func(context.Context, int) (string, error) {
		close(stop)
		return "only", nil
	}})
	require.NoError(t, err)
	require.Len(t, posts, 1)

	broken := errors.New("broken")
	_, err = l.run(t.Context(), flow{rate: 100, lasts: time.Hour, one: func(context.Context, int) (string, error) { return "", broken }})
	require.ErrorIs(t, err, broken)
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	held, err := wait(t.Context(), 2*pollInterval, func() bool { return false })
	require.NoError(t, err)
	require.False(t, held)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(installation.ErrUsage)
	_, err = wait(ctx, time.Hour, func() bool { return false })
	require.ErrorIs(t, err, installation.ErrUsage)
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-only", "nothing"}, `there is no "nothing"; there are hang, dead-100, recovery, pause, breaker, fairness`},
		{[]string{"-endpoints", "7"}, "-endpoints: is 7, must be at least 300"},
		{[]string{"-set", "A"}, "usage"},
		{[]string{"more"}, `"more" is not expected`},
		{[]string{"-binary", filepath.Join(t.TempDir(), "everpost")}, "make build makes it"},
	} {
		err := command(t.Context(), append(c.args, "-results="), &strings.Builder{}, &strings.Builder{})
		require.ErrorContains(t, err, c.says, "%v", c.args)
	}
	o, results, err := parse([]string{"-quick", "-endpoints", "500", "-only", "hang,pause", "-set", "A=b=c"}, &strings.Builder{})
	require.NoError(t, err)
	require.Equal(t, "bench/results", results)
	require.Equal(t, 500, o.size.endpoints)
	require.Equal(t, quickSize().backlog, o.size.backlog)
	require.Equal(t, []string{"hang", "pause"}, o.only)
	require.Equal(t, map[string]string{"A": "b=c"}, o.settings)
}

func TestMetric(t *testing.T) {
	t.Parallel()
	const page = "# HELP a b\na_total{to=\"closed\"} 3\na_total{to=\"open\"} 1.5e+01\n"
	n, err := metric(strings.NewReader(page), `a_total{to="open"}`)
	require.NoError(t, err)
	require.InDelta(t, 15, n, 0)
	n, err = metric(strings.NewReader(page), `b_total`)
	require.NoError(t, err)
	require.Zero(t, n)
}

// TestConnectionsAtOnce: a connection that ends when another begins does not count as
// concurrent, although the receiver notices its end a little later.
func TestConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		stays []stay
		want  int
	}{
		{nil, 0},
		{[]stay{{0, s}}, 1},
		{[]stay{{0, s}, {s, 2 * s}}, 1},
		{[]stay{{0, s}, {s - hearing/2, 2 * s}}, 1},
		{[]stay{{0, s}, {s - 2*hearing, 2 * s}}, 2},
		{[]stay{{0, 3 * s}, {s, 2 * s}, {s, 3 * s}}, 3},
		{[]stay{{0, hearing / 2}, {s, s + hearing/2}}, 1},
	} {
		r := &receiver{lab: newLab(), closed: c.stays}
		_, connections := r.atOnce()
		require.Equal(t, c.want, connections, "%v", c.stays)
	}
}
