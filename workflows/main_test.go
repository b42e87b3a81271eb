package workflows_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

const tenant = "acme"

// bundle is what deliveries are made with: the real store in a schema of the
// test's own, the real HTTP client and a real receiver.
type bundle struct {
	store    *stores.DB
	record   *fallible // the store as the activities see it
	receiver *receivertest.Receiver
	sender   *egress.Client
	endpoint webhook.Endpoint
	guarded  *admission.Config               // nil: the defaults
	change   func(*life, *activities.Config) // of the next life; may be nil
}

// setup makes a bundle with one endpoint, which has the named policy.
func setup(t *testing.T, preset string) *bundle {
	t.Helper()
	policy, ok := retry.Lookup(preset)
	require.True(t, ok)
	return setupPolicy(t, policy)
}

func setupPolicy(t *testing.T, policy retry.Policy) *bundle {
	t.Helper()
	kek, err := vault.ParseOldKEK(base64.StdEncoding.EncodeToString([]byte("a key-encryption key of the tests")[:32]))
	require.NoError(t, err)
	store, err := stores.Open(t.Context(), stores.Config{URL: postgrestest.New(t), MaxConns: 6, Sealer: sealer{vault.New(kek)}})
	require.NoError(t, err)
	t.Cleanup(store.Close)

	guard := egress.NewGuard(egress.GuardConfig{AllowHTTP: true, AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AnyPort: true})
	client := egress.New(egress.Config{Guard: guard})
	t.Cleanup(client.Close)

	b := &bundle{store: store, record: &fallible{DB: store, Deliveries: store.Deliveries}, receiver: receivertest.New(t), sender: client}
	_, _, err = store.Tenants.PutTenant(t.Context(), webhook.Actor{Name: "test"}, webhook.Tenant{ID: tenant})
	require.NoError(t, err)
	b.endpoint = b.newEndpoint(t, policy)
	return b
}

func (b *bundle) newEndpoint(t require.TestingT, policy retry.Policy) webhook.Endpoint {
	e, err := b.store.Endpoints.CreateEndpoint(context.Background(), webhook.Actor{Name: "test"}, webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: tenant, URL: b.receiver.URL() + "/hook", EventTypes: []string{"*"}, Timeout: webhook.DefaultTimeout,
		MaxInFlight: webhook.DefaultMaxInFlight, RateLimit: webhook.DefaultRateLimit, RetryPolicy: policy,
		CircuitBreaker: webhook.DefaultCircuitBreaker(), AutoDisable: webhook.DefaultAutoDisable(), Signature: webhook.SignatureV1,
	}, "whsec_"+base64.StdEncoding.EncodeToString([]byte("a signing secret of these tests.")))
	require.NoError(t, err)
	return e
}

// accept stores an event for the endpoint and returns its delivery.
func (b *bundle) accept(t require.TestingT, deliverAt time.Time) webhook.Start {
	accepted, err := b.store.Events.Accept(context.Background(), webhook.NewEvent{
		TenantID: tenant, Type: "order.paid", Payload: []byte(`{"order":17}`), DeliverAt: deliverAt, EndpointIDs: []webhook.EndpointID{b.endpoint.ID},
	})
	require.NoError(t, err)
	require.Len(t, accepted.Deliveries, 1)
	return accepted.Deliveries[0]
}

// delivery reads what the store says.
func (b *bundle) delivery(t require.TestingT, id webhook.DeliveryID) webhook.Delivery {
	d, err := b.store.Deliveries.Delivery(context.Background(), tenant, id)
	require.NoError(t, err)
	return d
}

// attempts reads the recorded attempts, oldest first.
func (b *bundle) attempts(t require.TestingT, id webhook.DeliveryID) []webhook.Attempt {
	found, err := b.store.Deliveries.Attempts(context.Background(), tenant, id, 1000, 0)
	require.NoError(t, err)
	for i, j := 0, len(found)-1; i < j; i, j = i+1, j-1 {
		found[i], found[j] = found[j], found[i]
	}
	return found
}

// command does what the API does with a command, but for the signal.
func (b *bundle) command(t require.TestingT, id webhook.DeliveryID, c webhook.Command, reason string) webhook.PendingCommand {
	pending, taken := b.tryCommand(t, id, c, reason)
	require.True(t, taken, "%s was refused", c)
	return pending
}

