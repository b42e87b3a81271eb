package intake

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("Temporal is down")

// bundle is an intake with its engine.
type bundle struct {
	*Intake

	engine *engine.Engine
}

// parts are those of a bundle that matter in a test.
type parts struct {
	Client         client.Client
	Outbox         anOutbox
	Admission      Admission
	Faults         Faults
	Forwarder      Forwarder
	LocalWorker    bool
	MaxPerWorkflow int
	QueueLength    int
	StartLoops     int
	Patience       time.Duration // with a start; defaults to an hour
	Now            func() time.Time
}

type anOutbox interface {
	Outbox
	engine.Rows
}

// setup makes an intake that has not started.
func setup(t *testing.T, p parts) *bundle {
	t.Helper()
	if p.Outbox == nil {
		p.Outbox = &outbox{}
	}
	log := slog.New(slog.DiscardHandler)
	e := engine.New(engine.Config{Client: p.Client, Rows: p.Outbox, MaxPerWorkflow: p.MaxPerWorkflow, LocalWorker: p.LocalWorker, Now: p.Now, Logger: log})
	c := Config{
		Engine: e, Logger: log, Outbox: p.Outbox, Admission: p.Admission, Faults: p.Faults, Forwarder: p.Forwarder,
		StartLoops: p.StartLoops, QueueLength: p.QueueLength, Now: p.Now,
	}
	if p.LocalWorker {
		c.Fresh = NewFresh()
	}
	b := &bundle{New(c), e}
	if b.starts.patience = time.Hour; p.Patience != 0 { // most tests say themselves when a start is answered
		b.starts.patience = p.Patience
	}
	return b
}

// start starts the intake and the check of Temporal.
func (b *bundle) start() {
	b.engine.Start()
	b.Start()
}

// stop ends what a test has started. Start leaves what is unhealthy then.
func (b *bundle) stop() {
	b.lifetime.Stop()
	b.starts.leaveUnhealthy()
}

// outbox notes what is deleted and made due.
type outbox struct {
	mu    sync.Mutex
	ended []webhook.DeliveryID
	due   []webhook.DeliveryID
}

func (o *outbox) DeleteRecorded(_ context.Context, ids []webhook.DeliveryID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, ids...)
	return nil
}

func (o *outbox) MakeDue(_ context.Context, ids []webhook.DeliveryID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.due = append(o.due, ids...)
	return nil
}

// requests is the worker of this process.
type requests struct {
	eager func(activities.AttemptInput, activities.EagerStart) bool
	read  func(context.Context, webhook.EndpointID) // nil: every endpoint is known
}

// uses gives the intake a worker, as if it had started.
func (d *bundle) uses(r Requests) { d.requests = r; d.started.Store(true) }

func (r requests) SendEagerly(in activities.AttemptInput, start activities.EagerStart) bool {
	return r.eager != nil && r.eager(in, start)
}

func (r requests) KnowsEndpoint(webhook.EndpointID) bool { return r.read == nil }

func (r requests) ReadEndpoint(ctx context.Context, id webhook.EndpointID) { r.read(ctx, id) }

// acceptedOf is an event of the tenant with n deliveries.
func acceptedOf(tenant string, n int) webhook.Accepted {
	a := enginetest.Accepted(n)
	for i := range a.Deliveries {
		a.Deliveries[i].TenantID = tenant
	}
	return a
}

func idsOf(starts []webhook.Start) (ids []webhook.DeliveryID) {
	for i := range starts {
		ids = append(ids, starts[i].DeliveryID)
	}
	return ids
}

// The check notices that Temporal is down. Then nothing is queued, and ReserveRoom does not wait.
func TestTemporalDown(t *testing.T) {
	t.Parallel()
	d := setup(t, parts{Client: enginetest.ClientOf(t, enginetest.ClosedPort(t)), QueueLength: 1, LocalWorker: true})
	require.True(t, d.health.Up())
	d.start()
	defer d.stop()
	require.Eventually(t, func() bool { return !d.health.Up() }, 30*time.Second, 5*time.Millisecond)

	before := d.Waiting()
	for range 100 {
		release, err := d.ReserveRoom(t.Context(), "acme", 1)
		require.NoError(t, err)
		d.Accepted(enginetest.Accepted(10))
		release()
	}
	require.Equal(t, before, d.Waiting())
	require.Zero(t, d.fresh.bytes, "there is no worker for it")
	require.Zero(t, d.queue.permits.Tenants())
}

// R11: Stop does not wait for a Temporal that does not answer, and nothing begins after it.
func TestStopCancelsCalls(t *testing.T) {
	t.Parallel()
	d := setup(t, parts{Client: enginetest.ClientOf(t, enginetest.SilentPort(t)), StartLoops: 2})
	d.start()
	a := enginetest.Accepted(10)
	d.Accepted(a)
	require.Eventually(t, func() bool { return d.Waiting() < 10 }, 20*time.Second, time.Millisecond, "starts are under way")
	began := time.Now()
	d.stop()
	require.Less(t, time.Since(began), 4*time.Second, "less than a call may take")
	d.Accepted(enginetest.Accepted(1)) // stays in the outbox
}

// What arrives after Stop stays in the outbox: nothing is sent eagerly, and ReserveRoom does not wait.
func TestNothingIsAcceptedAfterStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		d := setup(t, parts{LocalWorker: true, QueueLength: 10})
		d.uses(requests{eager: func(activities.AttemptInput, activities.EagerStart) bool {
			asked++
			return true
		}})
		d.queue.permits.Overdraw("acme", 10)
		d.stop()
		began := time.Now()
		release, err := d.ReserveRoom(t.Context(), "acme", 1)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		d.Accepted(enginetest.Accepted(5))
		release()
		require.Zero(t, asked)
		require.Zero(t, d.Waiting())
		require.Zero(t, d.fresh.bytes)
		require.Equal(t, 10, d.queue.permits.Held("acme"))
	})
}

// What a process that stops has not tried to start is due for another one at once: what is queued, what an eager request has
// not delivered after Stop, and what another process refuses then.
func TestStopLeavesTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, record, send := eager(t, parts{Forwarder: refusing{}})
		all := enginetest.Accepted(4)
		starts := send(all)
		queued := enginetest.Accepted(2)
		for i := range queued.Deliveries {
			require.True(t, d.queue.put(&queued.Deliveries[i]))
		}
		require.True(t, starts[0].StartOwn(true))
		d.lifetime.Go(func() {
			<-d.lifetime.Stopping().Done()
			d.starts.startBeforeStop()
		})
		d.stop()
		require.Equal(t, enginetest.RefsOf(all.Deliveries[:1]), enginetest.Begun(t, f), "it was sent")
		require.False(t, starts[1].StartOwn(true))
		d.forward(webhook.Accepted{Deliveries: all.Deliveries[2:3]})
		require.False(t, starts[3].StartOwn(false), "its request may be under way")
		left := slices.Concat(queued.Deliveries, all.Deliveries[1:3])
		require.Len(t, record.due, len(left))
		for i := range left {
			require.Equal(t, left[i].DeliveryID, record.due[i])
		}
	})
}

// refusing forwards nothing.
type refusing struct{}

func (refusing) Forward(event webhook.Accepted, done func(webhook.Start, webhook.ForwardResult)) {
	for _, start := range event.Deliveries {
		done(start, webhook.ForwardRefused)
	}
}
