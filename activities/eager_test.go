package activities_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// known is a new delivery of an endpoint that the process has in memory.
func (b *bundle) known(t *testing.T, p *process) activities.AttemptInput {
	t.Helper()
	in := b.fresh(t, p)
	_, err := p.record.Endpoints.Cache().Target(t.Context(), b.endpoint.ID) // the last step: it stays there for two seconds
	require.NoError(t, err)
	return in
}

// neverSlow is how long an eager request may take where a test has one that is not slow.
func neverSlow(c *activities.Config) { c.FastWait = time.Hour }

// gathering is the id of the workflow under which delivered deliveries are recorded.
const gathering = "fanout/some"

// starts notes what becomes of the workflow of an eager delivery.
type starts struct {
	mu      sync.Mutex
	calls   []string
	stopped bool // no workflow will be started
}

func (s *starts) note(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

func (s *starts) WorkflowForDelivered() (workflowID string, starts bool) {
	s.note("delivered")
	return gathering, !s.stopped
}

func (s *starts) StartDelivered() { s.note("ended") }

func (s *starts) StartOwn(recorded bool) (starts bool) {
	s.note(fmt.Sprint("undelivered, recorded: ", recorded))
	return !s.stopped
}

func (s *starts) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// The calls of EagerStart in their order.
func delivered() []string { return []string{"delivered", "ended"} }
func undelivered() []string {
	return []string{"undelivered, recorded: true"}
}

// comeTo waits until the calls are the ones that are wanted.
func (s *starts) comeTo(t *testing.T, want []string) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Equal(s.all(), want) }, 20*time.Second, time.Millisecond, "%v", want)
}

// inOutbox reports whether the delivery's outbox row is there.
func (b *bundle) inOutbox(t *testing.T, in activities.AttemptInput) bool {
	t.Helper()
	var n int
	require.NoError(t, b.store.Pool().QueryRow(t.Context(), `select count(*) from outbox where delivery_id = $1`, in.DeliveryID).Scan(&n))
	return n == 1
}

// R1, R2: an eager request is the first attempt, and is recorded at once. What is delivered is recorded
// under the workflow in which it ends, and out of the outbox; anything else under the delivery's own, and
// stays there until that has been started. The workflow finds the attempt, in this process or another.
func TestEagerAttempt(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]webhook.State{200: webhook.StateDelivered, 503: webhook.StateRetrying, 400: webhook.StateDeadLettered} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.guarded(t, admission.New(admission.Config{}), neverSlow)
			in := b.known(t, p)
			b.Script("/hook", receivertest.Step{Status: status})
			start := &starts{}
			require.True(t, p.Eager.SendEagerly(in, start))
			calls, workflow := undelivered(), in.WorkflowID(in.Run)
			if want == webhook.StateDelivered {
				calls, workflow = delivered(), gathering
			}
			start.comeTo(t, calls)
			d := b.delivery(t, in)
			require.Equal(t, want, d.State)
			require.Equal(t, workflow, d.WorkflowID)
			require.Equal(t, [2]int{1, 1}, [2]int{d.Run, d.Seq})
			require.Equal(t, want != webhook.StateDelivered, b.inOutbox(t, in))
			require.Len(t, b.attempts(t, in), 1)

			for range 2 { // R3: its task was lost
				got, err := p.attempt(in)
				require.NoError(t, err)
				require.Equal(t, d.Progress, got.Progress)
			}
			require.Zero(t, p.record.count(), "the token was its permission")
			elsewhere, err := b.process(t, nil).attempt(in)
			require.NoError(t, err)
			require.Equal(t, d.Progress, elsewhere.Progress)
			require.Equal(t, 1, b.Count())
			require.Zero(t, p.Eager.UnderWay())
			require.Equal(t, calls, start.all())
		})
	}
}

