package activities_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// known is a new delivery of an endpoint that the process has in memory.
func (b *bundle) known(t *testing.T, p *process) activities.AttemptInput {
	t.Helper()
	_, err := p.record.EndpointCache().Target(t.Context(), b.endpoint.ID)
	require.NoError(t, err)
	return b.fresh(t, p)
}

// neverAlone is how long a request that is ahead waits for its workflow where a test has
// one: for good.
func neverAlone(c *activities.Config) { c.FastWait = time.Hour }

// The request goes out before anybody asks for it. The workflow that does then gets its
// outcome, is named by the record, and nothing is sent again.
func TestAheadOfTheWorkflow(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]string{"its own": "", "a shared one": "fanout/some"} {
		for status, want := range map[int]webhook.State{200: webhook.StateDelivered, 503: webhook.StateRetrying, 400: webhook.StateDeadLettered} {
			t.Run(fmt.Sprint(name, ", ", status), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				p := b.guarded(t, admission.New(admission.Config{}), neverAlone)
				in := b.known(t, p)
				b.Script("/hook", receivertest.Step{Status: status})
				require.True(t, p.Ahead(in))
				_, err := b.WaitFor(t.Context(), 1)
				require.NoError(t, err)
				require.Empty(t, b.attempts(t, in), "the workflow is waited for")

				in.Shared, in.Near = shared, time.Hour
				got, err := p.attempt(in)
				require.NoError(t, err)
				require.Equal(t, want, got.State)
				d := b.delivery(t, in)
				require.Equal(t, got.Progress, d.Progress)
				owner := in.WorkflowID()
				if shared != "" && want != webhook.StateDeadLettered {
					owner = shared
				}
				require.Equal(t, owner, d.WorkflowID)
				require.Len(t, b.attempts(t, in), 1)

				again, err := p.attempt(in) // R3: its task was lost
				require.NoError(t, err)
				require.Equal(t, got, again)
				require.Equal(t, 1, b.Count())
				require.Zero(t, p.record.count(), "the token was its permission")
				require.Zero(t, p.Leading())
			})
		}
	}
}

// A request that is under way when the workflow comes is waited for by it, as any other: the
// record says that it is being sent, and who goes on with it.
func TestAheadAndSlow(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]string{"its own": "", "a shared one": "fanout/some"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.guarded(t, admission.New(admission.Config{}), func(c *activities.Config) { c.FastWait, c.Starter = time.Second, &sparing{} })
			in := b.known(t, p)
			b.Script("/hook", receivertest.Step{Status: 503})
			b.Hold()
			require.True(t, p.Ahead(in))
			in.Shared, in.Near = shared, time.Hour
			got, err := p.attempt(in)
			require.NoError(t, err)
			require.True(t, got.Running)
			require.Equal(t, shared != "", !got.LookAt.IsZero(), "it stays there")
			owner := in.WorkflowID()
			if shared != "" {
				owner = shared
			}
			require.Equal(t, owner, b.delivery(t, in).WorkflowID)
			busy, err := b.process(t, nil).attempt(in)
			require.NoError(t, err)
			require.False(t, busy.BusyUntil.IsZero(), "the record knows who sends it")
			require.Eventually(t, func() bool { return p.Leading() == 0 }, 20*time.Second, time.Millisecond)
			joined := later(func() (activities.AttemptResult, error) { return p.join(in) })
			b.Release()
			end := <-joined
			require.NoError(t, end.err)
			require.Equal(t, webhook.StateRetrying, end.result.State)
			require.Equal(t, owner, end.result.WorkflowID)
			require.Equal(t, 1, p.record.count(), "one claim")
			require.Equal(t, 1, b.Count())
		})
	}
}

// starting is a Temporal that is away for a while.
type starting struct {
	sparing

	away    atomic.Int32
	started chan activities.Handover
}

func (s *starting) HandOver(_ context.Context, h activities.Handover) error {
	if s.away.Add(-1) >= 0 {
		return activities.ErrCrowded
	}
	s.started <- h
	return nil
}

