package starter

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

// outbox is a store of which a part may be unreadable.
type outbox struct {
	starts   []webhook.Start
	commands error

	mu    sync.Mutex
	ended []webhook.DeliveryID
	due   []webhook.DeliveryID
}

// requests is the worker of this process.
type requests struct {
	eager func(activities.AttemptInput, activities.EagerStart) bool
	check func(context.Context, webhook.EndpointID) error
	read  func(context.Context, webhook.EndpointID) // nil: every endpoint is known
}

// uses gives the starter what a worker can do, as Start does.
func (d *Starter) uses(r Requests) { d.requests.Store(&r) }

func (r requests) SendEagerly(in activities.AttemptInput, start activities.EagerStart) bool {
	return r.eager != nil && r.eager(in, start)
}

func (r requests) KnowsEndpoint(webhook.EndpointID) bool { return r.read == nil }

func (r requests) ReadEndpoint(ctx context.Context, id webhook.EndpointID) { r.read(ctx, id) }

func (r requests) CheckEndpoint(ctx context.Context, id webhook.EndpointID) error {
	return r.check(ctx, id)
}

func (o *outbox) DeleteRecorded(_ context.Context, ids []webhook.DeliveryID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, ids...)
	return nil
}

// TakeStarts assigns a workflow to the starts that have none.
func (o *outbox) TakeStarts(_ context.Context, call string, _ int) ([]webhook.Start, error) {
	starts := o.starts
	o.starts = nil
	for i := range starts {
		starts[i].Relayed++
		if starts[i].Assigned = starts[i].AssignedTo != ""; !starts[i].Assigned {
			starts[i].AssignedTo = webhook.SharedWorkflowPrefix + call + "/" + strconv.Itoa(i/webhook.MaxAssigned)
		}
	}
	return starts, nil
}

func (o *outbox) TakeCommands(context.Context, int) ([]webhook.CommandedDelivery, error) {
	return nil, o.commands
}

func (o *outbox) ReturnStarts(_ context.Context, starts []webhook.Start) error {
	o.starts = append(starts, o.starts...)
	return nil
}

func (o *outbox) MakeDue(_ context.Context, ids []webhook.DeliveryID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.due = append(o.due, ids...)
	return nil
}

// temporalAt is a client of a Temporal at an address where there is none.
func temporalAt(t *testing.T, address string) client.Client {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// closedPort is an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// silentPort is an address that accepts connections and never answers.
func silentPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var open []net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	return l.Addr().String()
}

func setup(t *testing.T, c Config) *Starter {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	if c.Outbox == nil {
		c.Outbox = &outbox{}
	}
	return New(c)
}

func accepted(n int) webhook.Accepted {
	a := webhook.Accepted{Payload: []byte("{}")}
	for range n {
		event, endpoint := webhook.NewEventID(), webhook.NewEndpointID()
		a.Deliveries = append(a.Deliveries, webhook.Start{
			Ref: webhook.Ref{
				DeliveryID: webhook.DeliveryIDOf(event, endpoint), EventID: event, EndpointID: endpoint, TenantID: "acme", EventType: "order.paid",
			},
			Run: 1, CreatedAt: time.Now(), ReceivedAt: time.Now(), GiveUpAt: time.Now().Add(time.Hour),
		})
	}
	return a
}

