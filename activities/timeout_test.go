package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// cached returns the same target to every caller, as a cache does.
type cached struct{ target *webhook.Target }

func (c cached) Target(context.Context, webhook.EndpointID) (*webhook.Target, error) {
	return c.target, nil
}

func (c cached) Known(webhook.EndpointID) (*webhook.Target, bool) { return c.target, true }

// A receiver that was fast is cut off after 5 s; the retry has 10, which is enough for it;
// and since both count, so has the next delivery's first attempt. What others may rely on
// while the request is under way, the claim, has the same length.
func TestAutoTimeout(t *testing.T) {
	t.Parallel()
	b, g := setup(t), admission.New(admission.Config{})
	change := func(e *webhook.Endpoint) error { e.AutoTimeout = true; return nil }
	endpoint, err := b.store.Endpoints.UpdateEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID, change)
	require.NoError(t, err)
	for range 150 {
		pass := g.Acquire(t.Context(), admission.Request{
			Endpoint: endpoint.ID, Delivery: webhook.DeliveryIDOf(webhook.NewEventID(), endpoint.ID), Limits: admission.LimitsOf(&endpoint),
		}).Permit
		require.NotNil(t, pass)
		pass.Done(admission.Result{Latency: 20 * time.Millisecond, Delivered: true, Answered: true})
	}
	target := b.target(t)
	p := b.guarded(t, g, func(c *activities.Config) { c.FastWait, c.Targets = 200*time.Millisecond, cached{target} })
	const answers = 6 * time.Second
	b.Script("/hook", receivertest.Step{Delay: answers}, receivertest.Step{Delay: answers})

	in := b.fresh(t, p)
	running, err := p.attempt(in)
	require.NoError(t, err)
	require.True(t, running.Running)
	b.awaitClaim(t, in)
	claimed := func() time.Duration {
		var left float64
		err := b.store.Pool().QueryRow(t.Context(), `select extract(epoch from owner_until - now()) from deliveries where id = $1`, in.DeliveryID).Scan(&left)
		require.NoError(t, err)
		return time.Duration(left * float64(time.Second))
	}
	require.InDelta(t, 10, claimed().Seconds(), 2, "its timeout and 5 s to record it")
	got, err := p.await(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateRetrying, got.State)
	cut := b.attempts(t, in)[0]
	require.Equal(t, retry.ReasonTimeoutHeaders, cut.Outcome.Reason)
	require.InDelta(t, 5, cut.Latency.Seconds(), 0.9)
	require.Equal(t, 5*time.Second, g.Health(endpoint.ID).Timeout, "one in 151")

	in.Progress, in.FirstTask = got.Progress, false
	in.DueAt = time.Time{}
	running, err = p.attempt(in)
	require.NoError(t, err)
	require.True(t, running.Running)
	b.awaitClaim(t, in)
	require.InDelta(t, 15, claimed().Seconds(), 2)
	got, err = p.await(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.InDelta(t, answers.Seconds(), b.attempts(t, in)[0].Latency.Seconds(), 2)
	require.Equal(t, 15*time.Second, g.Health(endpoint.ID).Timeout, "two in 152 took 5 s or longer")
	require.Equal(t, webhook.DefaultTimeout, target.Timeout, "what others read is as it was")
}
