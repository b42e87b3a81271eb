package app

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

const (
	operatorKey = "an operator key for tests, long enough"
	kek         = "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk="
)

// options are those of a process without a Temporal.
func options(t *testing.T, databaseURL string) Options {
	t.Helper()
	return Options{
		Config: config.Config{
			Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", DatabaseURL: databaseURL, OperatorKey: operatorKey, KEKs: config.KEKs{KEK: kek},
			Retention: 720 * time.Hour, DeadLetterRetention: 720 * time.Hour, AuditRetention: 17520 * time.Hour, StartSlots: 4, DBConnections: 37,
			MaxPayload:     256 << 10,
			MaxPerWorkflow: 50, ReconcileEvery: time.Minute, QueueLength: 100, RunningReplays: 50, MaxHeld: 720 * time.Hour,
		},
		Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), API: true, Temporal: client.Options{HostPort: closedPort(t)},
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// start starts a process that stops with the test.
func start(t *testing.T, o Options) *App {
	t.Helper()
	a, err := New(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(a.Stop)
	return a
}

// call makes a request and reads its answer.
func call(t *testing.T, method, url, body string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+operatorKey)
	request.Header.Set("Content-Type", "application/json")
	request.Close = true
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var answer map[string]any
	if bytes.HasPrefix(text, []byte("{")) {
		require.NoError(t, json.Unmarshal(text, &answer))
	} else {
		answer = map[string]any{"text": string(text)}
	}
	return response.StatusCode, answer
}

// Each setting that cannot be used is named, and no secret is shown.
func TestBadConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*config.Config)
		want  string
	}{
		"listen":       {func(c *config.Config) { c.Listen = "8080" }, "EVERPOST_LISTEN"},
		"database":     {func(c *config.Config) { c.DatabaseURL = "mysql://canary@x/y" }, "EVERPOST_DATABASE_URL"},
		"database URL": {func(c *config.Config) { c.DatabaseURL = "postgres://u:canary@x/y?sslmode=perhaps" }, "EVERPOST_DATABASE_URL"},
		"KEK":          {func(c *config.Config) { c.KEK = "canary" }, "EVERPOST_KEK: "},
		"KEK file":     {func(c *config.Config) { c.KEK, c.KEKFile = "", "/does/not/exist" }, "EVERPOST_KEK_FILE: "},
		"CA file":      {func(c *config.Config) { c.CAFile = "/does/not/exist" }, "EVERPOST_CA_FILE: open /does/not/exist: no such file"},
		"every CIDR":   {func(c *config.Config) { c.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} }, "EVERPOST_ALLOWED_CIDRS: "},
		"operator key": {func(c *config.Config) { c.OperatorKey = "canary" }, "EVERPOST_OPERATOR_KEY"},
		"slots":        {func(c *config.Config) { c.StartSlots = -1 }, "EVERPOST_START_SLOTS"},
	} {
		o := options(t, "postgres://localhost/x")
		c.spoil(&o.Config)
		_, err := New(t.Context(), o)
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "canary", name)
	}
}

// A port that is taken is named with its setting, and nothing is left running: the
// other port is free again, and goleak finds nothing.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	address := postgrestest.New(t)
	for setting, set := range map[string]func(*config.Config){
		"EVERPOST_LISTEN":       func(c *config.Config) { c.Listen = taken.Addr().String() },
		"EVERPOST_ADMIN_LISTEN": func(c *config.Config) { c.AdminListen = taken.Addr().String() },
	} {
		o := options(t, address)
		set(&o.Config)
		a, err := New(t.Context(), o)
		require.NoError(t, err)
		err = a.Start(t.Context())
		require.ErrorContains(t, err, setting+": "+taken.Addr().String())
		require.ErrorContains(t, err, "address already in use")
		if setting == "EVERPOST_LISTEN" {
			free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", a.AdminAddr())
			require.NoError(t, err)
			require.NoError(t, free.Close())
		}
	}
}

// The database's clock decides whether a delivery is due. Until it was read, the process's own clock does.
func TestStarterUsesDatabaseClock(t *testing.T) {
	t.Parallel()
	o := options(t, "postgres://localhost/x")
	o.Clock = func() time.Time { return time.Now().Add(time.Hour) }
	a, err := New(t.Context(), o)
	require.NoError(t, err)
	defer a.Stop()
	require.WithinDuration(t, a.store.Now(), a.engineConfig().Now(), time.Minute)
	require.WithinDuration(t, o.Clock(), a.engineConfig().Now(), time.Minute)
}

func TestDatabaseUnreachable(t *testing.T) {
	t.Parallel()
	a, err := New(t.Context(), options(t, "postgres://someone:canary@"+closedPort(t)+"/x"))
	require.NoError(t, err)
	err = a.Start(t.Context())
	require.ErrorContains(t, err, "PostgreSQL cannot be used: ")
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "canary")
}

// A process that was made and never started can be stopped.
func TestStopWithoutStart(t *testing.T) {
	t.Parallel()
	a, err := New(t.Context(), options(t, "postgres://localhost/x"))
	require.NoError(t, err)
	a.Stop()
}

