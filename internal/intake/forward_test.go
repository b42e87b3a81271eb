package intake

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

// forwards collects what is forwarded.
type forwards struct {
	events []webhook.Accepted
	done   func(webhook.Start, webhook.ForwardResult)
}

func (f *forwards) Forward(event webhook.Accepted, done func(webhook.Start, webhook.ForwardResult)) {
	f.events, f.done = append(f.events, event), done
}

// New deliveries are forwarded, and count as queued until another process has them. This process starts only those that are refused.
func TestForward(t *testing.T) {
	t.Parallel()
	to := &forwards{}
	d := setup(t, parts{Forwarder: to})
	event := enginetest.Accepted(3)
	d.Accepted(event)
	require.Equal(t, []webhook.Accepted{event}, to.events)
	require.Equal(t, 3, d.queue.permits.Held("acme"))
	require.Zero(t, d.Waiting())

	to.done(event.Deliveries[0], webhook.ForwardAccepted)
	require.Equal(t, 2, d.queue.permits.Held("acme"))
	to.done(event.Deliveries[1], webhook.ForwardUnanswered)
	require.Equal(t, 1, d.queue.permits.Held("acme"))
	to.done(event.Deliveries[2], webhook.ForwardRefused)
	require.Equal(t, 1, d.queue.permits.Held("acme"))
	require.Equal(t, enginetest.RefsOf(event.Deliveries[2:]), enginetest.RefsOf(d.starts.nextBatch()))

	d.health.MarkDown(errDown)
	held := d.queue.permits.Held("acme")
	release, err := d.ReserveRoom(t.Context(), "acme", 1)
	require.NoError(t, err)
	require.Equal(t, held+1, d.queue.permits.Held("acme"), "what waits to be forwarded is bounded")
	release()
	event = enginetest.Accepted(1)
	d.Accepted(event)
	require.Len(t, to.events, 2, "another process may reach Temporal")
	to.done(event.Deliveries[0], webhook.ForwardRefused)
	require.Zero(t, d.Waiting(), "the relay starts it")
	require.Equal(t, held, d.queue.permits.Held("acme"))
	d.health.MarkUp()

	d.stop()
	d.Accepted(enginetest.Accepted(1))
	require.Len(t, to.events, 2, "the relay starts it")
}

// A process with a worker forwards new deliveries to endpoints in another process's lanes. It sends its own, and those that the other process
// refuses.
func TestForwardFromAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &forwards{}
		event := enginetest.Accepted(4)
		event.Payload = []byte(`{}`)
		here, elsewhere := event.Deliveries[:2], event.Deliveries[2:]
		d := setup(t, parts{LocalWorker: true, Forwarder: to, Admission: admissionStub{elsewhere: map[webhook.EndpointID]bool{
			elsewhere[0].EndpointID: true, elsewhere[1].EndpointID: true,
		}}})
		var sent []webhook.Ref
		d.uses(requests{eager: func(in activities.AttemptInput, _ activities.EagerStart) bool {
			sent = append(sent, in.Ref)
			return true
		}})
		forwarded := event
		forwarded.Deliveries = elsewhere
		d.Accepted(event)
		require.Equal(t, enginetest.RefsOf(here), sent)
		require.Equal(t, []webhook.Accepted{forwarded}, to.events)
		require.Equal(t, 2, d.queue.permits.Held("acme"))
		_, ok := d.fresh.Take(elsewhere[0].Ref)
		require.False(t, ok, "the other process sends the first request")

		sent = nil
		to.done(elsewhere[0], webhook.ForwardAccepted)
		require.Empty(t, sent)
		to.done(elsewhere[1], webhook.ForwardRefused)
		require.Equal(t, enginetest.RefsOf(elsewhere[1:]), sent)
		require.Zero(t, d.queue.permits.Held("acme"))
		_, ok = d.fresh.Take(elsewhere[1].Ref)
		require.True(t, ok, "its payload is at hand")

		sent = nil
		d.health.MarkDown(errDown)
		d.Accepted(event)
		require.Empty(t, sent, "the relay starts it")
		require.Len(t, to.events, 2, "another process may reach Temporal")
		d.stop()
	})
}

