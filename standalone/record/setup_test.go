package record_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/namespace"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/standalone/internal/temporald"
	"github.com/everpost/everpost/worker"
)

const (
	// identity is what histories name as the process that did something.
	identity = "everpost"
	patience = 30 * time.Second
	key      = "an-operator-key-for-the-recorder-of-histories"
)

// installation is a whole one: PostgreSQL, Temporal, API and worker, and a receiver.
type installation struct {
	receiver *receivertest.Receiver
	temporal client.Client
	database *pgx.Conn
	api      string

	settings config.Config
	options  client.Options
}

func setup(t *testing.T) *installation {
	t.Helper()
	i := prepare(t)
	t.Cleanup(i.deploy(t, nil))
	i.call(t, http.MethodPut, "", map[string]any{})
	return i
}

// prepare makes an installation of which Everpost itself is still to be deployed.
func prepare(t *testing.T) *installation {
	t.Helper()
	dir, err := os.MkdirTemp("", "everpost-record-") //nolint:usetesting // those are closed to the database's user
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	cluster, err := localpg.Start(t.Context(), localpg.Options{Dir: dir, Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.WithoutCancel(t.Context()))) })

	url := cluster.URL(localpg.Database)
	engine, err := temporald.Start(t.Context(), temporald.Options{DatabaseURL: url, SearchAttributes: namespace.WorkflowAttributes()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, engine.Stop(ctx))
	})

	settings := config.Config{
		Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", DatabaseURL: url, OperatorKey: key,
		KEKs:      config.KEKs{KEK: "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk="},
		AllowHTTP: true, AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, ExtraPorts: config.Ports{Any: true},
		Retention: 720 * time.Hour, DeadLetterRetention: 720 * time.Hour, AuditRetention: 17520 * time.Hour, DBConnections: 37, MaxPayload: 256 << 10,
		StartSlots: 4, MaxPerWorkflow: 50,
		ReconcileEvery: time.Minute, QueueLength: 100, RunningReplays: 50, MaxHeld: 720 * time.Hour,
	}
	require.NoError(t, app.Migrate(t.Context(), settings, slog.New(slog.DiscardHandler)))
	options := client.Options{HostPort: engine.Address(), Namespace: client.DefaultNamespace, Identity: identity}

	i := &installation{receiver: receivertest.New(t), settings: settings, options: options}
	i.temporal, err = client.Dial(options)
	require.NoError(t, err)
	t.Cleanup(i.temporal.Close)
	i.database, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.database.Close(context.WithoutCancel(t.Context()))) })
	return i
}

// deploy starts Everpost, with workflows that are registered in another way unless that is nil.
func (i *installation) deploy(t *testing.T, register func(worker.Registry, *activities.Activities)) (stop func()) {
	t.Helper()
	product, err := app.New(t.Context(), app.Options{
		Config: i.settings, Version: "test", Logger: slog.New(slog.DiscardHandler), API: true, Worker: true, Temporal: i.options, Register: register,
	})
	require.NoError(t, err)
	require.NoError(t, product.Start(t.Context()))
	i.api = "http://" + product.APIAddr()
	return product.Stop
}

// call makes a request to the API and returns the response.
func (i *installation) call(t *testing.T, method, path string, body any) map[string]any {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), method, i.api+"/v1/tenants/acme"+path, bytes.NewReader(text))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Less(t, response.StatusCode, 300, "%s %s: %s", method, path, answer)
	var decoded map[string]any
	if len(answer) > 0 {
		require.NoError(t, json.Unmarshal(answer, &decoded))
	}
	return decoded
}

func (i *installation) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := i.database.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// delivery is one event on its way to an endpoint of its own.
type delivery struct {
	*installation

	id, workflowID, endpoint string

	earlier []*historypb.History // of chains before the newest one
}

// newEndpoint makes an endpoint of the test's own that waits base before each retry,
// and scripts its receiver.
func (i *installation) newEndpoint(t *testing.T, base, giveUpAfter string, script ...receivertest.Step) map[string]any {
	t.Helper()
	path := "/" + t.Name()
	i.receiver.Script(path, script...)
	return i.call(t, http.MethodPost, "/endpoints", map[string]any{
		"url": i.receiver.URL() + path, "event_types": []string{"nothing.by.itself"},
		"headers": map[string]string{"x-key": "canary"},
		"retry_policy": map[string]any{
			"strategy": "fixed", "base": base, "jitter": "none", "max_attempts": 3, "give_up_after": giveUpAfter,
		},
	})
}

// post makes an endpoint that waits base before each retry, scripts its receiver
// and posts an event for it.
func (i *installation) post(t *testing.T, base string, deliverAt time.Time, script ...receivertest.Step) delivery {
	t.Helper()
	endpoint := i.newEndpoint(t, base, "72h", script...)
	return i.postTo(t, text(t, endpoint["id"]), deliverAt)
}

// postTo posts an event for an endpoint.
func (i *installation) postTo(t *testing.T, endpoint string, deliverAt time.Time) delivery {
	t.Helper()
	event := map[string]any{"type": "order.paid", "payload": "canary", "endpoint_ids": []any{endpoint}}
	if !deliverAt.IsZero() {
		event["deliver_at"] = deliverAt.Format(time.RFC3339Nano)
	}
	accepted := i.call(t, http.MethodPost, "/events", event)
	deliveries, ok := accepted["deliveries"].([]any)
	require.True(t, ok)
	require.Len(t, deliveries, 1)
	one, ok := deliveries[0].(map[string]any)
	require.True(t, ok)
	return delivery{
		installation: i, id: text(t, one["id"]), endpoint: endpoint,
		workflowID: "delivery/" + text(t, accepted["id"]) + "/" + endpoint,
	}
}

func text(t *testing.T, value any) string {
	t.Helper()
	s, ok := value.(string)
	require.True(t, ok, "%v is no text", value)
	return s
}

// now is the delivery as the API shows it.
func (d delivery) now(t *testing.T) map[string]any {
	t.Helper()
	return d.call(t, http.MethodGet, "/deliveries/"+d.id, nil)
}

// awaits waits until the API shows the delivery in a state.
func (d delivery) awaits(t *testing.T, state string) {
	t.Helper()
	await(t, func() bool { return d.now(t)["state"] == state })
}

// await repeats satisfied until it returns true. (require.Eventually calls it in a goroutine, in which a test must not fail.)
func await(t *testing.T, satisfied func() bool) {
	t.Helper()
	awaitFor(t, patience, satisfied)
}

func awaitFor(t *testing.T, patience time.Duration, satisfied func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !satisfied(); <-tick.C {
		require.True(t, time.Now().Before(deadline), "it took too long")
	}
}

// do sends a command through the API.
func (d delivery) do(t *testing.T, command string) {
	t.Helper()
	d.call(t, http.MethodPost, "/deliveries/"+d.id+"/"+command, map[string]any{})
}