// tryCommand is command; false when the delivery's state forbids it.
func (b *bundle) tryCommand(t require.TestingT, id webhook.DeliveryID, c webhook.Command, reason string) (webhook.PendingCommand, bool) {
	asked := webhook.PendingCommand{Command: c, Reason: reason}
	_, pending, err := b.store.Deliveries.Command(context.Background(), webhook.Actor{Name: "test"}, tenant, id, asked)
	if webhook.CodeOf(err) == webhook.CodeConflict {
		return webhook.PendingCommand{}, false
	}
	require.NoError(t, err)
	if c == webhook.CommandReplay {
		require.NoError(t, b.record.catchUp(context.Background(), id))
	}
	return pending, true
}

func (b *bundle) exec(t require.TestingT, sql string, args ...any) {
	_, err := b.store.Pool().Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// fallible is the store, which can be made to be out of reach for single calls.
type fallible struct {
	*stores.DB
	*deliveries.Deliveries

	// onLook, onBegin and onRecord, if set, are called before each call. If they return an error, the call returns it and the store
	// stays unchanged.
	onLook   atomic.Pointer[func() error]
	onBegin  atomic.Pointer[func(webhook.Claim) error]
	onRecord atomic.Pointer[func(webhook.Step) error]
	// recorded, when set, is called once a step is written, before its writer knows.
	recorded atomic.Pointer[func()]
	// onRefused, when set, is called when a claim was refused.
	onRefused atomic.Pointer[func()]
	// skipped is how far the test's time is ahead of the store's, which is real.
	skipped atomic.Pointer[func() time.Duration]
}

// Reopen counts the give-up time from the test's now.
func (f *fallible) Reopen(ctx context.Context, ref webhook.Ref, run int, reason string) (webhook.DeliveryStatus, error) {
	before, err := f.DeliveryStatus(ctx, ref)
	if err != nil {
		return before, err
	}
	after, err := f.Deliveries.Reopen(ctx, ref, run, reason)
	if err != nil || after.Run == before.Run {
		return after, err
	}
	if err := f.catchUp(ctx, ref.DeliveryID); err != nil {
		return after, err
	}
	return f.DeliveryStatus(ctx, ref)
}

// catchUp moves the give-up time of a run that was opened just now to the test's time.
func (f *fallible) catchUp(ctx context.Context, id webhook.DeliveryID) error {
	_, err := f.Pool().Exec(ctx, `update deliveries set give_up_at = give_up_at + $2::bigint * interval '1 microsecond' where id = $1`,
		id, (*f.skipped.Load())().Microseconds())
	return err
}

func (f *fallible) ClaimStatus(ctx context.Context, ref webhook.Ref, claimant string) (webhook.DeliveryStatus, error) {
	if ask := f.onLook.Load(); ask != nil {
		if err := (*ask)(); err != nil {
			return webhook.DeliveryStatus{}, err
		}
	}
	return f.Deliveries.ClaimStatus(ctx, ref, claimant)
}

func (f *fallible) Claim(ctx context.Context, c webhook.Claim) (webhook.ClaimResult, error) {
	if ask := f.onBegin.Load(); ask != nil {
		if err := (*ask)(c); err != nil {
			return webhook.ClaimResult{}, err
		}
	}
	claimed, err := f.Deliveries.Claim(ctx, c)
	if tell := f.onRefused.Load(); tell != nil && err == nil && !claimed.Granted {
		(*tell)()
	}
	return claimed, err
}

func (f *fallible) RecordStep(ctx context.Context, s webhook.Step) (webhook.DeliveryStatus, error) {
	if ask := f.onRecord.Load(); ask != nil {
		if err := (*ask)(s); err != nil {
			return webhook.DeliveryStatus{}, err
		}
	}
	status, err := f.Deliveries.RecordStep(ctx, s)
	if tell := f.recorded.Swap(nil); tell != nil {
		(*tell)()
	}
	return status, err
}

// sealer is internal/app's.
type sealer struct{ vault *vault.Vault }

func (s sealer) Seal(ctx context.Context, plaintext, additional string) (postgres.Sealed, error) {
	sealed, err := s.vault.Seal(ctx, plaintext, additional)
	if err != nil {
		return postgres.Sealed{}, fmt.Errorf("seal: %w", err)
	}
	return postgres.Sealed(sealed), nil
}

func (s sealer) Open(ctx context.Context, sealed postgres.Sealed, additional string) (string, error) {
	plaintext, err := s.vault.Open(ctx, vault.Sealed(sealed), additional)
	if err != nil {
		return "", fmt.Errorf("open: %w", err)
	}
	return plaintext, nil
}

// noFresh has no payloads: every attempt needs a claim.
type noFresh struct{}

func (noFresh) Take(webhook.Ref) (content webhook.Content, ok bool) {
	return content, false
}