// R4: an eager request that takes long is claimed for the delivery's own workflow, which is started at
// once and waits for it. The outbox row stays, unless it is delivered after all.
func TestEagerAndSlow(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]webhook.State{200: webhook.StateDelivered, 503: webhook.StateRetrying, 400: webhook.StateDeadLettered} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			b, start := setup(t), &starts{}
			p := b.guarded(t, admission.New(admission.Config{}), func(c *activities.Config) { c.FastWait = time.Second }) // the claim has as long
			in := b.known(t, p)
			b.Script("/hook", receivertest.Step{Status: status})
			b.Hold()
			require.True(t, p.Eager.SendEagerly(in, start))
			require.NoError(t, b.WaitHeld(t.Context(), 1))
			start.comeTo(t, undelivered())
			require.True(t, b.inOutbox(t, in))
			busy, err := b.process(t, nil).attempt(in)
			require.NoError(t, err)
			require.False(t, busy.ClaimedUntil.IsZero(), "the store knows which process sends it")
			shared := in
			shared.Shared = gathering
			running, err := p.attempt(shared)
			require.NoError(t, err)
			require.True(t, running.Running)
			require.NotZero(t, running.CheckAt, "a shared workflow that the relay has started checks it again")
			own, err := p.attempt(in)
			require.NoError(t, err)
			require.True(t, own.Running)
			joined := later(func() (activities.AttemptResult, error) { return p.await(in) })
			other := b.process(t, nil)
			elsewhere := later(func() (activities.AttemptResult, error) { return other.await(in) })
			b.Release()
			for _, end := range []outcome{<-joined, <-elsewhere} {
				require.NoError(t, end.err)
				require.Equal(t, want, end.result.State)
			}
			require.Equal(t, in.WorkflowID(in.Run), b.delivery(t, in).WorkflowID)
			require.Equal(t, want != webhook.StateDelivered, b.inOutbox(t, in))
			p.Attempts.Stop(context.WithoutCancel(t.Context()))
			require.Equal(t, 1, b.Count())
			require.Equal(t, 1, p.record.count(), "one claim")
			require.Zero(t, p.Eager.UnderWay())
			require.Equal(t, undelivered(), start.all())
		})
	}
}

// R11: a stop does not keep a slow eager request from its claim: another process would send it again.
func TestEagerAndSlowWhileStopping(t *testing.T) {
	t.Parallel()
	b, start := setup(t), &starts{stopped: true}
	p := b.guarded(t, admission.New(admission.Config{}), func(c *activities.Config) { c.FastWait = time.Second })
	in := b.known(t, p)
	b.Hold()
	require.True(t, p.Eager.SendEagerly(in, start))
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.Attempts.Stop(context.WithoutCancel(t.Context()))
	}()
	b.awaitClaim(t, in)
	busy, err := b.process(t, nil).attempt(in)
	require.NoError(t, err)
	require.False(t, busy.ClaimedUntil.IsZero())
	b.Release()
	<-stopped
	require.Equal(t, 1, b.Count())
	require.Equal(t, webhook.StateDelivered, b.delivery(t, in).State)
}

// An outcome that cannot be recorded is recorded when the store is back, and only then is its workflow started:
// in another process, it would send again.
func TestEagerAndNotRecorded(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]webhook.State{200: webhook.StateDelivered, 503: webhook.StateRetrying} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			b, start := setup(t), &starts{}
			cable, address := postgrestest.NewProxy(t, b.address)
			p := b.processAt(t, address, neverSlow)
			in := b.known(t, p)
			b.Script("/hook", receivertest.Step{Status: status})
			b.Hold()
			require.True(t, p.Eager.SendEagerly(in, start))
			require.NoError(t, b.WaitHeld(t.Context(), 1))
			cable.Cut()
			b.Release()
			require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "internal fault") }, 30*time.Second, time.Millisecond)
			require.True(t, b.inOutbox(t, in))
			cable.Restore()
			if want == webhook.StateDelivered {
				start.comeTo(t, delivered())
			} else {
				start.comeTo(t, undelivered())
			}
			require.Equal(t, want, b.delivery(t, in).State)
			for _, one := range []*process{p, b.process(t, nil)} {
				got, err := one.attempt(in)
				require.NoError(t, err)
				require.Equal(t, want, got.State)
			}
			require.Equal(t, 1, b.Count())
		})
	}
}

