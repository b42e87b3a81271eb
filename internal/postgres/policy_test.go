package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// givesUpAfter is a policy that can be told by its give-up time.
func givesUpAfter(after time.Duration) retry.Policy {
	policy := retry.Default()
	policy.Preset, policy.GiveUpAfter = "", after
	return policy
}

// setupPolicies is a store whose installation gives up after 5 h, with a tenant and an
// endpoint that have no policy.
func setupPolicies(t *testing.T) *deliveryBundle {
	t.Helper()
	address := postgrestest.New(t)
	s, err := openStores(t.Context(), Config{URL: address, MaxConns: 4, Sealer: newTestSealer(t), RetryPolicy: givesUpAfter(5 * time.Hour)})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	b := &deliveryBundle{stores: s, address: address}
	b.putPolicy(t, retry.Policy{})
	b.endpoint = b.addEndpoint(t, "*", "everpost.*")
	b.setPolicy(t, retry.Policy{})
	return b
}

// putPolicy puts the tenant with a policy, setPolicy changes the endpoint to one; zero is none.
func (b *deliveryBundle) putPolicy(t *testing.T, policy retry.Policy) {
	t.Helper()
	stored, _, err := b.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: "acme", Name: "Acme", RetryPolicy: policy})
	require.NoError(t, err)
	require.Equal(t, policy, stored.RetryPolicy)
	read, err := b.Tenant(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, stored, read)
}

func (b *deliveryBundle) setPolicy(t *testing.T, policy retry.Policy) webhook.Endpoint {
	t.Helper()
	e, err := b.UpdateEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.RetryPolicy = policy
		return nil
	})
	require.NoError(t, err)
	return e
}

// The endpoint's own, else its tenant's, else the installation's: wherever the endpoint is
// read, and for whatever is begun.
func TestWhosePolicyIsInForce(t *testing.T) {
	t.Parallel()
	b := setupPolicies(t)
	requireInForce := func(after time.Duration, whose webhook.PolicySource) {
		t.Helper()
		read, err := b.Endpoint(t.Context(), "acme", b.endpoint.ID)
		require.NoError(t, err)
		list, err := b.ListEndpoints(t.Context(), "acme", webhook.Page{Limit: 10})
		require.NoError(t, err)
		of, _, err := b.EndpointsOf(t.Context(), "acme")
		require.NoError(t, err)
		target, err := b.Target(t.Context(), b.endpoint.ID)
		require.NoError(t, err)
		cached, err := b.Cache().Target(t.Context(), b.endpoint.ID)
		require.NoError(t, err)
		for _, e := range []webhook.Endpoint{read, list[0], of[0], target.Endpoint, cached.Endpoint} {
			policy, source := e.PolicyInForce()
			require.Equal(t, after, policy.GiveUpAfter)
			require.Equal(t, whose, source)
		}

		// Accepted, replayed by hand and by a replay: each fixes its give-up time by it.
		start := b.accept(t)
		require.Equal(t, start.CreatedAt.Add(after), start.GiveUpAt)
		for run := 2; run <= 3; run++ {
			step := stepOf(start, 1, webhook.StateDeadLettered)
			step.Run, step.Reason = run-1, "http_400"
			step.Attempts, step.RunAttempts, step.Attempt = run-1, 1, attemptOf(run-1, run-1, 400)
			step.Attempt.Latency = 0
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
			if run == 2 {
				_, _, err = b.command(t, start.DeliveryID, webhook.CommandReplay)
				require.NoError(t, err)
			} else {
				b.release(t, b.replay(t, webhook.Replay{}), 1, 10)
			}
			d, err := b.Delivery(t.Context(), "acme", start.DeliveryID)
			require.NoError(t, err)
			require.Equal(t, run, d.Run)
			require.WithinDuration(t, time.Now().Add(after), d.GiveUpAt, time.Minute)
		}

		// So does what Everpost says itself.
		_, err = b.PauseEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID)
		require.NoError(t, err)
		given := query[time.Duration](t, b.stores, `
			select (extract(epoch from give_up_at - created_at) * 1000000000)::bigint from outbox where event_type = 'everpost.endpoint.paused'`)
		require.Equal(t, []time.Duration{after}, given)
		_, err = b.login.Exec(t.Context(), `delete from outbox; `)
		require.NoError(t, err)
		_, _, err = b.ResumeEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID, 100)
		require.NoError(t, err)
		_, err = b.login.Exec(t.Context(), `delete from outbox; `)
		require.NoError(t, err)
	}
	require.Equal(t, []bool{true}, query[bool](t, b.stores, `select retry_policy is null from endpoints`))
	requireInForce(5*time.Hour, webhook.PolicyOfInstallation)
	b.putPolicy(t, givesUpAfter(7*time.Hour))
	requireInForce(7*time.Hour, webhook.PolicyOfTenant)

	e := b.setPolicy(t, givesUpAfter(9*time.Hour))
	require.Equal(t, 9*time.Hour, e.RetryPolicy.GiveUpAfter)
	requireInForce(9*time.Hour, webhook.PolicyOfEndpoint)
	b.putPolicy(t, givesUpAfter(8*time.Hour))
	requireInForce(9*time.Hour, webhook.PolicyOfEndpoint)

	policy, source := new(b.setPolicy(t, retry.Policy{})).PolicyInForce()
	require.Equal(t, 8*time.Hour, policy.GiveUpAfter, "the change is answered with what it comes to")
	require.Equal(t, webhook.PolicyOfTenant, source)
	created := testEndpoint("acme")
	created.RetryPolicy = retry.Policy{}
	created, err := b.CreateEndpoint(t.Context(), testActor(), created, canarySecret)
	require.NoError(t, err)
	policy, source = created.PolicyInForce()
	require.Equal(t, 8*time.Hour, policy.GiveUpAfter)
	require.Equal(t, webhook.PolicyOfTenant, source)

	b.putPolicy(t, retry.Policy{})
	read, err := b.Endpoint(t.Context(), "acme", created.ID)
	require.NoError(t, err)
	_, source = read.PolicyInForce()
	require.Equal(t, webhook.PolicyOfInstallation, source)
}

