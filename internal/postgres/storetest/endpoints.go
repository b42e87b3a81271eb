package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// TestEndpoint has a value of its own in every field that is stored.
func TestEndpoint(tenantID string) webhook.Endpoint {
	policy, _ := retry.Lookup("steps-36h")
	policy.RetryStatuses = []int{418}
	return webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: tenantID, URL: "https://receiver.example/hook?token=CanaryURLToken",
		EventTypes: []string{"order.*", "invoice.paid"}, Filter: filter.Stored(`{"type":{"$exists":true}}`),
		Ordering:    webhook.Ordering{By: webhook.OrderingNumber},
		Description: "to the shop", State: webhook.EndpointPaused, StateReason: "by hand",
		Headers: map[string]string{"X-Api-Key": CanaryHeader}, Timeout: 7*time.Second + 3*time.Nanosecond, MaxInFlight: 17, RateLimit: 2.5,
		RetryPolicy:     policy,
		CircuitBreaker:  webhook.CircuitBreaker{Enabled: true, Window: 90 * time.Second, MinRequests: 3, FailureRatio: 0.75, Cooldown: time.Minute},
		AutoDisable:     webhook.AutoDisable{Enabled: true, Exhausted24h: 4, PermanentStreak: 5},
		SuccessStatuses: []int{302, 303},
		AutoReplay:      true, Signature: webhook.SignatureV1, PayloadFormat: webhook.PayloadEnvelope, TraceContext: true,
		Metadata: map[string]string{"team": "shop"},
	}
}

// CanarySecret must be found nowhere in plaintext.
const CanarySecret = "whsec_CanarySecretCanarySecretCanary" //nolint:gosec // a test's

// CreateEndpoint stores TestEndpoint of a tenant.
func CreateEndpoint(t *testing.T, s *Stores, tenantID string) webhook.Endpoint {
	t.Helper()
	e, err := s.CreateEndpoint(t.Context(), TestActor(), TestEndpoint(tenantID), CanarySecret)
	require.NoError(t, err)
	return e
}

// Version is the version of a tenant's endpoints.
func Version(t *testing.T, s *Stores, tenantID string) int64 {
	t.Helper()
	return Query[int64](t, s, `select endpoints_version from tenants where id = $1`, tenantID)[0]
}

// AddEndpoint stores an endpoint with filters.
func (b *Bundle) AddEndpoint(t *testing.T, filters ...string) webhook.Endpoint {
	t.Helper()
	e, err := b.CreateEndpoint(t.Context(), TestActor(), webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: "acme", URL: "https://example.com/hook", EventTypes: filters, Timeout: webhook.DefaultTimeout,
		MaxInFlight: 10, RateLimit: 10_000, RetryPolicy: retry.Default(), Signature: webhook.SignatureV1,
		CircuitBreaker: webhook.DefaultCircuitBreaker(), AutoDisable: webhook.DefaultAutoDisable(),
	}, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	return e
}

// Refused is n deliveries that were refused for good just now.
func (b *Bundle) Refused(n int) webhook.EndpointFailures {
	now := time.Now()
	return webhook.EndpointFailures{EndpointID: b.Subscriber.ID, Permanent: n, First: now, Last: now, Began: now, Reason: "http_404"}
}

// Exhausted is n deliveries that were given up at a time.
func (b *Bundle) Exhausted(n int, at time.Time) webhook.EndpointFailures {
	return webhook.EndpointFailures{EndpointID: b.Subscriber.ID, Exhausted: n, First: at, Last: at, Began: at, Reason: "timeout_headers"}
}

// Succeeded is a success of the endpoint.
func (b *Bundle) Succeeded(at time.Time) webhook.EndpointFailures {
	return webhook.EndpointFailures{EndpointID: b.Subscriber.ID, Succeeded: at}
}