// Without Temporal events are accepted all the same, and /readyz says so.
func TestAPIWithoutTemporal(t *testing.T) {
	t.Parallel()
	a := start(t, options(t, postgrestest.New(t)))
	api, admin := "http://"+a.APIAddr(), "http://"+a.AdminAddr()
	status, _ := call(t, "PUT", api+"/v1/tenants/acme", `{"name":"Acme"}`)
	require.Equal(t, http.StatusCreated, status)
	status, answer := call(t, "POST", api+"/v1/tenants/acme/endpoints", `{"url":"https://example.com/hook","event_types":["*"]}`)
	require.Equal(t, http.StatusCreated, status, answer)

	require.Eventually(t, func() bool { return !a.engine.Health.Up() }, 30*time.Second, 5*time.Millisecond)
	for range 3 {
		status, answer = call(t, "POST", api+"/v1/tenants/acme/events", `{"type":"order.paid","payload":{}}`)
		require.Equal(t, http.StatusAccepted, status, answer)
	}
	depth, oldest, err := a.store.Outbox.OutboxDepth(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(3), depth)
	require.NotZero(t, oldest)

	status, answer = call(t, "GET", admin+"/healthz", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{"status": "ok"}, answer)
	status, answer = call(t, "GET", admin+"/readyz", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{"status": "degraded", "postgresql": "ok", "temporal": "does not answer"}, answer)
	_, answer = call(t, "GET", admin+"/metrics", "")
	for _, line := range []string{
		"everpost_events_accepted_total 3", "everpost_outbox_deliveries 3", "everpost_temporal_up 0", "everpost_starts_waiting 0",
		`everpost_build_info{version="1.2.3"} 1`,
	} {
		require.Contains(t, answer["text"], "\n"+line+"\n")
	}
	status, _ = call(t, "GET", admin+"/debug/pprof/goroutine", "")
	require.Equal(t, http.StatusOK, status)
	status, answer = call(t, "GET", admin+"/debug/pprof/cmdline", "")
	require.Equal(t, http.StatusNotFound, status, "the command line may hold secrets")
	require.NotContains(t, answer["text"], "test")
}

// A process that has the database to itself starts at once what the one before was about to start.
func TestAProcessAloneTakesTheOutbox(t *testing.T) {
	t.Parallel()
	o := options(t, postgrestest.New(t))
	before := start(t, o)
	id := endpoint(t, before, "https://example.com/hook")
	status, answer := call(t, "POST", "http://"+before.APIAddr()+"/v1/tenants/acme/events", `{"type":"order.paid","payload":{}}`)
	require.Equal(t, http.StatusAccepted, status, answer)
	postpone := func(a *App) (relayAt time.Time) { // so that it is recent for every start
		t.Helper()
		require.NoError(t, a.store.Pool().QueryRow(t.Context(),
			`update outbox set relay_at = now() + interval '7 seconds' where endpoint_id = $1 returning relay_at`, parse(t, id)).Scan(&relayAt))
		return relayAt
	}
	read := func(a *App) (relayAt time.Time, waits bool) {
		t.Helper()
		require.NoError(t, a.store.Pool().QueryRow(t.Context(),
			`select relay_at, relay_at > now() from outbox where endpoint_id = $1`, parse(t, id)).Scan(&relayAt, &waits))
		return relayAt, waits
	}
	want := postpone(before)
	before.Stop()
	other := start(t, o)
	got, _ := read(other)
	require.Equal(t, want, got, "another process may be starting it")
	postpone(other)
	other.Stop()
	o.Process = "standalone"
	_, waits := read(start(t, o))
	require.False(t, waits)
}

