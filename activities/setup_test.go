package activities_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/intake"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

const (
	tenant  = "acme"
	secret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	payload = `{"order": 17, "note": "canary-payload"}`
	kek     = "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk="
)

// bundle is a store with one endpoint, and its receiver.
type bundle struct {
	*receivertest.Receiver

	address  string
	store    *stores.DB // the test's own, never in the way of a process
	endpoint webhook.Endpoint
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{Receiver: receivertest.New(t), address: postgrestest.New(t)}
	b.store = openStore(t, b.address)
	_, _, err := b.store.Tenants.PutTenant(t.Context(), webhook.Actor{Name: "test"}, webhook.Tenant{ID: tenant, Name: "Acme"})
	require.NoError(t, err)
	b.endpoint, err = b.store.Endpoints.CreateEndpoint(t.Context(), webhook.Actor{Name: "test"}, webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: tenant, URL: b.URL() + "/hook?token=canary-url", EventTypes: []string{"*"},
		Headers: map[string]string{"X-Api-Key": "canary-header"}, Timeout: webhook.DefaultTimeout,
		MaxInFlight: 10, RateLimit: 10_000, RetryPolicy: retry.Default(), Signature: webhook.SignatureV1,
		CircuitBreaker: webhook.DefaultCircuitBreaker(), AutoDisable: webhook.DefaultAutoDisable(),
	}, secret)
	require.NoError(t, err)
	return b
}

func openStore(t *testing.T, address string) *stores.DB {
	t.Helper()
	key, err := vault.ParseKEK(kek)
	require.NoError(t, err)
	store, err := stores.Open(t.Context(), stores.Config{URL: address, MaxConns: 4, Sealer: sealer{vault.New(key)}, MakeSecret: makeSecret})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

// makeSecret is a short form of internal/app's.
func makeSecret(scheme string) (webhook.NewSecret, error) {
	if scheme != webhook.SignatureV1a {
		made, err := signature.GenerateHMAC(rand.Reader)
		return webhook.NewSecret{Secret: made.Reveal()}, err
	}
	made, err := signature.GenerateEd25519(rand.Reader)
	public, _ := made.Public()
	return webhook.NewSecret{Secret: made.Reveal(), PublicKey: public.String()}, err
}

// sealer is a short form of internal/app's.
type sealer struct{ vault *vault.Vault }

func (s sealer) Seal(ctx context.Context, plaintext, additional string) (postgres.Sealed, error) {
	sealed, err := s.vault.Seal(ctx, plaintext, additional)
	return postgres.Sealed(sealed), err
}

func (s sealer) Open(ctx context.Context, sealed postgres.Sealed, additional string) (string, error) {
	return s.vault.Open(ctx, vault.Sealed(sealed), additional)
}

func realSender(t *testing.T) *egress.Client {
	t.Helper()
	client := egress.New(egress.Config{Guard: egress.NewGuard(egress.GuardConfig{
		AllowHTTP: true, AnyPort: true, AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})})
	t.Cleanup(client.Close)
	return client
}

// faulty is a sender with internal faults.
type faulty func(context.Context, egress.Request) egress.Response

func (f faulty) Send(ctx context.Context, r egress.Request) egress.Response { return f(ctx, r) }

// asked counts the claims that reach the store, and the looks at those of other processes.
type asked struct {
	*stores.DB
	*deliveries.Deliveries

	mu            sync.Mutex
	claims, looks int
}

func (a *asked) Claim(ctx context.Context, c webhook.Claim) (webhook.ClaimResult, error) {
	a.mu.Lock()
	a.claims++
	a.mu.Unlock()
	return a.Deliveries.Claim(ctx, c)
}

func (a *asked) ClaimStatus(ctx context.Context, ref webhook.Ref, claimant string) (webhook.DeliveryStatus, error) {
	a.mu.Lock()
	a.looks++
	a.mu.Unlock()
	return a.Deliveries.ClaimStatus(ctx, ref, claimant)
}

func (a *asked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.claims
}

func (a *asked) looked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.looks
}

// process is one Everpost process, as far as attempts go.
type process struct {
	*activities.Activities

	config activities.Config
	record *asked
	intake *intake.Intake // never started: it only leaves the tokens
	fresh  *intake.Fresh
	log    *buffer
}

// process starts a process on the bundle's store.
func (b *bundle) process(t *testing.T, change func(*activities.Config)) *process {
	t.Helper()
	return b.processAt(t, b.address, change)
}

