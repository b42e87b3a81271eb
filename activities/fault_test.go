package activities_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

// known are the faults that the recovery knows.
type known struct {
	mu sync.Mutex
	of map[webhook.EndpointID]string
}

func (k *known) Faulted(id webhook.EndpointID, what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = map[webhook.EndpointID]string{}
	}
	k.of[id] = what
}

func (k *known) FaultOf(id webhook.EndpointID) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	what, ok := k.of[id]
	return what, ok
}

func (k *known) forget(id webhook.EndpointID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.of, id)
}

// counted counts how often an endpoint is read.
type counted struct {
	activities.Targets

	mu sync.Mutex
	n  int
}

func (c *counted) Target(ctx context.Context, id webhook.EndpointID) (*webhook.Target, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Targets.Target(ctx, id)
}

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// An internal fault that concerns all of an endpoint's deliveries holds each in the store: no
// attempt is counted, and it is seen as last_error. The others that come are held without a
// try, and one that is released tries again.
func TestFaultOfAnEndpointHoldsItsDeliveries(t *testing.T) {
	t.Parallel()
	opens := func(t *testing.T, b *bundle, p *process, key string) {
		t.Helper()
		b.execute(t, `update endpoint_secrets set kek_id = $2 where endpoint_id = $1`, b.endpoint.ID, key)
		p.record.Endpoints.Cache().ForgetTenant(tenant)
	}
	for name, c := range map[string]struct {
		send func(context.Context, egress.Request) egress.Response
		lose bool
		want string
	}{
		"its key is lost": {lose: true, want: "a secret, header or credential of the endpoint cannot be decrypted"},
		"the way out is closed": {send: func(context.Context, egress.Request) egress.Response {
			return egress.Response{InternalFault: true, Err: "no descriptor is free"}
		}, want: "no descriptor is free"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			seen, faults, targets := &metrics{}, &known{}, &counted{}
			var send activities.Sender
			p := b.process(t, func(config *activities.Config) {
				targets.Targets = config.Targets
				config.Observer, config.Faults, config.Targets = seen, faults, targets
				if c.send != nil {
					send = faulty(c.send)
					config.Sender = faulty(func(ctx context.Context, r egress.Request) egress.Response { return send.Send(ctx, r) })
				}
			})
			var key string
			require.NoError(t, b.store.Pool().QueryRow(t.Context(), `select kek_id from endpoint_secrets where endpoint_id = $1`, b.endpoint.ID).Scan(&key))
			if c.lose {
				opens(t, b, p, "kek:lost")
			}
			all := sharing(b.stored(t), b.stored(t))
			for _, in := range all {
				require.Empty(t, p.attemptsOf(t, in), "no workflow waits for it")
				d := b.delivery(t, in)
				require.Equal(t, webhook.StateHeld, d.State)
				require.Equal(t, webhook.ReasonInternal, d.Reason)
				require.Empty(t, d.WorkflowID)
				require.Contains(t, d.LastError, c.want)
				require.Zero(t, d.Attempts)
				require.Empty(t, b.attempts(t, in))
			}
			require.Equal(t, 1, seen.faults, "the second one was not tried")
			require.Equal(t, 1, targets.count())
			require.Zero(t, seen.attempted)
			require.Zero(t, b.Count())
			require.NotContains(t, p.log.String(), "canary")
			require.NotContains(t, p.log.String(), secret)

			own := b.stored(t) // in its own workflow
			result, err := p.attempt(own)
			require.NoError(t, err)
			require.Equal(t, webhook.StateHeld, result.State)
			require.Empty(t, result.WorkflowID)

			// Released, it tries; and again in vain.
			all[0].Progress = b.delivery(t, all[0]).Progress
			require.Empty(t, p.attemptsOf(t, all[0]))
			require.Equal(t, 2, targets.count())
			require.Equal(t, 2, b.delivery(t, all[0]).Seq)

			// At the give-up time it is a dead letter, whether or not it was tried.
			for _, in := range []activities.AttemptInput{all[0], all[1]} {
				in.Progress = b.delivery(t, in).Progress
				in.GiveUpAt = time.Now().Add(-time.Second)
				results := p.attemptsOf(t, in)
				require.Len(t, results, 1)
				require.Equal(t, webhook.StateDeadLettered, results[0].State)
				require.Equal(t, webhook.ReasonInternal, results[0].Reason)
				require.Contains(t, b.delivery(t, in).LastError, c.want)
			}

			// And when the fault is over, it is delivered.
			if c.lose {
				require.Error(t, p.Checks.CheckEndpoint(t.Context(), b.endpoint.ID))
				opens(t, b, p, key)
			} else {
				send = realSender(t)
			}
			require.NoError(t, p.Checks.CheckEndpoint(t.Context(), b.endpoint.ID))
			faults.forget(b.endpoint.ID)
			own.Progress = result.Progress
			result, err = p.attempt(own)
			require.NoError(t, err)
			require.Equal(t, webhook.StateDelivered, result.State)
			require.Empty(t, b.delivery(t, own).LastError)
			require.Equal(t, 1, b.Count())
		})
	}
}

