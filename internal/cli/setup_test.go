package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const operatorKey = "an operator key for tests, long enough"

// bundle is a real API on a real PostgreSQL, with the tenant acme. There is no Temporal:
// events are accepted all the same, and the test writes what a worker would write into the
// database.
type bundle struct {
	*testing.T

	url   string
	store *stores.DB
}

func setup(t *testing.T, flags ...string) *bundle {
	t.Helper()
	database := postgrestest.New(t)
	var settings config.Config
	defaults, err := kong.New(&settings)
	require.NoError(t, err)
	_, err = defaults.Parse(append([]string{
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--database-url=" + database, "--operator-key=" + operatorKey,
		"--kek=K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk=",
	}, flags...))
	require.NoError(t, err)
	a, err := app.New(t.Context(), app.Options{
		Config: settings, Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), API: true, Temporal: client.Options{HostPort: closedPort(t)},
	})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(a.Stop)
	store, err := stores.Open(t.Context(), stores.Config{URL: database, MaxConns: 2, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, _, err = store.Tenants.PutTenant(t.Context(), webhook.Actor{Name: "test"}, webhook.Tenant{ID: "acme", Name: "Acme"})
	require.NoError(t, err)
	return &bundle{t, "http://" + a.APIAddr(), store}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// result is the result of a command line.
type result struct {
	code           int
	stdout, stderr string
}

// call is a command line with its input and output.
type call struct {
	args   []string
	stdin  io.Reader
	stdout io.Writer // nil: a buffer, whose text is in the result
}

func (c call) run(t *testing.T) result {
	t.Helper()
	return c.prepare(t)()
}

// prepare is the first half of run: another goroutine may call the function that it
// returns.
func (c call) prepare(t *testing.T) func() result {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	var out bytes.Buffer
	if c.stdout == nil {
		c.stdout = &out
	}
	if c.stdin == nil {
		c.stdin = strings.NewReader("")
	}
	return func() result {
		code := cli.Main(cli.Process{Version: "1.2.3", Stdin: c.stdin, Stdout: c.stdout, Stderr: file}, c.args, &cli.Commands{})
		text, err := os.ReadFile(file.Name())
		if err != nil {
			return result{code, out.String(), err.Error()}
		}
		return result{code, out.String(), string(text)}
	}
}

// at adds the API's address. Flags come before the command's own arguments, which may be
// anything.
func at(url string, args ...string) []string {
	return append(args, "--url="+url, "--key="+operatorKey, "--tenant=acme")
}

// run runs a command against the API.
func (b *bundle) run(args ...string) result {
	b.Helper()
	return call{args: at(b.url, args...)}.run(b.T)
}

// ok runs a command that must succeed and returns what it printed.
func (b *bundle) ok(args ...string) string {
	b.Helper()
	r := b.run(args...)
	require.Zero(b, r.code, "%v: %s", args, r.stderr)
	return r.stdout
}

// json runs a command with --json and parses its output.
func (b *bundle) json(args ...string) map[string]any {
	b.Helper()
	printed := b.ok(append(args, "--json")...)
	require.Equal(b, 1, strings.Count(printed, "\n"), "one line: %s", printed)
	var v map[string]any
	require.NoError(b, json.Unmarshal([]byte(printed), &v), printed)
	return v
}

// fails runs a command that must fail and returns its one line.
func (b *bundle) fails(args ...string) string {
	b.Helper()
	r := b.run(args...)
	require.NotZero(b, r.code, "%v: %s", args, r.stdout)
	require.Equal(b, 1, strings.Count(r.stderr, "\n"), "one line: %s", r.stderr)
	return strings.TrimSuffix(r.stderr, "\n")
}

// endpoint creates an endpoint and returns its id.
func (b *bundle) endpoint(args ...string) string {
	b.Helper()
	id, ok := b.json(append([]string{"endpoints", "create", "https://example.com/hook"}, args...)...)["id"].(string)
	require.True(b, ok)
	return id
}

// send posts an event and returns its id and those of its deliveries.
func (b *bundle) send(args ...string) (event string, deliveries []string) {
	b.Helper()
	posted := b.json(append([]string{"send"}, args...)...)
	for _, d := range posted["deliveries"].([]any) {
		deliveries = append(deliveries, d.(map[string]any)["id"].(string))
	}
	return posted["id"].(string), deliveries
}

// attempted writes what a worker writes after an attempt: its status, and the delivery's
// new state. Attempts are numbered from 1.
func (b *bundle) attempted(id string, number, status int, state webhook.State) {
	b.Helper()
	b.answered(id, number, status, state, "busy")
}

// answered is attempted with the body of the receiver's response.
func (b *bundle) answered(id string, number, status int, state webhook.State, body string) {
	b.Helper()
	delivery, err := webhook.ParseDeliveryID(id)
	require.NoError(b, err)
	known, err := b.store.Deliveries.Delivery(b.Context(), "acme", delivery)
	require.NoError(b, err)
	const latency = 41 * time.Millisecond
	now := b.store.Now().UTC().Truncate(time.Microsecond)
	outcome := retry.Outcome{Decision: retry.Delivered, Reason: retry.ReasonDelivered, Status: status}
	tried := &webhook.Attempt{Number: number, Run: known.Run, StartedAt: now.Add(-latency), Latency: latency, ResponseBody: []byte(body)}
	tried.Times = webhook.Times{Names: 5 * time.Millisecond, Waiting: latency - 5*time.Millisecond}
	step := webhook.Step{Ref: known.Ref, Attempt: tried, WorkflowID: known.WorkflowID, Progress: webhook.Progress{
		Run: known.Run, Seq: number, State: state, Attempts: number, RunAttempts: number, GiveUpAt: known.GiveUpAt,
	}}
	if state != webhook.StateDelivered {
		outcome = retry.Outcome{Decision: retry.Retry, Reason: retry.HTTPReason(status), Status: status}
	}
	switch {
	case state == webhook.StateRetrying:
		tried.Delay, tried.DelaySource, step.DueAt = time.Minute, "retry_after", now.Add(time.Minute)
	case !state.Open():
		step.Reason = "max_attempts"
	}
	tried.Outcome = outcome
	_, err = b.store.Deliveries.RecordStep(b.Context(), step)
	require.NoError(b, err)
}
