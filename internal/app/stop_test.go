package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/worker"
)

// soon is how long a test waits for what must happen.
const soon = 30 * time.Second

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// parts are the parts that were stopped, in order; left are those that were not.
func (l *logged) parts(t *testing.T) (stopped, left []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		var entry struct {
			Msg  string `json:"msg"`
			Part string `json:"part"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		switch {
		case entry.Part == "":
		case entry.Msg == "stopped":
			stopped = append(stopped, entry.Part)
		default:
			left = append(left, entry.Part)
		}
	}
	return slices.Compact(stopped), left
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// eventually waits until there is something.
func eventually(t *testing.T, list func() []string) []string {
	t.Helper()
	require.Eventually(t, func() bool { return len(list()) > 0 }, soon, time.Millisecond)
	return list()
}

// R11: a request that the API has accepted is carried through by all that comes after
// it: stored, and started at Temporal, before the worker stops; the writers end
// before the connection to Temporal. Meanwhile the process says that it is stopping.
func TestR11OrderOfStopping(t *testing.T) {
	t.Parallel()
	temporal, log := newFrontend(t), &logged{}
	o := options(t, postgrestest.New(t))
	o.Worker, o.Temporal.HostPort, o.Logger = true, temporal.address, log.logger()
	a, err := New(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	api, admin := "http://"+a.APIAddr(), "http://"+a.AdminAddr()
	status, _ := call(t, "PUT", api+"/v1/tenants/acme", `{"name":"Acme"}`)
	require.Equal(t, http.StatusCreated, status)
	status, answer := call(t, "POST", api+"/v1/tenants/acme/endpoints", `{"url":"https://example.com/hook","event_types":["*"]}`)
	require.Equal(t, http.StatusCreated, status, answer)
	status, answer = call(t, "GET", admin+"/readyz", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{"status": "ok", "postgresql": "ok", "temporal": "ok", "worker": "ok"}, answer)

	// One for later: a request of its own would not be sent eagerly.
	body := `{"type":"order.paid","payload":{},"deliver_at":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`
	slow, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", a.APIAddr())
	require.NoError(t, err)
	defer func() { _ = slow.Close() }()
	// With "100 Continue" the server says that the handler has begun to read the body.
	_, err = fmt.Fprintf(slow, "POST /v1/tenants/acme/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", operatorKey, len(body))
	require.NoError(t, err)
	reader := bufio.NewReader(slow)
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "100 Continue")

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.Stop()
	}()
	require.Eventually(t, func() bool { return a.stopping.Load() }, soon, time.Millisecond)
	status, answer = call(t, "GET", admin+"/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, map[string]any{"status": "stopping"}, answer)
	require.Empty(t, temporal.called(), "the worker waits for the API")

	_, err = io.WriteString(slow, body)
	require.NoError(t, err)
	_, err = reader.ReadString('\n') // the empty line after 100 Continue
	require.NoError(t, err)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusAccepted, response.StatusCode)
	<-stopped

	calls := temporal.called()
	require.NotEmpty(t, calls)
	require.Equal(t, "start", calls[0])
	require.NotContains(t, calls[1:], "start")
	require.Contains(t, calls, "shutdown")
	order, left := log.parts(t)
	require.Empty(t, left)
	require.Equal(t, []string{
		phaseAPI, phaseStarts, phaseWorker, phaseRequests, phaseSender, phaseNotifier, phaseMonitor, phaseStatistics, phaseGuard, phaseListener,
		phaseAdmin, phaseMaintenance, phaseBackground, phaseStore, phaseClient,
	}, order)
}

// A part that does not end takes no more than the time of all; what comes after it
// is stopped all the same, and what may be under way is cut off before.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	log := &logged{}
	a := &App{log: log.logger(), stops: stops{log: log.logger(), patience: recordTime + 50*time.Millisecond}}
	release, last, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	a.push(phaseStore, func(context.Context) { close(last) })
	a.push(phaseRequests, func(context.Context) {
		<-release
		close(left)
	})
	var all, work time.Time
	a.push(phaseWorker, func(ctx context.Context) {
		cut, cancel := untilCut(ctx)
		defer cancel()
		all, _ = ctx.Deadline()
		work, _ = cut.Deadline()
		await(cut, nil)
	})
	begun := time.Now()
	a.Stop()
	took := time.Since(begun)
	require.GreaterOrEqual(t, took, a.patience, "the part had all the time there is")
	require.Less(t, took, soon)
	<-last
	require.Equal(t, recordTime, all.Sub(work))
	require.Contains(t, func() []string { _, left := log.parts(t); return left }(), phaseRequests)
	close(release)
	<-left
}

// The promise to end within 40 s has room for Temporal and PostgreSQL.
func TestStopTimeHoldsAnAttempt(t *testing.T) {
	t.Parallel()
	require.Greater(t, StopTime-recordTime, 30*time.Second, "an attempt's deadline")
	require.LessOrEqual(t, StopTime, 35*time.Second)
}

// A worker that gives up, here because its namespace is gone, is put out of service
// and replaced as soon as another can be started.
func TestWorkerThatGivesUpIsReplaced(t *testing.T) {
	t.Parallel()
	for _, withAPI := range []bool{false, true} {
		t.Run(fmt.Sprintf("api %t", withAPI), func(t *testing.T) {
			t.Parallel()
			temporal := newFrontend(t)
			o := options(t, postgrestest.New(t))
			o.API, o.Worker, o.Temporal.HostPort = withAPI, true, temporal.address
			a, err := New(t.Context(), o)
			require.NoError(t, err)
			// The SDK gives up after two minutes of such errors; the test says it for it.
			giveUp := make(chan func(error), 2)
			a.newWorker = func(c client.Client, acts *activities.Activities, fatal func(error)) (*worker.Worker, error) {
				w, err := worker.Start(c, acts, worker.Options{Fatal: fatal})
				if err == nil {
					giveUp <- fatal
				}
				return w, err
			}
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(a.Stop)
			ready := func() (int, map[string]any) { return call(t, "GET", "http://"+a.AdminAddr()+"/readyz", "") }
			require.Eventually(t, a.working.Load, soon, time.Millisecond)
			status, answer := ready()
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "ok", answer["status"])

			temporal.lose()
			fatal := <-giveUp
			fatal(errors.New("namespace default is not found"))
			fatal(errors.New("again, from another poller"))
			require.Eventually(t, func() bool { return !a.working.Load() }, soon, time.Millisecond)
			status, answer = ready()
			require.Equal(t, "not running", answer["worker"])
			if withAPI {
				require.Equal(t, http.StatusOK, status)
				require.Equal(t, "degraded", answer["status"], "events are accepted all the same")
			} else {
				require.Equal(t, http.StatusServiceUnavailable, status)
				require.Equal(t, "unavailable", answer["status"])
			}

			require.Contains(t, eventually(t, temporal.called), "shutdown", "the old one was stopped")
			require.Empty(t, giveUp, "no other can be started yet")
			temporal.find()
			require.Eventually(t, a.working.Load, soon, time.Millisecond)
			status, answer = ready()
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "ok", answer["worker"])
		})
	}
}