// While the store is away nothing can be held in it: the fault is the workflow's to repeat,
// and said once for all that have met it.
func TestFaultsWhileTheRecordIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wire, address := postgrestest.NewProxy(t, b.address)
	p := b.processAt(t, address, nil)
	all := sharing(b.stored(t), b.stored(t), b.stored(t))
	_, err := p.record.Endpoints.Cache().Target(t.Context(), b.endpoint.ID)
	require.NoError(t, err)
	wire.Cut()
	result, err := p.Attempts.Attempts(t.Context(), all)
	require.NoError(t, err)
	require.Empty(t, result.Members)
	require.Equal(t, []activities.Fault{{What: "the database is not reachable at the moment", Of: []int{0, 1, 2}}}, result.Faults)

	// Those that have met it do not all ask again: for a moment they take it from one another.
	asked := p.record.count()
	for i := range all {
		all[i].Faults = 1
	}
	for range 5 {
		result, err = p.Attempts.Attempts(t.Context(), all)
		require.NoError(t, err)
		require.Len(t, result.Faults, 1)
	}
	require.Less(t, p.record.count()-asked, 5*len(all))

	wire.Restore()
	deadline := time.Now().Add(10 * time.Second)
	for b.Count() < len(all) {
		require.True(t, time.Now().Before(deadline))
		_, err = p.Attempts.Attempts(t.Context(), all)
		require.NoError(t, err)
	}
	for _, in := range all {
		require.Equal(t, webhook.StateDelivered, b.delivery(t, in).State)
	}
	require.Equal(t, len(all), b.Count())
}

// An internal fault of one delivery of a shared workflow is recorded. If the store says that another workflow continues the delivery, it
// leaves. After its give-up time it is given up.
func TestFaultOfOneDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) {
		c.Sender = faulty(func(context.Context, egress.Request) egress.Response { panic("canary-panic") })
	})
	in := sharing(b.stored(t))[0]
	results := p.attemptsOf(t, in)
	require.Len(t, results, 1)
	require.Contains(t, results[0].Fault, "panic")
	d := b.delivery(t, in)
	require.Contains(t, d.LastError, "panic")
	require.Equal(t, webhook.StatePending, d.State)
	require.Equal(t, d.Progress, results[0].Progress)
	require.WithinDuration(t, time.Now(), d.DueAt, 10*time.Second, "the reconciler finds it if it does not continue")
	require.Equal(t, sharedID, d.WorkflowID)

	in.Progress, in.Faults = results[0].Progress, 1
	results = p.attemptsOf(t, in)
	require.Len(t, results, 1)
	require.Equal(t, d.Seq, b.delivery(t, in).Seq, "not each time")

	in.GiveUpAt = time.Now().Add(-time.Second)
	b.execute(t, `update deliveries set give_up_at = $2 where id = $1`, in.DeliveryID, in.GiveUpAt)
	results = p.attemptsOf(t, in)
	require.Len(t, results, 1)
	require.Equal(t, webhook.StateDeadLettered, results[0].State)
	require.Equal(t, webhook.ReasonInternal, results[0].Reason)
	require.Equal(t, in.WorkflowID(in.Run), results[0].WorkflowID)
}

// Nothing is sent eagerly to an endpoint that cannot be sent to.
func TestEagerKnowsOfFaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	faults := &known{}
	p := b.process(t, func(c *activities.Config) { c.Faults = faults })
	_, err := p.record.Endpoints.Cache().Target(t.Context(), b.endpoint.ID)
	require.NoError(t, err)
	faults.Faulted(b.endpoint.ID, "the way out is closed")
	require.False(t, p.Eager.SendEagerly(b.fresh(t, p), &starts{}))
	faults.forget(b.endpoint.ID)
	require.True(t, p.Eager.SendEagerly(b.fresh(t, p), &starts{}))
}
