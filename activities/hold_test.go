package activities_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// backlogged is an admission that holds every delivery.
type backlogged struct{ *admission.Controller }

func (backlogged) Acquire(context.Context, admission.Request) admission.Decision {
	return admission.Decision{Reason: webhook.ReasonBacklog}
}

// stateOf changes the endpoint's state.
func (b *bundle) stateOf(t *testing.T, state webhook.EndpointState) {
	t.Helper()
	b.update(t, func(e *webhook.Endpoint) { e.State = state })
}

// R2, R6: while another process has a request under way, a delivery is not held: the request's outcome would
// make it open again, and its workflow would have ended with the hold.
func TestNoHoldBesideAnotherProcess(t *testing.T) {
	t.Parallel()
	for reason, hold := range map[string]func(t *testing.T, b *bundle, c *activities.Config){
		webhook.ReasonPaused: func(t *testing.T, b *bundle, _ *activities.Config) {
			t.Helper()
			b.stateOf(t, webhook.EndpointPaused)
		},
		webhook.ReasonDisabled: func(t *testing.T, b *bundle, _ *activities.Config) {
			t.Helper()
			b.stateOf(t, webhook.EndpointDisabled)
		},
		webhook.ReasonBacklog: func(_ *testing.T, _ *bundle, c *activities.Config) {
			c.Admission = backlogged{admission.New(admission.Config{})}
		},
		webhook.ReasonInternal: func(_ *testing.T, b *bundle, c *activities.Config) {
			c.Faults = &known{of: map[webhook.EndpointID]string{b.endpoint.ID: "the way out is closed"}}
		},
	} {
		for status, want := range map[int]webhook.State{503: webhook.StateRetrying, 400: webhook.StateDeadLettered} {
			t.Run(reason+", "+strconv.Itoa(status), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				p := b.process(t, slow)
				in := b.stored(t)
				b.Script("/hook", receivertest.Step{Status: status})
				b.Hold()
				got, err := p.attempt(in)
				require.NoError(t, err)
				require.True(t, got.Running)
				b.awaitClaim(t, in)

				other := b.process(t, func(c *activities.Config) { hold(t, b, c) })
				busy, err := other.attempt(in)
				require.NoError(t, err)
				require.Equal(t, webhook.StatePending, busy.State)
				require.Greater(t, time.Until(busy.ClaimedUntil), webhook.DefaultTimeout/2)
				require.Equal(t, webhook.StatePending, b.delivery(t, in).State)
				shared := other.attemptsOf(t, sharing(in)...)
				require.Len(t, shared, 1, "it does not end in a shared workflow either")
				require.False(t, shared[0].ClaimedUntil.IsZero())

				b.Release()
				end, err := p.await(in)
				require.NoError(t, err)
				require.Equal(t, want, end.State)
				require.Equal(t, 1, end.Seq, "no step came before it")
				d := b.delivery(t, in)
				require.Equal(t, end.Progress, d.Progress)
				require.Equal(t, in.WorkflowID(in.Run), d.WorkflowID)
				again, err := other.attempt(in)
				require.NoError(t, err)
				require.Equal(t, end.Progress, again.Progress, "it finds the outcome")
				require.Zero(t, again.ClaimedUntil)
				require.Equal(t, 1, b.Count())
			})
		}
	}
}

// R4: another process waits for the request although the endpoint is paused by then.
func TestAnotherProcessSendsToAPausedEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, other := b.process(t, slow), b.process(t, nil)
	in := b.stored(t)
	b.Script("/hook", receivertest.Step{Status: 503})
	b.Hold()
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.True(t, got.Running)
	b.awaitClaim(t, in)
	b.stateOf(t, webhook.EndpointPaused)
	joined := later(func() (activities.AttemptResult, error) { return other.await(in) })
	require.Eventually(t, func() bool { return other.record.looked() > 1 }, 20*time.Second, time.Millisecond, "it looks again while the claim is there")
	b.Release()
	end := <-joined
	require.NoError(t, end.err)
	require.Equal(t, webhook.StateRetrying, end.result.State)
	require.Equal(t, 1, end.result.Attempts)
	require.Equal(t, in.WorkflowID(in.Run), end.result.WorkflowID)
	require.Equal(t, end.result.Progress, b.delivery(t, in).Progress)
	require.Equal(t, 1, b.Count())
}

// A delivery that was held because of a fault after its endpoint was deleted is cancelled when it is released.
func TestHeldAtADeletedEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) {
		c.Faults = &known{of: map[webhook.EndpointID]string{b.endpoint.ID: "the way out is closed"}}
	})
	in := b.stored(t)
	require.NoError(t, b.store.Endpoints.DeleteEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID))
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateHeld, got.State)
	require.NoError(t, p.Checks.CheckEndpoint(t.Context(), b.endpoint.ID), "which lets it be released")
	starts := storetest.ReleaseNow(t, b.store, b.endpoint.ID)
	require.Len(t, starts, 1)
	in.Progress = *starts[0].Resume
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateCancelled, got.State)
	require.Equal(t, webhook.ReasonEndpointDeleted, got.Reason)
}
