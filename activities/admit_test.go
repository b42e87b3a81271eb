package activities_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// guarded is a process with an admission controller.
func (b *bundle) guarded(t *testing.T, g *admission.Controller, change func(*activities.Config)) *process {
	t.Helper()
	return b.process(t, func(c *activities.Config) {
		c.Admission = g
		if change != nil {
			change(c)
		}
	})
}

// limit changes how much the endpoint takes.
func (b *bundle) limit(t *testing.T, inFlight int, perSecond float64) {
	t.Helper()
	b.execute(t, `update endpoints set max_in_flight = $2, rate_limit = $3, version = version + 1 where id = $1`, b.endpoint.ID, inFlight, perSecond)
}

// Whatever the outcome of an attempt, its permit ends, with the result of the request. An internal fault has no result.
func TestEachPermitEnds(t *testing.T) {
	t.Parallel()
	fault := faulty(func(context.Context, egress.Request) egress.Response {
		return egress.Response{InternalFault: true, Err: "the process is stopping"}
	})
	for name, c := range map[string]struct {
		script            receivertest.Step
		sender            activities.Sender
		before            func(t *testing.T, b *bundle, in activities.AttemptInput)
		delivered, failed int
	}{
		"delivered":          {delivered: 1},
		"retried":            {script: receivertest.Step{Status: 503}, failed: 1},
		"refused":            {script: receivertest.Step{Status: 400}, failed: 1},
		"cut off":            {script: receivertest.Step{Drop: true}, failed: 1},
		"a fault of our own": {sender: fault},
		"a panic": {sender: faulty(func(context.Context, egress.Request) egress.Response {
			panic("ours")
		})},
		"sent by another process": {before: func(t *testing.T, b *bundle, in activities.AttemptInput) {
			t.Helper()
			begun, err := b.store.Deliveries.Claim(t.Context(), webhook.Claim{Ref: in.Ref, Progress: in.Progress, Claimant: "another", For: time.Minute})
			require.NoError(t, err)
			require.True(t, begun.Granted)
		}},
		"cancelled": {before: func(t *testing.T, b *bundle, in activities.AttemptInput) {
			t.Helper()
			cancel := webhook.PendingCommand{Command: webhook.CommandCancel}
			_, _, err := b.store.Deliveries.Command(t.Context(), webhook.Actor{Name: "test"}, tenant, in.DeliveryID, cancel)
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, g := setup(t), admission.New(admission.Config{})
			p := b.guarded(t, g, func(config *activities.Config) {
				if c.sender != nil {
					config.Sender = c.sender
				}
			})
			in := b.stored(t)
			b.Script("/hook", c.script)
			if c.before != nil {
				c.before(t, b, in)
			}
			_, _ = p.attempt(in)
			require.Zero(t, g.Totals().InFlight)
			health := g.Health(b.endpoint.ID)
			require.Equal(t, c.delivered, health.Delivered)
			require.Equal(t, c.failed, health.Failed)
		})
	}
}

// A deferral is recorded, is no attempt, and uses up the fresh token: the next attempt needs a claim.
func TestDeferral(t *testing.T) {
	t.Parallel()
	b, g := setup(t), admission.New(admission.Config{})
	b.limit(t, 10, 0.01)
	p := b.guarded(t, g, nil)
	first := b.fresh(t, p)
	got, err := p.attempt(first)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)

	in := b.fresh(t, p)
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StatePending, got.State)
	require.Equal(t, "rate", got.Reason)
	require.True(t, got.Deferred())
	require.Zero(t, got.Attempts)
	require.InDelta(t, 100, time.Until(got.DueAt).Seconds(), 2)
	require.Equal(t, got.Progress, b.delivery(t, in).Progress)
	require.Equal(t, 1, g.Totals().Reserved)
	_, there := p.fresh.Take(in.Ref)
	require.False(t, there)

	// Its end gives the reservation back.
	step := webhook.Step{Ref: in.Ref, Progress: got.Progress, WorkflowID: in.WorkflowID(in.Run)}
	step.Seq++
	step.State, step.Reason, step.DueAt = webhook.StateCancelled, webhook.ReasonCancelled, time.Time{}
	_, err = p.Steps.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Zero(t, g.Totals().Reserved)
	require.Equal(t, 1, b.Count())
}

// A retry that has to wait stays retrying, and one that was held is held no more.
func TestDeferralOfARetry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to webhook.State
		attempts int
	}{
		"before the first attempt": {webhook.StatePending, webhook.StatePending, 0},
		"a retry":                  {webhook.StateRetrying, webhook.StateRetrying, 2},
		"held before the first":    {webhook.StateHeld, webhook.StatePending, 0},
		"held before a retry":      {webhook.StateHeld, webhook.StateRetrying, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, g := setup(t), admission.New(admission.Config{})
			b.limit(t, 10, 0.01)
			p := b.guarded(t, g, nil)
			_, err := p.attempt(b.stored(t))
			require.NoError(t, err)
			in := b.stored(t)
			in.State, in.Attempts, in.RunAttempts = c.from, c.attempts, c.attempts
			got, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, c.to, got.State)
			require.Equal(t, c.attempts, got.Attempts)
			require.True(t, got.Deferred())
		})
	}
}