// When no workflow comes, the record is told all the same: that it is being sent, and
// what it came to. What is left to do has a workflow then, however long that takes, and
// whoever comes later finds it there.
func TestAheadAndAlone(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]webhook.State{200: webhook.StateDelivered, 503: webhook.StateRetrying, 400: webhook.StateDeadLettered} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			b, starter := setup(t), &starting{started: make(chan activities.Handover, 2)}
			if want != webhook.StateDelivered {
				starter.away.Store(1)
			}
			p := b.guarded(t, admission.New(admission.Config{}), func(c *activities.Config) { c.FastWait, c.Starter = 200*time.Millisecond, starter })
			in := b.known(t, p)
			b.Script("/hook", receivertest.Step{Status: status})
			b.Hold()
			require.True(t, p.Ahead(in))
			require.NoError(t, b.WaitHeld(t.Context(), 1))
			b.claimed(t, in)
			busy, err := b.process(t, nil).attempt(in)
			require.NoError(t, err)
			require.False(t, busy.BusyUntil.IsZero())
			late := in
			late.Shared = "fanout/some"
			running, err := p.attempt(late)
			require.NoError(t, err)
			require.True(t, running.Running)
			require.Zero(t, running.LookAt, "it has to let go of it")
			b.Release()
			require.Eventually(t, func() bool { return b.delivery(t, in).State == want }, 20*time.Second, time.Millisecond)
			require.Equal(t, in.WorkflowID(), b.delivery(t, in).WorkflowID)
			if want != webhook.StateDelivered {
				require.Equal(t, activities.Handover{Ref: in.Ref, Progress: in.Progress}, <-starter.started)
			}
			got, err := p.attempt(late)
			require.NoError(t, err)
			require.Equal(t, want, got.State)
			require.Equal(t, in.WorkflowID(), got.WorkflowID)
			p.Stop(context.WithoutCancel(t.Context()))
			require.Equal(t, 1, b.Count())
			require.Zero(t, p.Leading())
			require.Empty(t, starter.started)
		})
	}
}

// claimed waits until the record says that somebody sends the delivery.
func (b *bundle) claimed(t *testing.T, in activities.AttemptInput) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := b.store.Pool().QueryRow(t.Context(), `select count(*) from deliveries where id = $1 and owner_until > now()`, in.DeliveryID).Scan(&n)
		return err == nil && n == 1
	}, 20*time.Second, time.Millisecond)
}

// What has been answered is not claimed, and has its workflow although it could not be
// recorded.
func TestAheadAndAnswered(t *testing.T) {
	t.Parallel()
	wait := func(c *activities.Config) { c.FastWait = 50 * time.Millisecond }
	t.Run("recorded", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.guarded(t, admission.New(admission.Config{}), wait)
		in := b.known(t, p)
		require.True(t, p.Ahead(in))
		require.Eventually(t, func() bool { return b.delivery(t, in).State == webhook.StateDelivered }, 20*time.Second, time.Millisecond)
		require.Zero(t, p.record.count())
	})
	t.Run("not recorded", func(t *testing.T) {
		t.Parallel()
		b, starter := setup(t), &starting{started: make(chan activities.Handover, 1)}
		cable, address := behindWire(t, b.address)
		p := b.processAt(t, address, func(c *activities.Config) {
			wait(c)
			c.Starter = starter
		})
		in := b.known(t, p)
		b.Hold()
		require.True(t, p.Ahead(in))
		require.NoError(t, b.WaitHeld(t.Context(), 1))
		b.claimed(t, in)
		cable.cut()
		b.Release()
		require.Equal(t, in.Ref, (<-starter.started).Ref)
		cable.mend()
		require.Eventually(t, func() bool {
			got, err := p.attempt(in)
			return err == nil && got.State == webhook.StateDelivered
		}, 20*time.Second, time.Millisecond)
		require.Equal(t, 1, b.Count())
	})
}

// R11: what was answered is recorded before the process ends, although no workflow has come.
func TestAheadAndStopped(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]webhook.State{200: webhook.StateDelivered, 503: webhook.StateRetrying} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			b, starter := setup(t), &starting{started: make(chan activities.Handover, 1)}
			p := b.guarded(t, admission.New(admission.Config{}), func(c *activities.Config) {
				neverAlone(c)
				c.Starter = starter
			})
			in, second := b.known(t, p), b.known(t, p)
			b.Script("/hook", receivertest.Step{Status: status})
			b.Hold()
			require.True(t, p.Ahead(in))
			require.NoError(t, b.WaitHeld(t.Context(), 1))
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				p.Stop(context.WithoutCancel(t.Context()))
			}()
			b.Release()
			<-stopped
			require.Equal(t, want, b.delivery(t, in).State)
			require.Len(t, starter.started, map[int]int{200: 0, 503: 1}[status], "what is left to do has a workflow")
			require.False(t, p.Ahead(second), "nothing begins any more")
		})
	}
}