// A process with a worker accepts what others have stored as if it had stored it itself.
func TestForwarded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []activities.AttemptInput
		sends := true
		d := setup(t, parts{LocalWorker: true, QueueLength: 4, Now: func() time.Time { return time.Now().Add(time.Hour) }}) // the database's clock
		before := enginetest.Accepted(1)
		require.Equal(t, idsOf(before.Deliveries), refusedBy(d, before), "its worker has not started")
		d.uses(requests{eager: func(in activities.AttemptInput, _ activities.EagerStart) bool {
			asked = append(asked, in)
			return sends
		}})
		forwarded := func(n int, age time.Duration) webhook.Accepted {
			event := enginetest.Accepted(n)
			for i := range event.Deliveries {
				event.Deliveries[i].CreatedAt, event.Deliveries[i].ReceivedAt = d.now().Add(-age), time.Time{}
			}
			return event
		}
		event := forwarded(1, tokenLife/2)
		require.Empty(t, refusedBy(d, event))
		require.Len(t, asked, 1)
		require.Equal(t, time.Now().Add(-tokenLife/2), event.Deliveries[0].ReceivedAt, "by this process's clock")
		<-time.After(tokenLife - time.Millisecond)
		_, ok := d.fresh.Take(event.Deliveries[0].Ref)
		require.True(t, ok, "its payload is at hand")

		old := forwarded(1, tokenEnd)
		require.Empty(t, refusedBy(d, old))
		_, ok = d.fresh.Take(old.Deliveries[0].Ref)
		require.False(t, ok, "the relay may have it")
		early := forwarded(1, -time.Second)
		require.Empty(t, refusedBy(d, early))
		require.Equal(t, time.Now(), early.Deliveries[0].ReceivedAt, "clocks are not exact")

		sends = false
		many := forwarded(4, 0)
		require.Equal(t, idsOf(many.Deliveries[2:]), refusedBy(d, many), "the tenant's part of the queue is full")
		require.Equal(t, 2, d.Waiting())
		d.health.MarkDown(errDown)
		require.Equal(t, idsOf(event.Deliveries), refusedBy(d, event), "Temporal is not available")
		d.health.MarkUp()
		d.stop()
		refused, stops := d.Forwarded(event)
		require.Equal(t, idsOf(event.Deliveries), refused, "this process stops")
		require.True(t, stops)
	})
}

// A forwarded delivery can go eagerly although only the process that has stored it has read its endpoint.
func TestForwardedToAnEndpointThatIsNotInMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := setup(t, parts{LocalWorker: true, QueueLength: 4, Now: time.Now})
		var (
			mu    sync.Mutex // two deliveries wait, and go at the same time
			steps []string
			slow  bool
		)
		step := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, name)
		}
		taken := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(steps)
		}
		d.uses(requests{
			read: func(ctx context.Context, _ webhook.EndpointID) {
				if slow {
					<-ctx.Done()
				}
				step("read")
			},
			eager: func(activities.AttemptInput, activities.EagerStart) bool {
				step("eager")
				return true
			},
		})
		require.Empty(t, refusedBy(d, enginetest.Accepted(1)))
		synctest.Wait()
		require.Equal(t, []string{"read", "eager"}, taken())

		slow, steps = true, nil
		began := time.Now()
		require.Empty(t, refusedBy(d, enginetest.Accepted(1)))
		synctest.Wait()
		require.Empty(t, taken())
		require.NotEmpty(t, refusedBy(d, enginetest.Accepted(2)), "it counts as queued while it waits")
		<-time.After(readingTime)
		synctest.Wait()
		require.Contains(t, taken(), "eager", "the wait is bounded")
		require.LessOrEqual(t, time.Since(began), readingTime)

		d.stop()
		require.NotEmpty(t, refusedBy(d, enginetest.Accepted(1)))
	})
}

func refusedBy(d *bundle, event webhook.Accepted) []webhook.DeliveryID {
	refused, _ := d.Forwarded(event)
	return refused
}