// Another policy of the tenant takes effect as a change of the endpoint does: at once where
// it was made, soon in other processes, and for every event that is accepted afterwards.
func TestATenantsPolicyIsHeardByOtherProcesses(t *testing.T) {
	t.Parallel()
	b := setupPolicies(t)
	other := openStore(t, b.address)
	listen(t, other)
	targets := []*EndpointCache{b.Cache(), other.Cache()}
	after := func(c *EndpointCache) time.Duration {
		target, err := c.Target(t.Context(), b.endpoint.ID)
		require.NoError(t, err)
		policy, _ := target.PolicyInForce()
		return policy.GiveUpAfter
	}
	require.Equal(t, []time.Duration{5 * time.Hour, 72 * time.Hour}, []time.Duration{after(targets[0]), after(targets[1])})
	_, err := other.Accept(t.Context(), newEvent("order.paid"))
	require.NoError(t, err)

	for _, want := range []time.Duration{7 * time.Hour, 8 * time.Hour} {
		b.putPolicy(t, givesUpAfter(want))
		accepted, err := other.Accept(t.Context(), newEvent("order.paid")) // before it can have heard of it
		require.NoError(t, err)
		require.Equal(t, accepted.Event.CreatedAt.Add(want), accepted.Deliveries[0].GiveUpAt)
		require.Equal(t, want, after(targets[0]))
		start := time.Now()
		require.Eventually(t, func() bool { return after(targets[1]) == want }, eventually, poll)
		require.Less(t, time.Since(start), freshFor/2, "heard, and not just grown old")
		require.True(t, other.Listening())
	}

	before := version(t, b.stores, "acme")
	kept, err := other.Cache().Target(t.Context(), b.endpoint.ID)
	require.NoError(t, err)
	b.putPolicy(t, givesUpAfter(8*time.Hour))
	require.Equal(t, before, version(t, b.stores, "acme"), "the same again is no change")
	again, err := other.Cache().Target(t.Context(), b.endpoint.ID)
	require.NoError(t, err)
	require.Same(t, kept, again)
}

// A list that shares its memory with the installation's policy is never handed out to be
// changed.
func TestInheritedPoliciesAreNotShared(t *testing.T) {
	t.Parallel()
	b := setupPolicies(t)
	_, err := b.UpdateEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.Description = "changed"
		e.Inherited.Policy.AmbiguousDelays[0] = time.Millisecond
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, time.Minute, b.retryPolicy.AmbiguousDelays[0])
}
