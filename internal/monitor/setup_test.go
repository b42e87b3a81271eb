package monitor

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/intake"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

// soon is how long a test waits for what must happen.
const soon = 30 * time.Second

// bundle is a database with an endpoint of the tenant acme, and one of the operator's tenant that subscribes to all operational
// events.
type bundle struct {
	address       string
	endpoint, ops webhook.Endpoint
	own           *stores.DB
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{address: postgrestest.New(t)}
	b.own = b.store(t)
	for _, id := range []string{"acme", "ops"} {
		_, _, err := b.own.Tenants.PutTenant(t.Context(), webhook.Actor{}, webhook.Tenant{ID: id, Contact: id + "@example.com"})
		require.NoError(t, err)
	}
	b.endpoint = b.make(t, "acme", "order.*")
	b.ops = b.make(t, "ops", "everpost.*")
	return b
}

func (b *bundle) store(t *testing.T) *stores.DB {
	t.Helper()
	key, err := vault.ParseKEK("K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk=")
	require.NoError(t, err)
	store, err := stores.Open(t.Context(), stores.Config{
		URL: b.address, MaxConns: 4, Sealer: sealer{vault.New(key)}, OperatorTenant: "ops",
	})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

// sealer lets the store encrypt with the vault.
type sealer struct{ vault *vault.Vault }

func (s sealer) Seal(ctx context.Context, plaintext, additional string) (postgres.Sealed, error) {
	sealed, err := s.vault.Seal(ctx, plaintext, additional)
	return postgres.Sealed(sealed), err
}

func (s sealer) Open(ctx context.Context, sealed postgres.Sealed, additional string) (string, error) {
	return s.vault.Open(ctx, vault.Sealed(sealed), additional)
}

func (b *bundle) make(t *testing.T, tenant string, filters ...string) webhook.Endpoint {
	t.Helper()
	e, err := b.own.Endpoints.CreateEndpoint(t.Context(), webhook.Actor{}, webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: tenant, URL: "https://example.com/hook?token=canary", EventTypes: filters, Timeout: webhook.DefaultTimeout,
		MaxInFlight: 10, RateLimit: 10_000, RetryPolicy: retry.Default(), Signature: webhook.SignatureV1,
		CircuitBreaker: webhook.DefaultCircuitBreaker(), AutoDisable: webhook.DefaultAutoDisable(),
	}, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	return e
}

// now is the endpoint of acme as it is stored.
func (b *bundle) now(t *testing.T) webhook.Endpoint {
	t.Helper()
	e, err := b.own.Endpoints.Endpoint(t.Context(), "acme", b.endpoint.ID)
	require.NoError(t, err)
	return e
}

// process is a Monitor with what it works on, of one process.
type process struct {
	*Notes
	*Monitor

	store      *stores.DB
	intake     *intake.Intake
	controller *admission.Controller
	metrics    *telemetry.Metrics
}

// starts takes over what a Monitor has stored.
type starts struct {
	*intake.Intake
	*engine.Replays
}

// process makes one whose Monitor is not started.
func (b *bundle) process(t *testing.T) *process {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: closedPort(t)})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	m := &process{store: b.store(t), metrics: telemetry.NewMetrics("test")}
	e := engine.New(engine.Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(e.Lifetime.Stop)
	m.intake = intake.New(intake.Config{Engine: e, Logger: slog.New(slog.DiscardHandler)})
	m.Notes = NewNotes(m.metrics, slog.New(slog.DiscardHandler))
	m.controller = admission.New(admission.Config{OnCircuitChange: m.CircuitChanged})
	m.Monitor = New(Config{
		Notes: m.Notes, Admission: endpointStates{m.controller}, Endpoints: m.store.Endpoints.Cache(), Failures: m.store.EndpointHealth,
		Events:  m.store.Operational,
		Starter: starts{m.intake, e.Replays},
		Replays: m.store.Replays, Shared: m.store.EndpointHealth, Metrics: m.metrics, Logger: slog.New(slog.DiscardHandler), Now: m.store.Now,
		Process: t.Name(),
	})
	return m
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// endpointStates is an admission as the Monitor sees it.
type endpointStates struct{ *admission.Controller }

func (s endpointStates) State(id webhook.EndpointID) (webhook.Observation, bool) {
	o := s.Health(id)
	return o, o != (webhook.Observation{Circuit: webhook.CircuitClosed})
}

func (s endpointStates) CloseCircuit(id webhook.EndpointID, at time.Time) {
	s.Controller.CloseCircuit(id, at)
}

func (m *process) circuit(id webhook.EndpointID) webhook.CircuitState {
	state, _ := m.admission.State(id)
	return state.Circuit
}

// running is process, started, and stopped with the test.
func (b *bundle) running(t *testing.T) *process {
	t.Helper()
	m := b.process(t)
	m.Start(t.Context())
	t.Cleanup(func() { m.Stop(context.Background()) })
	return m
}

// stored are the payloads of the operator's events of a type.
func (b *bundle) stored(t *testing.T, eventType string) []map[string]any {
	t.Helper()
	rows, err := b.own.Pool().Query(t.Context(), `select payload from events where tenant_id = 'ops' and type = $1 order by id`, eventType)
	require.NoError(t, err)
	defer rows.Close()
	var stored []map[string]any
	for rows.Next() {
		var text []byte
		require.NoError(t, rows.Scan(&text))
		payload := map[string]any{}
		require.NoError(t, json.Unmarshal(text, &payload))
		require.NotContains(t, string(text), "canary")
		stored = append(stored, payload)
	}
	require.NoError(t, rows.Err())
	return stored
}

func (b *bundle) ref(eventType string) webhook.Ref {
	event := webhook.NewEventID()
	return webhook.Ref{
		DeliveryID: webhook.DeliveryIDOf(event, b.endpoint.ID), EventID: event, EndpointID: b.endpoint.ID, TenantID: "acme", EventType: eventType,
	}
}

// answerOf is an attempt that was answered with a status, and where it left its delivery.
func answerOf(status int) (*webhook.Attempt, webhook.Progress) {
	outcome := retry.Classify(retry.Answer{Status: status}, retry.Default())
	a := &webhook.Attempt{Number: 1, Run: 1, StartedAt: time.Now(), Latency: time.Millisecond, Outcome: outcome}
	p := webhook.Progress{Run: 1, Seq: 1, Attempts: 1, RunAttempts: 1, State: webhook.StateDelivered}
	if outcome.Decision != retry.Delivered {
		p.State, p.Reason = webhook.StateDeadLettered, string(outcome.Reason)
	}
	return a, p
}

// answers shows a process n deliveries that ended with a status.
func (b *bundle) answers(m *process, n, status int) {
	for range n {
		a, p := answerOf(status)
		m.Attempted(b.ref("order.paid"), a, p)
	}
}

// send sends a request through the admission, as an attempt with a number does, and shows it to the Monitor.
func (b *bundle) send(t *testing.T, m *process, number, status int) {
	t.Helper()
	ref := b.ref("order.paid")
	pass := b.enter(t, m)
	a, p := answerOf(status)
	a.Number, p.Attempts = number, number
	if a.Outcome.Decision == retry.Retry {
		p.State, p.Reason = webhook.StateRetrying, ""
	}
	pass.Done(admission.ResultOf(a.Outcome, number, time.Millisecond))
	m.Attempted(ref, a, p)
}

// probe sends a request as soon as the admission admits one. The Monitor learns of it from the admission only.
func (b *bundle) probe(t *testing.T, m *process, status int) {
	t.Helper()
	a, _ := answerOf(status)
	b.enter(t, m).Done(admission.ResultOf(a.Outcome, 1, time.Millisecond))
}

// enter waits until the admission admits a request.
func (b *bundle) enter(t *testing.T, m *process) (pass *admission.Permit) {
	t.Helper()
	entry := admission.Request{Endpoint: b.endpoint.ID, Delivery: b.ref("x").DeliveryID, Limits: admission.LimitsOf(&b.endpoint)}
	require.Eventually(t, func() bool {
		pass = m.controller.Acquire(t.Context(), entry).Permit
		return pass != nil
	}, soon, time.Millisecond)
	return pass
}

// metric reports whether the metrics of the process have this line.
func (m *process) metric(t *testing.T, line string) bool {
	t.Helper()
	w := httptest.NewRecorder()
	m.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return strings.Contains(w.Body.String(), "\n"+line+"\n")
}