// An event's endpoints may overdraw the queue, but it is bounded. Accepted never waits. ReserveRoom does, for the tenant that has too
// much in the queue only.
func TestReserveRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := setup(t, Config{QueueLength: 2, LocalWorker: true})
		release, err := d.ReserveRoom(t.Context(), "acme", 1)
		require.NoError(t, err)
		d.Accepted(accepted(100))
		release()
		require.Equal(t, 30, d.Waiting(), "16 times the length, and a sixteenth of that is left free")
		require.Equal(t, 30, d.permits.Held("acme"), "what found no place uses none")

		began := time.Now()
		_, err = d.ReserveRoom(t.Context(), "acme", 1)
		require.Equal(t, reserveTimeout, time.Since(began))
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
		problem, ok := errors.AsType[*webhook.Error](err)
		require.True(t, ok)
		require.Equal(t, time.Second, problem.RetryAfter)

		began = time.Now()
		release, err = d.ReserveRoom(t.Context(), "another", 1)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		release()

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = d.ReserveRoom(ctx, "acme", 1)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 30, d.permits.Held("acme"))

		for range 30 { // as the start loops do
			start, ok := d.queue.Next()
			require.True(t, ok)
			d.permits.Release(start.TenantID, 1)
		}
		release, err = d.ReserveRoom(t.Context(), "acme", 1)
		require.NoError(t, err)
		release()
		require.Zero(t, d.permits.Held("acme"))
		require.Zero(t, d.permits.Tenants())
	})
}

// R2: payloads are kept only for deliveries that a worker of this process sends at once.
func TestFreshTokensForLocalWorker(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{true, false} {
		d := setup(t, Config{LocalWorker: local})
		a := accepted(3)
		a.Deliveries[1].NotBefore = time.Now().Add(time.Hour)
		a.Deliveries[2].ReceivedAt = time.Now().Add(-tokenLife) // its commit took so long
		d.Accepted(a)
		_, now := d.Fresh().Take(a.Deliveries[0].Ref)
		_, later := d.Fresh().Take(a.Deliveries[1].Ref)
		require.Equal(t, local, now)
		_, slow := d.Fresh().Take(a.Deliveries[2].Ref)
		require.False(t, later)
		require.False(t, slow)
	}
}

// R1: a delivery that has waited longer than queueTime is left to the relay.
func TestQueueTime(t *testing.T) {
	t.Parallel()
	d := setup(t, Config{Client: temporalAt(t, silentPort(t)), StartLoops: 1})
	a := accepted(3)
	for i := range a.Deliveries {
		a.Deliveries[i].ReceivedAt = time.Now().Add(-queueTime)
	}
	d.Accepted(a)
	d.workers.Go(d.runStartLoop)
	require.Eventually(t, func() bool { return d.permits.Held("acme") == 0 }, queueTime-time.Second, time.Millisecond,
		"none was started, which would have taken its time out")
	require.True(t, d.Healthy())
	d.Stop()
}

// The check notices that Temporal is down. Then nothing is queued, ReserveRoom does not wait, and the outbox is not read.
func TestTemporalDown(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	store, err := stores.Open(t.Context(), stores.Config{URL: address, MaxConns: 3})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	d := setup(t, Config{Client: temporalAt(t, closedPort(t)), Outbox: store.Outbox, QueueLength: 1, LocalWorker: true})
	require.True(t, d.Healthy())
	d.Start(nil)
	defer d.Stop()
	require.Eventually(t, func() bool { return !d.Healthy() }, 30*time.Second, 5*time.Millisecond)

	require.NoError(t, leaveBehind(t, store))
	require.False(t, d.relayOnce())
	var taken int
	require.NoError(t, store.Pool().QueryRow(t.Context(), `select count(*) from outbox where relay_at > now()`).Scan(&taken))
	require.Zero(t, taken)

	before := d.Waiting()
	for range 100 {
		release, err := d.ReserveRoom(t.Context(), "acme", 1)
		require.NoError(t, err)
		d.Accepted(accepted(10))
		release()
	}
	require.Equal(t, before, d.Waiting())
	require.Zero(t, d.fresh.bytes, "there is no worker for it")
	require.Zero(t, d.permits.Tenants())
}

func leaveBehind(t *testing.T, store *stores.DB) error {
	t.Helper()
	start := accepted(1).Deliveries[0]
	_, err := store.Pool().Exec(t.Context(), `
		insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at)
		values ($1, $2, $3, $4, $5, 1, now(), now() + interval '1 hour', now() - interval '1 minute')`,
		start.DeliveryID, start.EventID, start.EndpointID, start.TenantID, start.EventType)
	return err
}

