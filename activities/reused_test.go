package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// warm delivers one event, so that its connection is kept.
func (b *bundle) warm(t *testing.T, p *process) {
	t.Helper()
	got, err := p.attempt(b.stored(t))
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
}

// reasons are those of the delivery's attempts, the first one first.
func (b *bundle) reasons(t *testing.T, in activities.AttemptInput) (all []retry.Reason) {
	t.Helper()
	for _, made := range b.attempts(t, in) {
		all = append([]retry.Reason{made.Outcome.Reason}, all...)
	}
	return all
}

// A kept connection that ends under the request: the request is sent again at once, on a new connection. The first
// attempt is recorded before that, and only the second one counts.
func TestReusedConnectionEnds(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *bundle, *process) activities.AttemptInput{
		"with a claim": func(t *testing.T, b *bundle, _ *process) activities.AttemptInput { t.Helper(); return b.stored(t) },
		"with a token": func(t *testing.T, b *bundle, p *process) activities.AttemptInput { t.Helper(); return b.fresh(t, p) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.update(t, func(ep *webhook.Endpoint) { ep.MaxInFlight, ep.RetryPolicy.MaxAttempts = 1, 1 })
			ctl := admission.New(admission.Config{})
			p := b.guarded(t, ctl, nil)
			b.warm(t, p)
			in := begin(t, b, p)
			b.Script("/hook", receivertest.Step{Drop: true})
			got, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, webhook.StateDelivered, got.State)
			require.Equal(t, [3]int{2, 1, 2}, [3]int{got.Attempts, got.RunAttempts, got.Seq})
			require.Equal(t, got.Progress, b.delivery(t, in).Progress)
			require.Equal(t, []retry.Reason{retry.ReasonConnectionReused, retry.ReasonDelivered}, b.reasons(t, in))
			first := b.attempts(t, in)[1]
			require.Zero(t, b.attempts(t, in)[0].Late, "it is due earlier than it could be made")
			require.Contains(t, first.Error, "connection_reused: ")
			require.Zero(t, first.Delay)

			sent := b.Requests()[1:]
			require.Len(t, sent, 2)
			require.Equal(t, sent[0].WebhookID(), sent[1].WebhookID())
			require.Equal(t, "1", sent[0].Header.Get("everpost-attempt"))
			require.Equal(t, "2", sent[1].Header.Get("everpost-attempt"))
			require.NotEqual(t, sent[0].RemoteAddr, sent[1].RemoteAddr)

			state := ctl.Health(b.endpoint.ID)
			require.Zero(t, state.Retries, "admission knows of the second one only, as a first attempt")
			require.Equal(t, 2, state.First)
			require.Zero(t, state.InFlight)

			again, err := p.attempt(in) // R3: its task was lost
			require.NoError(t, err)
			require.Equal(t, got.Progress, again.Progress)
			require.Len(t, b.Requests(), 3)
		})
	}
}

// ended is a sender: each of its requests meets the end of a kept connection.
func ended(context.Context, egress.Request) egress.Response {
	return egress.Response{
		Answer: retry.Answer{Failure: retry.FailureUnexpectedEOF, ReceivedAt: time.Now()}, ReusedEnded: true, Err: "unexpected_eof: closed",
	}
}

// It is sent again once in a run, whichever process makes the attempts; after a replay once more.
func TestReusedConnectionEndsOften(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process := func() *process {
		return b.process(t, func(c *activities.Config) { c.Sender = faulty(ended) })
	}
	in := b.stored(t)
	b.update(t, func(ep *webhook.Endpoint) { ep.RetryPolicy.MaxAttempts = 2 })
	for attempt, state := range []webhook.State{webhook.StateRetrying, webhook.StateDeadLettered} {
		got, err := process().attempt(in)
		require.NoError(t, err)
		require.Equal(t, state, got.State)
		require.Equal(t, attempt+1, got.RunAttempts)
		in.Progress, in.FirstTask = got.Progress, false
		in.DueAt = time.Time{}
	}
	const reused, counted = retry.ReasonConnectionReused, retry.ReasonUnexpectedEOF
	require.Equal(t, []retry.Reason{reused, counted, counted}, b.reasons(t, in))

	status, err := b.store.Deliveries.Reopen(t.Context(), in.Ref, 1, "by hand")
	require.NoError(t, err)
	in.Progress = status.Progress
	got, err := process().attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateRetrying, got.State)
	require.Equal(t, [3]int{2, 1, 5}, [3]int{got.Run, got.RunAttempts, got.Attempts})
	require.Equal(t, []retry.Reason{reused, counted, counted, reused, counted}, b.reasons(t, in))
}