// Slow receivers hold a workflow's task for a moment only, have no more than half of
// all running attempts together, and those of a tenant no more than they leave to others.
func TestSlowReceivers(t *testing.T) {
	t.Parallel()
	b, g := setup(t), admission.New(admission.Config{})
	p := b.guarded(t, g, func(c *activities.Config) { c.MaxRunning = 8 })
	b.Script("/hook", receivertest.Step{Hang: true}, receivertest.Step{Hang: true}, receivertest.Step{Hang: true})
	// One that is known to be slow: as after a request that took long.
	pass := g.Acquire(t.Context(), admission.Request{Endpoint: b.endpoint.ID, Limits: admission.LimitsOf(&b.endpoint)}).Permit
	require.NotNil(t, pass)
	pass.Done(admission.Result{Latency: 5 * time.Second, Delivered: true, Answered: true})
	require.True(t, g.LikelySlow(b.endpoint.ID))

	for range 2 {
		begun := time.Now()
		got, err := p.attempt(b.stored(t))
		require.NoError(t, err)
		require.True(t, got.Running)
		require.Less(t, time.Since(begun), 5*time.Second, "the fast wait of these tests is 10 s")
	}
	got, err := p.attempt(b.stored(t))
	require.NoError(t, err)
	require.False(t, got.Running)
	require.Equal(t, "capacity", got.Reason)
	require.True(t, got.Deferred())
	require.Equal(t, 2, g.Totals().InFlight)
}

// Payloads that are being sent have a bound. A tenant without room waits; another tenant does not.
func TestRoomForPayloads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	release := p.Attempts.HoldPayloads("other", 80<<20)
	got, err := p.attempt(b.stored(t))
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State, "half of the room is kept from any tenant alone")
	require.Equal(t, 64<<20, p.Attempts.PayloadBytes(), "what goes beyond a tenant's share takes no room of others")
	release()

	release = p.Attempts.HoldPayloads(tenant, 64<<20)
	in := b.stored(t)
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, "capacity", got.Reason)
	require.True(t, got.Deferred())
	release()
	in.Progress = got.Progress
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Eventually(t, func() bool { return p.Attempts.PayloadBytes() == 0 }, 10*time.Second, time.Millisecond)
}

// Endpoints of one host share its permits: a real receiver never has more requests at a time, and deferred deliveries are delivered in
// turn.
func TestPermitsOfAHost(t *testing.T) {
	t.Parallel()
	const endpoints, places = 5, 2
	b, g := setup(t), admission.New(admission.Config{MaxInFlightPerHost: places})
	for i := range endpoints - 1 {
		further := b.endpoint
		further.ID, further.URL = webhook.NewEndpointID(), fmt.Sprintf("%s/%d", b.URL(), i)
		_, err := b.store.Endpoints.CreateEndpoint(t.Context(), webhook.Actor{Name: "test"}, further, secret)
		require.NoError(t, err)
	}
	p := b.guarded(t, g, nil)
	b.Hold()
	accepted, err := b.store.Events.Accept(t.Context(), webhook.NewEvent{TenantID: tenant, Type: "order.paid", Payload: []byte(payload)})
	require.NoError(t, err)
	require.Len(t, accepted.Deliveries, endpoints)
	type turned struct {
		away   webhook.DeliveryID
		reason string
	}
	away, done := make(chan turned, 1000), make(chan outcome, endpoints)
	for _, start := range accepted.Deliveries {
		in := activities.AttemptInput{Ref: start.Ref, Progress: webhook.Progress{Run: start.Run, GiveUpAt: start.GiveUpAt}}
		go func() {
			for {
				got, err := p.attempt(in)
				if err != nil || !got.Deferred() {
					done <- outcome{got, err}
					return
				}
				away <- turned{in.DeliveryID, got.Reason}
				in.Progress = got.Progress
				<-time.After(time.Until(got.DueAt)) // as the workflow does
			}
		}()
	}
	require.NoError(t, b.WaitHeld(t.Context(), places))
	waiting := map[webhook.DeliveryID]bool{}
	for len(waiting) < endpoints-places {
		got := <-away
		require.Equal(t, webhook.ReasonHost, got.reason)
		waiting[got.away] = true
	}
	require.Equal(t, places, b.Count())
	require.Equal(t, places, g.Totals().InFlight)
	b.Release()
	for range endpoints {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, webhook.StateDelivered, got.result.State)
		require.Equal(t, 1, got.result.Attempts)
	}
	for _, start := range accepted.Deliveries {
		waited := ""
		if waiting[start.DeliveryID] {
			waited = webhook.ReasonHost
		}
		attempts := b.attempts(t, activities.AttemptInput{Ref: start.Ref})
		require.Len(t, attempts, 1)
		require.Equal(t, waited, attempts[0].WaitedFor)
	}
	require.Zero(t, g.Totals().InFlight)
	require.Zero(t, g.Totals().Reserved)
}