// R11: an outcome that cannot be recorded does not keep a process whose time to stop is over. The relay starts the workflow.
func TestEagerAndStoppedInAnOutage(t *testing.T) {
	t.Parallel()
	b, start := setup(t), &starts{}
	cable, address := postgrestest.NewProxy(t, b.address)
	p := b.processAt(t, address, neverSlow)
	in := b.known(t, p)
	b.Script("/hook", receivertest.Step{Status: 503})
	b.Hold()
	require.True(t, p.Eager.SendEagerly(in, start))
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	cable.Cut()
	b.Release()
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "internal fault") }, 30*time.Second, time.Millisecond)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	p.Attempts.Stop(over)
	require.Equal(t, []string{"undelivered, recorded: false"}, start.all())
	require.True(t, b.inOutbox(t, in))
}

// R11: what is under way is recorded before the process ends.
func TestEagerAndStopped(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]webhook.State{200: webhook.StateDelivered, 503: webhook.StateRetrying} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			b, start := setup(t), &starts{stopped: true}
			p := b.guarded(t, admission.New(admission.Config{}), neverSlow)
			in, second := b.known(t, p), b.known(t, p)
			b.Script("/hook", receivertest.Step{Status: status})
			b.Hold()
			require.True(t, p.Eager.SendEagerly(in, start))
			require.NoError(t, b.WaitHeld(t.Context(), 1))
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				p.Attempts.Stop(context.WithoutCancel(t.Context()))
			}()
			b.Release()
			<-stopped
			require.Equal(t, want, b.delivery(t, in).State)
			require.True(t, b.inOutbox(t, in), "the relay of the next process starts its workflow")
			require.False(t, p.Eager.SendEagerly(second, &starts{}), "nothing begins any more")
		})
	}
}

// R5: a delivery that is cancelled while its eager request is under way: delivered wins,
// and a request that goes on is not cut off.
func TestEagerAndCancelled(t *testing.T) {
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
			require.True(t, p.Eager.SendEagerly(in, &starts{}))
			status, err := p.Steps.RecordStep(t.Context(), cancelled(in))
			require.NoError(t, err)
			require.True(t, status.State.Open())
			require.False(t, status.ClaimedUntil.IsZero(), "to be tried again")
			b.Release()
			require.Eventually(t, func() bool { return len(b.attempts(t, in)) == 1 }, 20*time.Second, time.Millisecond)
			d := b.delivery(t, in)
			require.Equal(t, test.want, d.State)
			in.Progress = d.Progress
			status, err = p.Steps.RecordStep(t.Context(), cancelled(in))
			require.NoError(t, err)
			require.Equal(t, test.left, status.State)
			require.Equal(t, 1, b.Count())
		})
	}
}