// The first attempt is in the store before the second is sent, and another process that finds it waits for the second.
func TestReusedConnectionIsRecordedFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.process(t, nil)
	var in activities.AttemptInput
	p := b.process(t, func(c *activities.Config) {
		requests := 0
		sender := c.Sender
		c.Sender = faulty(func(ctx context.Context, r egress.Request) egress.Response {
			requests++
			if requests == 1 {
				return ended(ctx, r)
			}
			require.Equal(t, []retry.Reason{retry.ReasonConnectionReused}, b.reasons(t, in))
			found, err := other.attempt(in)
			require.NoError(t, err)
			require.Equal(t, webhook.StateRetrying, found.State)
			in.Progress = found.Progress
			found, err = other.attempt(in)
			require.NoError(t, err)
			require.False(t, found.ClaimedUntil.IsZero())
			return sender.Send(ctx, r)
		})
	})
	in = b.stored(t)
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Len(t, b.Requests(), 1)
}

// What stands against the second attempt: a command, an endpoint's rate. The delivery goes on without a delay when it may.
func TestReusedConnectionAndThen(t *testing.T) {
	t.Parallel()
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var in activities.AttemptInput
		p := b.process(t, func(c *activities.Config) {
			c.Sender = faulty(func(ctx context.Context, r egress.Request) egress.Response {
				_, _, err := b.store.Deliveries.Command(ctx, webhook.Actor{Name: "test"}, tenant, in.DeliveryID,
					webhook.PendingCommand{Command: webhook.CommandCancel})
				require.NoError(t, err)
				return ended(ctx, r)
			})
		})
		in = b.stored(t)
		got, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.CommandCancel, got.Command.Command)
		require.Equal(t, []retry.Reason{retry.ReasonConnectionReused}, b.reasons(t, in))
	})
	t.Run("rate", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limit(t, 10, 0.001)
		p := b.guarded(t, admission.New(admission.Config{}), func(c *activities.Config) { c.Sender = faulty(ended) })
		in := b.stored(t)
		got, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.StateRetrying, got.State)
		require.Equal(t, [2]int{1, 0}, [2]int{got.Attempts, got.RunAttempts})
		require.False(t, got.DueAt.After(time.Now()), "it is due")
		in.Progress, in.FirstTask = got.Progress, false
		got, err = p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.ReasonRate, got.Reason, "and has a place of its own")
	})
}

// An eager request: the delivery's own workflow makes the second attempt, at once.
func TestReusedConnectionEndsEagerly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctl := admission.New(admission.Config{})
	p := b.guarded(t, ctl, neverSlow)
	b.warm(t, p)
	in := b.known(t, p)
	b.Script("/hook", receivertest.Step{Drop: true})
	start := &starts{}
	require.True(t, p.Eager.SendEagerly(in, start))
	start.comeTo(t, undelivered())
	require.True(t, b.inOutbox(t, in))
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateRetrying, got.State)
	require.False(t, got.DueAt.After(time.Now()))
	in.Progress = got.Progress
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, [2]int{2, 1}, [2]int{got.Attempts, got.RunAttempts})
	require.Equal(t, []retry.Reason{retry.ReasonConnectionReused, retry.ReasonDelivered}, b.reasons(t, in))
	require.Zero(t, ctl.Health(b.endpoint.ID).Retries)
	require.False(t, b.inOutbox(t, in))
}
