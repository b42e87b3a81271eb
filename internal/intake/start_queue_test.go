package intake

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

// An event's endpoints may overdraw the queue, but it is bounded. Accepted never waits. ReserveRoom does, for the tenant that has too
// much in the queue only.
func TestReserveRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := setup(t, parts{QueueLength: 2, LocalWorker: true})
		release, err := d.ReserveRoom(t.Context(), "acme", 1)
		require.NoError(t, err)
		d.Accepted(enginetest.Accepted(100))
		release()
		require.Equal(t, 30, d.Waiting(), "16 times the length, and a sixteenth of that is left free")
		require.Equal(t, 30, d.queue.permits.Held("acme"), "what found no place uses none")

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
		require.Equal(t, 30, d.queue.permits.Held("acme"))

		for range 30 { // as the start loops do
			start, ok := d.queue.waiting.Next()
			require.True(t, ok)
			d.queue.permits.Release(start.TenantID, 1)
		}
		release, err = d.ReserveRoom(t.Context(), "acme", 1)
		require.NoError(t, err)
		release()
		require.Zero(t, d.queue.permits.Held("acme"))
		require.Zero(t, d.queue.permits.Tenants())
	})
}

// ReserveRoom does not wait because of another tenant that has too much in the queue, and permits go to the tenant that holds the
// fewest.
func TestReserveRoomIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := setup(t, parts{QueueLength: 100})
		d.Accepted(acceptedOf("dominant", 1000))
		refused := make(chan error, 500)
		for range cap(refused) {
			go func() {
				_, err := d.ReserveRoom(t.Context(), "dominant", 1)
				refused <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		for range 25 { // half of what the other has left
			_, err := d.ReserveRoom(t.Context(), "quiet", 1)
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(began), "no time has passed")
		synctest.Wait()
		require.Empty(t, refused)
		for range cap(refused) {
			require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(<-refused))
		}
		require.Equal(t, reserveTimeout, time.Since(began))
		require.Equal(t, 2, d.queue.permits.Tenants())
	})
}

// R1: a delivery that has waited longer than queueTime is left to the relay.
func TestQueueTime(t *testing.T) {
	t.Parallel()
	d := setup(t, parts{Client: enginetest.ClientOf(t, enginetest.SilentPort(t)), StartLoops: 1})
	a := enginetest.Accepted(3)
	for i := range a.Deliveries {
		a.Deliveries[i].ReceivedAt = time.Now().Add(-queueTime)
	}
	d.Accepted(a)
	d.lifetime.Go(d.starts.run)
	require.Eventually(t, func() bool { return d.queue.permits.Held("acme") == 0 }, queueTime-time.Second, time.Millisecond,
		"none was started, which would have taken its time out")
	require.True(t, d.health.Up())
	d.stop()
}

// A delivery that does not fit into the queue, or is left to the relay, does not count as queued.
func TestEndpointCountsFollowTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := setup(t, parts{QueueLength: 1})
		d.Accepted(enginetest.Accepted(40))
		require.Len(t, d.queue.endpoints.n, d.queue.waiting.Len())
		require.Less(t, d.queue.waiting.Len(), 40)
		<-time.After(queueTime)
		require.Empty(t, d.starts.nextBatch())
		require.Empty(t, d.queue.endpoints.n)
	})
}