// R5: a delivery that is cancelled before its workflow asks for the attempt: delivered wins,
// and a request that goes on is not cut off.
func TestAheadOfACancel(t *testing.T) {
	t.Parallel()
	cancelled := func(in activities.AttemptInput) webhook.Step {
		step := note(in)
		step.State, step.Reason = webhook.StateCancelled, webhook.ReasonCancelled
		return step
	}
	for name, test := range map[string]struct {
		status int
		want   webhook.State
		left   webhook.State // after a second try
	}{
		"delivered": {status: 200, want: webhook.StateDelivered, left: webhook.StateDelivered},
		"failed":    {status: 503, want: webhook.StateRetrying, left: webhook.StateCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.guarded(t, admission.New(admission.Config{}), func(c *activities.Config) { c.FastWait = 200 * time.Millisecond })
			in := b.known(t, p)
			b.Script("/hook", receivertest.Step{Status: test.status})
			b.Hold()
			require.True(t, p.Ahead(in))
			standing, err := p.RecordStep(t.Context(), cancelled(in))
			require.NoError(t, err)
			require.True(t, standing.State.Open())
			require.False(t, standing.OwnedUntil.IsZero(), "to be tried again")
			b.Release()
			require.Eventually(t, func() bool { return len(b.attempts(t, in)) == 1 }, 20*time.Second, time.Millisecond)
			d := b.delivery(t, in)
			require.Equal(t, test.want, d.State)
			in.Progress = d.Progress
			standing, err = p.RecordStep(t.Context(), cancelled(in))
			require.NoError(t, err)
			require.Equal(t, test.left, standing.State)
			require.Equal(t, 1, b.Count())
		})
	}
}

// A fault of our own is the attempt's, and the next one asks the record.
func TestAheadAndAFault(t *testing.T) {
	t.Parallel()
	for name, sender := range map[string]faulty{
		"fault": func(context.Context, activities.Request) activities.Response {
			return activities.Response{OwnFault: true, Err: "ours"}
		},
		"panic": func(context.Context, activities.Request) activities.Response { panic("ours") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, g := setup(t), admission.New(admission.Config{})
			var broken *process
			fails := make(chan struct{})
			broken = b.guarded(t, g, func(c *activities.Config) {
				neverAlone(c)
				well := c.Sender
				c.Sender = faulty(func(ctx context.Context, r activities.Request) activities.Response {
					select {
					case <-fails:
						return well.Send(ctx, r)
					default:
						close(fails)
						return sender(ctx, r)
					}
				})
			})
			in := b.known(t, broken)
			require.True(t, broken.Ahead(in))
			<-fails
			require.Eventually(t, func() bool { return g.Totals().InFlight == 0 && broken.Leading() == 0 }, 20*time.Second, time.Millisecond)
			require.Eventually(t, func() bool {
				got, err := broken.attempt(in)
				return err == nil && got.State == webhook.StateDelivered
			}, 20*time.Second, time.Millisecond)
			require.Equal(t, 1, b.Count())
			require.Positive(t, broken.record.count(), "there is no token any more")
		})
	}
}