// What an error of a call says about Temporal. At most it makes the check begin at once.
func TestNote(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		doubt bool
	}{
		"none":           {},
		"unavailable":    {err: serviceerror.NewUnavailable("x"), doubt: true},
		"late":           {err: context.DeadlineExceeded, doubt: true},
		"late, of gRPC":  {err: serviceerror.NewDeadlineExceeded("x"), doubt: true},
		"gone":           {err: serviceerror.NewNotFound("x")},
		"refused":        {err: serviceerror.NewInvalidArgument("x")},
		"too many":       {err: serviceerror.NewResourceExhausted(0, "x")},
		"something else": {err: errors.New("x"), doubt: true},
	} {
		d := setup(t, Config{})
		for range 2 {
			d.classifyResult(c.err) // twice: it must not block
		}
		require.True(t, d.Healthy(), name)
		require.Equal(t, c.doubt, d.suspected() != nil, name)
		require.Equal(t, c.doubt, len(d.checkNow) == 1, name)
	}
}

// R1: what the relay took is started although something else cannot be read.
func TestRelayStartsWhatItTook(t *testing.T) {
	t.Parallel()
	starts := accepted(3).Deliveries
	d := setup(t, Config{
		Client: temporalAt(t, closedPort(t)), Outbox: &outbox{starts: starts, commands: errors.New("not readable")}, StartLoops: 1,
	})
	require.False(t, d.relayOnce())
	require.True(t, !d.Healthy() || len(d.checkNow) == 1, "a start was tried")
}

// R11: Stop does not wait for a Temporal that does not answer, and nothing begins after it.
func TestStopCancelsCalls(t *testing.T) {
	t.Parallel()
	d := setup(t, Config{Client: temporalAt(t, silentPort(t)), StartLoops: 2})
	d.Start(nil)
	a := accepted(10)
	d.Accepted(a)
	require.Eventually(t, func() bool { return d.Waiting() < 10 }, 20*time.Second, time.Millisecond, "starts are under way")
	delivery := webhook.Delivery{Ref: a.Deliveries[0].Ref}
	var signalling sync.WaitGroup
	for range 4 {
		signalling.Go(func() {
			for range 100 {
				d.Commanded(context.Background(), delivery, webhook.PendingCommand{Command: webhook.CommandCancel, ID: 1})
			}
		})
	}
	began := time.Now()
	d.Stop()
	require.Less(t, time.Since(began), startTimeout-time.Second)
	signalling.Wait()
	require.Empty(t, d.async)
	d.Commanded(context.Background(), delivery, webhook.PendingCommand{Command: webhook.CommandCancel, ID: 1})
	require.Empty(t, d.async, "after Stop")
	d.Accepted(accepted(1)) // stays in the outbox
}

// Signals beyond the bound are left to the relay.
func TestSignalsAreBounded(t *testing.T) {
	t.Parallel()
	d := setup(t, Config{Client: temporalAt(t, silentPort(t))})
	delivery := webhook.Delivery{Ref: accepted(1).Deliveries[0].Ref}
	for range 10 * maxAsync {
		d.Commanded(t.Context(), delivery, webhook.PendingCommand{Command: webhook.CommandRetry, ID: 1})
	}
	require.Len(t, d.async, maxAsync)
	d.Stop()
	require.Empty(t, d.async)
}

func TestForEachIsBoundedAndComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		items := make([]int, 50)
		var now, most, done atomic.Int32
		began := time.Now()
		forEach(8, items, func(int) {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Second) // of the bubble's clock
			now.Add(-1)
			done.Add(1)
		})
		require.Equal(t, int32(50), done.Load())
		require.LessOrEqual(t, most.Load(), int32(8))
		require.Equal(t, 7*time.Second, time.Since(began), "and as many at a time as there may be")
	})
}