// After an internal fault of an eager request, the next attempt needs a claim.
func TestEagerAndAFault(t *testing.T) {
	t.Parallel()
	for name, sender := range map[string]faulty{
		"fault": func(context.Context, egress.Request) egress.Response {
			return egress.Response{InternalFault: true, Err: "ours"}
		},
		"panic": func(context.Context, egress.Request) egress.Response { panic("ours") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, g := setup(t), admission.New(admission.Config{})
			var broken *process
			fails := make(chan struct{})
			broken = b.guarded(t, g, func(c *activities.Config) {
				neverSlow(c)
				well := c.Sender
				c.Sender = faulty(func(ctx context.Context, r egress.Request) egress.Response {
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
			require.True(t, broken.Eager.SendEagerly(in, &starts{}))
			<-fails
			require.Eventually(t, func() bool { return g.Totals().InFlight == 0 && broken.Eager.UnderWay() == 0 }, 20*time.Second, time.Millisecond)
			require.Eventually(t, func() bool {
				got, err := broken.attempt(in)
				return err == nil && got.State == webhook.StateDelivered
			}, 20*time.Second, time.Millisecond)
			require.Equal(t, 1, b.Count())
			require.Positive(t, broken.record.count(), "there is no token any more")
		})
	}
}

// Nothing is sent eagerly if a condition is not met, and then the attempt finds all
// as it was.
func TestNotEager(t *testing.T) {
	t.Parallel()
	type change func(t *testing.T, b *bundle, p *process, g *admission.Controller)
	enter := func(t *testing.T, b *bundle, g *admission.Controller) *admission.Permit {
		t.Helper()
		pass := g.Acquire(t.Context(), admission.Request{
			Endpoint: b.endpoint.ID, Delivery: webhook.DeliveryID{1}, Limits: admission.LimitsOf(&b.endpoint),
		}).Permit
		require.NotNil(t, pass)
		return pass
	}
	for name, test := range map[string]struct {
		change change
		state  webhook.State
	}{
		"paused": {func(t *testing.T, b *bundle, p *process, _ *admission.Controller) {
			t.Helper()
			_, err := b.store.Endpoints.PauseEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID, "")
			require.NoError(t, err)
			p.record.Endpoints.Cache().ForgetTenant(tenant)
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
			require.False(t, p.Eager.SendEagerly(in, &starts{}))
			require.Zero(t, p.Eager.UnderWay())
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
		require.False(t, p.Eager.SendEagerly(b.fresh(t, p), &starts{}))
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.guarded(t, admission.New(admission.Config{}), nil)
		in := b.known(t, p)
		b.Hold()
		require.True(t, p.Eager.SendEagerly(in, &starts{}))
		require.False(t, p.Eager.SendEagerly(in, &starts{}))
		b.Release()
		_, err := p.attempt(in)
		require.NoError(t, err)
		require.False(t, p.Eager.SendEagerly(in, &starts{}), "it was made")
		require.Equal(t, 1, b.Count())
	})
	t.Run("without a token", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.guarded(t, admission.New(admission.Config{}), nil)
		in := b.known(t, p)
		_, ok := p.fresh.Take(in.Ref)
		require.True(t, ok)
		cancel := webhook.PendingCommand{Command: webhook.CommandCancel}
		_, _, err := b.store.Deliveries.Command(t.Context(), webhook.Actor{Name: "test"}, tenant, in.DeliveryID, cancel)
		require.NoError(t, err)
		require.False(t, p.Eager.SendEagerly(in, &starts{}))
		got, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.CommandCancel, got.Command.Command)
		require.Zero(t, b.Count())
	})
}

// inputOf is the first attempt of an event with one delivery, with a token at the process.
func inputOf(p *process, one webhook.Accepted) activities.AttemptInput {
	p.intake.Accepted(one)
	start := one.Deliveries[0]
	return activities.AttemptInput{FirstTask: true, Ref: start.Ref, Progress: webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt}}
}

// A tenant has as many eager requests as it leaves to the others, and a slow receiver counts
// for a moment only.
func TestEagerIsShared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.limit(t, 1000, 10_000)
	another := b.endpoint
	another.ID, another.EventTypes = webhook.NewEndpointID(), []string{"another"}
	_, err := b.store.Endpoints.CreateEndpoint(t.Context(), webhook.Actor{Name: "test"}, another, secret)
	require.NoError(t, err)
	p := b.guarded(t, admission.New(admission.Config{}), func(c *activities.Config) { c.FastWait = 2 * time.Second })
	eagerly := func(in activities.AttemptInput) bool {
		_, err := p.record.Endpoints.Cache().Target(t.Context(), in.EndpointID) // a notice may have had it forgotten
		return err == nil && p.Eager.SendEagerly(in, &starts{})
	}
	b.Hold()
	batch := webhook.NewBatch{TenantID: tenant}
	for range activities.MaxEager / 2 {
		batch.Events = append(batch.Events, webhook.NewEvent{TenantID: tenant, Type: "order.paid", Payload: []byte(payload)})
	}
	accepted, err := b.store.Events.AcceptBatch(t.Context(), batch)
	require.NoError(t, err)
	all := make([]activities.AttemptInput, len(accepted))
	for i, one := range accepted {
		all[i] = inputOf(p, one)
	}
	for _, in := range all {
		require.True(t, eagerly(in))
	}
	next := func() activities.AttemptInput { // with a fresh token
		one, err := b.store.Events.Accept(t.Context(), webhook.NewEvent{
			TenantID: tenant, Type: "order.paid", Payload: []byte(payload), EndpointIDs: []webhook.EndpointID{another.ID},
		})
		assert.NoError(t, err)
		return inputOf(p, one)
	}
	in := next()
	_, err = p.record.Endpoints.Cache().Target(t.Context(), in.EndpointID)
	require.NoError(t, err)
	require.False(t, eagerly(in))
	require.Eventually(t, func() bool { return eagerly(next()) }, 20*time.Second, 20*time.Millisecond, "the first are slow")
	b.Release()
}