// Current is the endpoint as it is stored.
func (b *Bundle) Current(t *testing.T) webhook.Endpoint {
	t.Helper()
	e, err := b.Endpoint(t.Context(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	return e
}

// SetAutoDisable changes the endpoint's settings; it counts as changed long ago.
func (b *Bundle) SetAutoDisable(t *testing.T, d webhook.AutoDisable) {
	t.Helper()
	_, err := b.UpdateEndpoint(t.Context(), TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
		e.AutoDisable = d
		return nil
	})
	require.NoError(t, err)
	b.ChangedLongAgo(t)
}

// ChangedLongAgo dates the endpoint's last change back.
func (b *Bundle) ChangedLongAgo(t *testing.T) {
	t.Helper()
	_, err := b.Pool().Exec(t.Context(), `update endpoints set updated_at = now() - interval '2 days'`)
	require.NoError(t, err)
}

// DisableMeanwhile disables the endpoint, and tells why, or the error.
func (b *Bundle) DisableMeanwhile(t *testing.T) <-chan string {
	t.Helper()
	other, done := OpenStore(t, b.Address+"&application_name="+b.disabler()), make(chan string, 1)
	go func() {
		why, err := other.DisableFailing(context.WithoutCancel(t.Context()), "acme", b.Subscriber.ID)
		if err != nil {
			why = err.Error()
		}
		done <- why
	}()
	return done
}

// disabler is the name under which DisableMeanwhile is connected: the database is shared by
// tests that wait for locks of their own.
func (b *Bundle) disabler() string { return b.Subscriber.ID.String() }

// Waits returns when DisableMeanwhile waits for a lock of a kind.
func (b *Bundle) Waits(t *testing.T, kind string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.Equal([]bool{true}, Query[bool](t, b.Stores, `
			select exists (select from pg_locks l where not l.granted and l.locktype = $1
				and l.pid in (select pid from pg_stat_activity where datname = current_database() and application_name = $2))`, kind, b.disabler()))
	}, Eventually, Poll)
}

// HealthOf reads the endpoint's, as a process that is no worker does.
func (b *Bundle) HealthOf(t *testing.T) (webhook.Backlog, []webhook.Observation) {
	t.Helper()
	h, seen, err := b.Health(t.Context(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	require.Equal(t, b.Subscriber.ID, h.Endpoint.ID)
	return h.Backlog, seen
}

// CountFailures counts failures and, as a process does, disables an endpoint with enough of them; it returns why.
func CountFailures(t *testing.T, s *Stores, seen ...webhook.EndpointFailures) string {
	t.Helper()
	var why []string
	for _, one := range seen {
		left, err := s.CountFailures(t.Context(), []webhook.EndpointFailures{one})
		require.NoError(t, err)
		for _, failing := range left {
			if failing.Disable {
				got, err := s.DisableFailing(t.Context(), failing.TenantID, failing.EndpointID)
				require.NoError(t, err)
				why = append(why, got)
			}
		}
	}
	return strings.Join(why, "")
}

// PutPolicy puts the tenant with a policy, SetPolicy changes the endpoint to one; zero is none.
func (b *Bundle) PutPolicy(t *testing.T, policy retry.Policy) {
	t.Helper()
	stored, _, err := b.PutTenant(t.Context(), TestActor(), webhook.Tenant{ID: "acme", Name: "Acme", RetryPolicy: policy})
	require.NoError(t, err)
	require.Equal(t, policy, stored.RetryPolicy)
	read, err := b.Tenant(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, stored, read)
}

// SetPolicy gives the endpoint a retry policy.
func (b *Bundle) SetPolicy(t *testing.T, policy retry.Policy) webhook.Endpoint {
	t.Helper()
	e, err := b.UpdateEndpoint(t.Context(), TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
		e.RetryPolicy = policy
		return nil
	})
	require.NoError(t, err)
	return e
}

// ReadEndpoints reads what has changed of a tenant's endpoints, and returns all of them with their version.
func ReadEndpoints(ctx context.Context, c *endpoints.Cache, tenant string) (found []webhook.Endpoint, version int64, err error) {
	c.ForgetTenant(tenant)
	of, err := c.OfTenant(ctx, tenant)
	if err != nil {
		return nil, 0, err
	}
	all, version := of.All()
	for _, e := range all {
		found = append(found, *e)
	}
	return found, version, nil
}

// EndpointsOf returns the endpoints of a tenant and their version from a cache.
func EndpointsOf(t testing.TB, c *endpoints.Cache, tenant string) ([]*webhook.Endpoint, int64) {
	t.Helper()
	of, err := c.OfTenant(t.Context(), tenant)
	require.NoError(t, err)
	return of.All()
}
