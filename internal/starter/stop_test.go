package starter

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// rounds is how often a test runs in which a select may choose either of two cases.
const rounds = 10

// What arrives after Stop stays in the outbox: nothing is sent eagerly, and ReserveRoom does not wait.
func TestNothingIsAcceptedAfterStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		d := New(Config{LocalWorker: true, QueueLength: 10})
		d.uses(requests{eager: func(activities.AttemptInput, activities.EagerStart) bool {
			asked++
			return true
		}})
		d.permits.Overdraw("acme", 10)
		d.Stop()
		began := time.Now()
		release, err := d.ReserveRoom(t.Context(), "acme", 1)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		d.Accepted(accepted(5))
		release()
		require.Zero(t, asked)
		require.Zero(t, d.Waiting())
		require.Zero(t, d.fresh.bytes)
		require.Equal(t, 10, d.permits.Held("acme"))
	})
}

// What a process that stops has not tried to start is due for another one at once: what is queued, what an eager request has
// not delivered after Stop, and what another process refuses then.
func TestStopLeavesTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, record, send := eager(t, Config{Forwarder: refusing{}})
		all := accepted(4)
		starts := send(all)
		queued := accepted(2)
		for i := range queued.Deliveries {
			require.True(t, d.enqueue(&queued.Deliveries[i]))
		}
		require.True(t, starts[0].StartOwn(true))
		d.workers.Go(func() {
			<-d.stopped
			d.startBeforeStop()
		})
		d.Stop()
		require.Equal(t, refsOf(all.Deliveries[:1]), begunBy(t, f), "it was sent")
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

// Deliveries to unhealthy endpoints are left to another process, except those whose start is under way.
func TestStopLeavesUnhealthy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := newFrontend(t)
		a := accepted(6)
		record := &outbox{}
		d := setup(t, Config{Client: c, Outbox: record, MaxPerWorkflow: 2, Admission: unhealthyEndpoints(a.Deliveries...)})
		d.Accepted(a)
		require.Empty(t, d.nextBatch())
		open := f.shut()
		d.workers.Go(d.startUnhealthy)
		pass(unhealthyWait)
		go d.Stop()
		synctest.Wait()
		open()
		synctest.Wait()
		require.Equal(t, d.maxPerWorkflow, countBegun(t, f))
		require.Equal(t, idsOf(a.Deliveries[2:]), record.due)
	})
}

// looked is an outbox that counts how often it is read.
type looked struct {
	outbox

	starts, commands int
}

func (l *looked) TakeStarts(ctx context.Context, call string, n int) ([]webhook.Start, error) {
	l.starts++
	return l.outbox.TakeStarts(ctx, call, n)
}

func (l *looked) TakeCommands(ctx context.Context, n int) ([]webhook.CommandedDelivery, error) {
	l.commands++
	return l.outbox.TakeCommands(ctx, n)
}

// What is taken from the outbox is not handed out again for a while, so nothing is taken after Stop.
func TestStopTakesNothingMore(t *testing.T) {
	t.Parallel()
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			f, c := newFrontend(t)
			record := &looked{outbox: outbox{starts: accepted(1).Deliveries}}
			d := setup(t, Config{Client: c, Outbox: record})
			open := f.shut()
			d.workers.Go(d.relay)
			pass(2 * relayEvery) // it is time to look again
			require.Equal(t, 1, record.starts)
			go d.Stop()
			synctest.Wait()
			open()
			synctest.Wait()
			require.Equal(t, 1, record.starts)
			require.Zero(t, record.commands)
			require.Equal(t, 1, countBegun(t, f))
		})
	}
}