func (b *bundle) processAt(t *testing.T, address string, change func(*activities.Config)) *process {
	t.Helper()
	db := openStore(t, address)
	p := &process{record: &asked{DB: db, Deliveries: db.Deliveries}, log: &buffer{}}
	starts := engine.New(engine.Config{LocalWorker: true})
	p.fresh = intake.NewFresh()
	p.intake = intake.New(intake.Config{Engine: starts, Fresh: p.fresh})
	config := activities.Config{
		Store: p.record, History: p.record, Targets: p.record.Endpoints.Cache(), Fresh: p.fresh, Sender: realSender(t),
		Logger: slog.New(slog.NewTextHandler(p.log, nil)), Claimant: t.Name() + webhook.NewEventID().String(), FastWait: 10 * time.Second,
	}
	if change != nil {
		change(&config)
	}
	p.Activities, p.config = activities.New(config), config
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.Attempts.Stop(ctx)
	})
	return p
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// event stores an event with one delivery, and returns the input of its first attempt, too.
func (b *bundle) event(t *testing.T) (webhook.Accepted, activities.AttemptInput) {
	t.Helper()
	accepted, err := b.store.Events.Accept(t.Context(), webhook.NewEvent{TenantID: tenant, Type: "order.paid", Payload: []byte(payload)})
	require.NoError(t, err)
	require.Len(t, accepted.Deliveries, 1)
	start := accepted.Deliveries[0]
	return accepted, activities.AttemptInput{
		FirstTask: true,
		Ref:       start.Ref, Progress: webhook.Progress{Run: start.Run, GiveUpAt: start.GiveUpAt}, NotBefore: start.NotBefore,
	}
}

// stored is an event's first attempt, without a token.
func (b *bundle) stored(t *testing.T) activities.AttemptInput {
	t.Helper()
	_, in := b.event(t)
	return in
}

// to returns the attempt of the same event to another endpoint, for which the store has the delivery instead.
func (b *bundle) to(t *testing.T, in activities.AttemptInput, endpoint webhook.EndpointID) activities.AttemptInput {
	t.Helper()
	before := in.DeliveryID
	in.EndpointID, in.DeliveryID = endpoint, webhook.DeliveryIDOf(in.EventID, endpoint)
	b.execute(t, `update outbox set delivery_id = $2, endpoint_id = $3 where delivery_id = $1`, before, in.DeliveryID, endpoint)
	return in
}

// fresh is an event's first attempt, with a token at the process.
func (b *bundle) fresh(t *testing.T, p *process) activities.AttemptInput {
	t.Helper()
	accepted, in := b.event(t)
	p.intake.Accepted(accepted)
	return in
}

func (b *bundle) delivery(t *testing.T, in activities.AttemptInput) webhook.Delivery {
	t.Helper()
	d, err := b.store.Deliveries.Delivery(t.Context(), tenant, in.DeliveryID)
	require.NoError(t, err)
	return d
}

func (b *bundle) attempts(t *testing.T, in activities.AttemptInput) []webhook.Attempt {
	t.Helper()
	all, err := b.store.Deliveries.Attempts(t.Context(), tenant, in.DeliveryID, 10, 0)
	require.NoError(t, err)
	return all
}

func (b *bundle) execute(t *testing.T, sql string, args ...any) {
	t.Helper()
	tag, err := b.store.Pool().Exec(t.Context(), sql, args...)
	require.NoError(t, err)
	require.Equal(t, int64(1), tag.RowsAffected(), sql)
}

// environment is where Temporal runs one activity.
func (p *process) environment() *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(time.Minute) // of an activity; 3 s are too short on a busy machine
	env.RegisterActivity(p.Attempts.Attempt)
	return env
}

// attempt runs Attempt as the workflow does.
func (p *process) attempt(in activities.AttemptInput) (activities.AttemptResult, error) {
	return result(p.environment().ExecuteLocalActivity(p.Attempts.Attempt, in))
}

// reopen opens the next run of one dead letter.
func (p *process) reopen(in activities.Reopening) (webhook.DeliveryStatus, error) {
	all, err := p.DeadLetters.Reopen(context.Background(), []activities.Reopening{in})
	if err == nil && all[0].Fault != "" {
		err = errors.New(all[0].Fault)
	}
	return all[0].DeliveryStatus, err
}

// await looks for the outcome of a request until it is there, as the workflow does, but more often.
func (p *process) await(in activities.AttemptInput) (activities.AttemptResult, error) {
	in.Running = true
	for {
		got, err := p.attempt(in)
		if err != nil || !got.Running && got.ClaimedUntil.IsZero() {
			return got, err
		}
		<-time.After(10 * time.Millisecond)
	}
}

func result(value interface{ Get(any) error }, err error) (r activities.AttemptResult, _ error) {
	if err != nil {
		return r, err
	}
	err = value.Get(&r)
	return r, err
}

// outcome is what an activity returned.
type outcome struct {
	result activities.AttemptResult
	err    error
}

// later runs an activity in the background.
func later(run func() (activities.AttemptResult, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		r, err := run()
		done <- outcome{r, err}
	}()
	return done
}