// Nothing is sent ahead where something speaks against it, and then the attempt finds all
// as it was.
func TestNotAhead(t *testing.T) {
	t.Parallel()
	type change func(t *testing.T, b *bundle, p *process, g *admission.Controller)
	enter := func(t *testing.T, b *bundle, g *admission.Controller) *admission.Permit {
		t.Helper()
		pass := g.Acquire(t.Context(), admission.Request{Endpoint: b.endpoint.ID, Delivery: webhook.DeliveryID{1}, Limits: admission.LimitsOf(&b.endpoint)}).Permit
		require.NotNil(t, pass)
		return pass
	}
	for name, test := range map[string]struct {
		change change
		state  webhook.State
	}{
		"paused": {func(t *testing.T, b *bundle, p *process, _ *admission.Controller) {
			t.Helper()
			_, err := b.store.PauseEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID)
			require.NoError(t, err)
			p.record.EndpointCache().ForgetTenant(tenant)
		}, webhook.StateHeld},
		"no place": {func(t *testing.T, b *bundle, _ *process, g *admission.Controller) {
			t.Helper()
			pass := enter(t, b, g)
			t.Cleanup(pass.Cancel)
			b.limit(t, 1, 100)
		}, webhook.StatePending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, g := setup(t), admission.New(admission.Config{})
			p := b.guarded(t, g, nil)
			test.change(t, b, p, g)
			in := b.known(t, p)
			require.False(t, p.Ahead(in))
			require.Zero(t, p.Leading())
			got, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, test.state, got.State)
			require.Zero(t, b.Count())
		})
	}
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.guarded(t, admission.New(admission.Config{}), nil)
		require.False(t, p.Ahead(b.fresh(t, p)))
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.guarded(t, admission.New(admission.Config{}), nil)
		in := b.known(t, p)
		b.Hold()
		require.True(t, p.Ahead(in))
		require.False(t, p.Ahead(in))
		b.Release()
		_, err := p.attempt(in)
		require.NoError(t, err)
		require.False(t, p.Ahead(in), "it was made")
		require.Equal(t, 1, b.Count())
	})
	t.Run("without a token", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.guarded(t, admission.New(admission.Config{}), nil)
		in := b.known(t, p)
		_, ok := p.tokens.Fresh().Take(in.DeliveryID)
		require.True(t, ok)
		cancel := webhook.PendingCommand{Command: webhook.CommandCancel}
		_, _, err := b.store.Command(t.Context(), webhook.Actor{Name: "test"}, tenant, in.DeliveryID, cancel)
		require.NoError(t, err)
		require.False(t, p.Ahead(in))
		got, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.CommandCancel, got.Command.Command)
		require.Zero(t, b.Count())
	})
}

// inputOf is the first attempt of an event with one delivery, with a token at the process.
func inputOf(p *process, one webhook.Accepted) activities.AttemptInput {
	p.tokens.Accepted(one)
	start := one.Deliveries[0]
	return activities.AttemptInput{FirstTask: true, Ref: start.Ref, Progress: webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt}}
}

// A tenant has as many requests ahead as it leaves places to the others, and a receiver
// that is slow takes none for long.
func TestAheadIsShared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.limit(t, 1000, 10_000)
	another := b.endpoint
	another.ID, another.EventTypes = webhook.NewEndpointID(), []string{"another"}
	_, err := b.store.CreateEndpoint(t.Context(), webhook.Actor{Name: "test"}, another, secret)
	require.NoError(t, err)
	p := b.guarded(t, admission.New(admission.Config{}), func(c *activities.Config) { c.FastWait = 2 * time.Second })
	ahead := func(in activities.AttemptInput) bool {
		_, err := p.record.EndpointCache().Target(t.Context(), in.EndpointID) // a notice may have had it forgotten
		return err == nil && p.Ahead(in)
	}
	b.Hold()
	batch := webhook.NewBatch{TenantID: tenant}
	for range activities.MaxAhead / 2 {
		batch.Events = append(batch.Events, webhook.NewEvent{TenantID: tenant, Type: "order.paid", Payload: []byte(payload)})
	}
	accepted, err := b.store.AcceptBatch(t.Context(), batch)
	require.NoError(t, err)
	all := make([]activities.AttemptInput, len(accepted))
	for i, one := range accepted {
		all[i] = inputOf(p, one)
	}
	for _, in := range all {
		require.True(t, ahead(in))
	}
	last, err := b.store.Accept(t.Context(), webhook.NewEvent{
		TenantID: tenant, Type: "order.paid", Payload: []byte(payload), EndpointIDs: []webhook.EndpointID{another.ID},
	})
	require.NoError(t, err)
	in := inputOf(p, last)
	_, err = p.record.EndpointCache().Target(t.Context(), in.EndpointID)
	require.NoError(t, err)
	require.False(t, ahead(in))
	require.Eventually(t, func() bool { return ahead(in) }, 20*time.Second, time.Millisecond, "the first are slow")
	b.Release()
}