// The settings of the API's surroundings reach it: proxies that are trusted, the Web UI's
// addresses, and the counts of what it refuses.
func TestSettingsReachTheAPI(t *testing.T) {
	t.Parallel()
	o := options(t, postgrestest.New(t))
	o.UIURL = "http://ui.example"
	o.Config.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	o.Config.WorkflowURLForTenants = true
	a := start(t, o)
	api := "http://" + a.APIAddr()
	send := func(method, path, key, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, api+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("X-Forwarded-For", "203.0.113.9, 198.51.100.7")
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode, string(text)
	}
	status, _ := send("PUT", "/v1/tenants/acme", operatorKey, `{}`)
	require.Equal(t, http.StatusCreated, status)
	_, text := send("GET", "/v1/audit", operatorKey, "")
	require.Contains(t, text, `"source_address":"198.51.100.7"`)

	_, text = send("POST", "/v1/tenants/acme/keys", operatorKey, `{"scope":"admin"}`)
	var made struct {
		Key string `json:"key"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &made))
	status, text = send("POST", "/v1/tenants/acme/replays", made.Key, `{"source":"dead_letters"}`)
	require.Equal(t, http.StatusAccepted, status, text)
	require.Contains(t, text, `"workflow_url":"http://ui.example/`)

	for range 2 {
		status, _ = send("GET", "/v1/tenants", made.Key[:80]+"00000", "")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	_, answer := call(t, "GET", "http://"+a.AdminAddr()+"/metrics", "")
	for _, line := range []string{`everpost_api_auth_failures_total{cause="malformed"} 2`, "everpost_api_body_bytes 0"} {
		require.Contains(t, answer["text"], "\n"+line+"\n")
	}
	http.DefaultClient.CloseIdleConnections()
}

// A worker alone cannot do its work without Temporal; it starts all the same, waits
// for it, and can be stopped meanwhile.
func TestWorkerWithoutTemporal(t *testing.T) {
	t.Parallel()
	o := options(t, postgrestest.New(t))
	o.API, o.Worker = false, true
	a, err := New(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	require.Empty(t, a.APIAddr())
	require.Eventually(t, func() bool { return !a.engine.Health.Up() }, 30*time.Second, 5*time.Millisecond)
	status, answer := call(t, "GET", "http://"+a.AdminAddr()+"/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, map[string]any{
		"status": "unavailable", "postgresql": "ok", "temporal": "does not answer", "worker": "not running",
	}, answer)
	begun := time.Now()
	a.Stop()
	require.Less(t, time.Since(begun), webhook.MaxTimeout, "there was nothing to wait for")
}

// PostgreSQL goes away under a running process: it says so, and is back with it.
func TestReadyNeedsPostgreSQL(t *testing.T) {
	t.Parallel()
	a := start(t, options(t, postgrestest.New(t)))
	a.store.Close()
	status, answer := call(t, "GET", "http://"+a.AdminAddr()+"/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "unavailable", answer["status"])
	require.Equal(t, "does not answer", answer["postgresql"])
	_, answer = call(t, "GET", "http://"+a.AdminAddr()+"/metrics", "")
	require.Contains(t, answer["text"], "\neverpost_outbox_deliveries -1\n")
	require.Contains(t, answer["text"], "\neverpost_outbox_age_seconds -1\n")
}

func TestDemoIsSetUpOnce(t *testing.T) {
	t.Parallel()
	a := start(t, options(t, postgrestest.New(t)))
	first, secret, err := a.SetUpDemo(t.Context(), "http://127.0.0.1:1/demo")
	require.NoError(t, err)
	again, same, err := a.SetUpDemo(t.Context(), "http://127.0.0.1:2/demo")
	require.NoError(t, err)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, secret, same)
	require.Equal(t, "http://127.0.0.1:2/demo", again.URL)
}

// Keys are made and revoked without the API; the store is authoritative.
func TestKeyRing(t *testing.T) {
	t.Parallel()
	o := options(t, postgrestest.New(t))
	keys, err := OpenKeys(t.Context(), o.Config, o.Logger)
	require.NoError(t, err)
	defer keys.Close()
	key, text, err := keys.Create(t.Context(), "", "test", webhook.ScopeIngest, time.Time{})
	require.NoError(t, err)
	require.Equal(t, webhook.ScopeOperator, key.Scope, "a key of no tenant is an operator's")
	lives, err := keys.Lives(t.Context(), text)
	require.NoError(t, err)
	require.True(t, lives)
	for _, other := range []string{"", "nonsense", text[:len(text)-1] + "!"} {
		lives, err = keys.Lives(t.Context(), other)
		require.NoError(t, err)
		require.False(t, lives)
	}
	require.NoError(t, keys.Revoke(t.Context(), "", key.ID.String()))
	lives, err = keys.Lives(t.Context(), text)
	require.NoError(t, err)
	require.False(t, lives)
	_, _, err = keys.Create(t.Context(), "nobody", "test", webhook.ScopeAdmin, time.Time{})
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	require.ErrorContains(t, keys.Revoke(t.Context(), "", "nonsense"), "the key's id")
}

func TestKEKFileIsMadeOnce(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/kek"
	require.NoError(t, EnsureKEKFile(path))
	first, err := loadVault(config.KEKs{KEKFile: path})
	require.NoError(t, err)
	sealed, err := first.Seal(t.Context(), "secret", "additional")
	require.NoError(t, err)
	require.NoError(t, EnsureKEKFile(path))
	second, err := loadVault(config.KEKs{KEKFile: path})
	require.NoError(t, err)
	text, err := second.Open(t.Context(), sealed, "additional")
	require.NoError(t, err)
	require.Equal(t, "secret", text)
}

// The address of a workflow's page; an id may hold anything that a path may not.
func TestWorkflowURL(t *testing.T) {
	t.Parallel()
	pages := &workflowPages{namespace: "default"}
	require.Empty(t, pages.url("delivery/evt_1/ep_1"))
	pages.ui = "http://127.0.0.1:8233"
	require.Equal(t, "http://127.0.0.1:8233/namespaces/default/workflows/delivery%2Fevt_1%2Fep_1", pages.url("delivery/evt_1/ep_1"))
	pages.namespace = "of/mine"
	require.Equal(t, "http://127.0.0.1:8233/namespaces/of%2Fmine/workflows/x", pages.url("x"))
}

// A context that ends while a process starts stops the start, with nothing left.
func TestStartIsAbandoned(t *testing.T) {
	t.Parallel()
	a, err := New(t.Context(), options(t, postgrestest.New(t)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, a.Start(ctx), context.Canceled)
}
