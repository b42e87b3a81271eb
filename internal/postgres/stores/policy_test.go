package stores_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// givesUpAfter is a policy that tests recognise by its give-up time.
func givesUpAfter(after time.Duration) retry.Policy {
	policy := retry.Default()
	policy.Preset, policy.GiveUpAfter = "", after
	return policy
}

// setupPolicies is a store whose installation gives up after 5 h, with a tenant and an
// endpoint that have no policy.
func setupPolicies(t *testing.T) *storetest.Bundle {
	t.Helper()
	address := postgrestest.New(t)
	s, err := storetest.OpenStores(t.Context(), stores.Config{
		URL: address, MaxConns: 4, Sealer: storetest.NewTestSealer(t), RetryPolicy: givesUpAfter(5 * time.Hour),
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	b := &storetest.Bundle{Stores: s, Address: address}
	b.PutPolicy(t, retry.Policy{})
	b.Subscriber = b.AddEndpoint(t, "*", "everpost.*")
	b.SetPolicy(t, retry.Policy{})
	return b
}

// The policy in force is the endpoint's own, else its tenant's, else the installation's, wherever the endpoint is read.
func TestPolicyInForce(t *testing.T) {
	t.Parallel()
	b := setupPolicies(t)
	requireInForce := func(after time.Duration, whose webhook.PolicySource) {
		t.Helper()
		read, err := b.Endpoint(t.Context(), "acme", b.Subscriber.ID)
		require.NoError(t, err)
		list, err := b.ListEndpoints(t.Context(), "acme", webhook.Page{Limit: 10})
		require.NoError(t, err)
		of, _, err := storetest.ReadEndpoints(t.Context(), b.Cache(), "acme")
		require.NoError(t, err)
		target, err := b.Target(t.Context(), b.Subscriber.ID)
		require.NoError(t, err)
		cached, err := b.Cache().Target(t.Context(), b.Subscriber.ID)
		require.NoError(t, err)
		for _, e := range []webhook.Endpoint{read, list[0], of[0], target.Endpoint, cached.Endpoint} {
			policy, source := e.PolicyInForce()
			require.Equal(t, after, policy.GiveUpAfter)
			require.Equal(t, whose, source)
		}

		// Accepted, replayed by hand and by a replay: each fixes its give-up time by it.
		start := b.AcceptOne(t)
		require.Equal(t, start.CreatedAt.Add(after), start.GiveUpAt)
		for run := 2; run <= 3; run++ {
			step := storetest.StepOf(start, 1, webhook.StateDeadLettered)
			step.Run, step.Reason = run-1, "http_400"
			step.Attempts, step.RunAttempts, step.Attempt = run-1, 1, storetest.AttemptOf(run-1, run-1, 400)
			step.Attempt.Latency = 0
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
			if run == 2 {
				_, _, err = b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
				require.NoError(t, err)
			} else {
				b.ReleaseBatch(t, b.StartReplay(t, webhook.Replay{}), 1, 10)
			}
			d, err := b.Delivery(t.Context(), "acme", start.DeliveryID)
			require.NoError(t, err)
			require.Equal(t, run, d.Run)
			require.WithinDuration(t, time.Now().Add(after), d.GiveUpAt, time.Minute)
		}

		// So does what Everpost says itself.
		_, err = b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
		require.NoError(t, err)
		given := storetest.Query[time.Duration](t, b.Stores, `
			select (extract(epoch from give_up_at - created_at) * 1000000000)::bigint from outbox where event_type = 'everpost.endpoint.paused'`)
		require.Equal(t, []time.Duration{after}, given)
		_, err = b.Pool().Exec(t.Context(), `delete from outbox; `)
		require.NoError(t, err)
		_, _, err = b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, 100, "")
		require.NoError(t, err)
		_, err = b.Pool().Exec(t.Context(), `delete from outbox; `)
		require.NoError(t, err)
	}
	require.Equal(t, []bool{true}, storetest.Query[bool](t, b.Stores, `select retry_policy is null from endpoints`))
	requireInForce(5*time.Hour, webhook.PolicyOfInstallation)
	b.PutPolicy(t, givesUpAfter(7*time.Hour))
	requireInForce(7*time.Hour, webhook.PolicyOfTenant)

	e := b.SetPolicy(t, givesUpAfter(9*time.Hour))
	require.Equal(t, 9*time.Hour, e.RetryPolicy.GiveUpAfter)
	requireInForce(9*time.Hour, webhook.PolicyOfEndpoint)
	b.PutPolicy(t, givesUpAfter(8*time.Hour))
	requireInForce(9*time.Hour, webhook.PolicyOfEndpoint)

	policy, source := new(b.SetPolicy(t, retry.Policy{})).PolicyInForce()
	require.Equal(t, 8*time.Hour, policy.GiveUpAfter, "the change is answered with what it comes to")
	require.Equal(t, webhook.PolicyOfTenant, source)
	created := storetest.TestEndpoint("acme")
	created.RetryPolicy = retry.Policy{}
	created, err := b.CreateEndpoint(t.Context(), storetest.TestActor(), created, storetest.CanarySecret)
	require.NoError(t, err)
	policy, source = created.PolicyInForce()
	require.Equal(t, 8*time.Hour, policy.GiveUpAfter)
	require.Equal(t, webhook.PolicyOfTenant, source)

	b.PutPolicy(t, retry.Policy{})
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
	other := storetest.OpenStore(t, b.Address)
	storetest.Listen(t, other)
	targets := []*endpoints.Cache{b.Cache(), other.Cache()}
	after := func(c *endpoints.Cache) time.Duration {
		target, err := c.Target(t.Context(), b.Subscriber.ID)
		require.NoError(t, err)
		policy, _ := target.PolicyInForce()
		return policy.GiveUpAfter
	}
	require.Equal(t, []time.Duration{5 * time.Hour, 72 * time.Hour}, []time.Duration{after(targets[0]), after(targets[1])})
	_, err := other.Accept(t.Context(), storetest.NewEvent("order.paid"))
	require.NoError(t, err)

	for _, want := range []time.Duration{7 * time.Hour, 8 * time.Hour} {
		b.PutPolicy(t, givesUpAfter(want))
		accepted, err := other.Accept(t.Context(), storetest.NewEvent("order.paid")) // before a notification can have arrived
		require.NoError(t, err)
		require.Equal(t, accepted.Event.CreatedAt.Add(want), accepted.Deliveries[0].GiveUpAt)
		require.Equal(t, want, after(targets[0]))
		start := time.Now()
		require.Eventually(t, func() bool { return after(targets[1]) == want }, storetest.Eventually, storetest.Poll)
		require.Less(t, time.Since(start), 30*time.Second, "notified, and not just expired")
		require.True(t, other.Listening())
	}

	before := storetest.Version(t, b.Stores, "acme")
	kept, err := other.Cache().Target(t.Context(), b.Subscriber.ID)
	require.NoError(t, err)
	b.PutPolicy(t, givesUpAfter(8*time.Hour))
	require.Equal(t, before, storetest.Version(t, b.Stores, "acme"), "the same again is no change")
	again, err := other.Cache().Target(t.Context(), b.Subscriber.ID)
	require.NoError(t, err)
	require.Same(t, kept, again)
}

// A list that shares its memory with the installation's policy is never handed out to be
// changed.
func TestInheritedPoliciesAreNotShared(t *testing.T) {
	t.Parallel()
	b := setupPolicies(t)
	_, err := b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
		e.Description = "changed"
		e.Inherited.Policy.AmbiguousDelays[0] = time.Millisecond
		return nil
	})
	require.NoError(t, err)
	again, err := b.Endpoint(t.Context(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	require.Equal(t, time.Minute, again.Inherited.Policy.AmbiguousDelays[0])
}
