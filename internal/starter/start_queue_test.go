package starter

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// A first request is sent eagerly unless earlier deliveries of its endpoint wait for their workflows, or it is scheduled.
func TestSendEagerly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := accepted(4)
		for i := range a.Deliveries[:3] {
			a.Deliveries[i].EndpointID = a.Deliveries[0].EndpointID
		}
		var asked []activities.AttemptInput
		sends := false
		g := admissionStub{wait: map[webhook.EndpointID]time.Duration{}}
		d := New(Config{LocalWorker: true, Admission: g})
		d.uses(requests{eager: func(in activities.AttemptInput, _ activities.EagerStart) bool {
			asked = append(asked, in)
			return sends
		}})
		accept := func(start webhook.Start) {
			asked = nil
			d.Accepted(webhook.Accepted{Deliveries: []webhook.Start{start}, Payload: a.Payload, SHA256: a.SHA256})
		}
		first, second, third, other := a.Deliveries[0], a.Deliveries[1], a.Deliveries[2], a.Deliveries[3]

		accept(first)
		require.Len(t, asked, 1, "and is refused")
		require.Equal(t, activities.AttemptInput{
			Ref: first.Ref, Progress: webhook.Progress{Run: 1, GiveUpAt: first.GiveUpAt}, FirstTask: true,
		}, asked[0])
		sends = true
		accept(second)
		require.Empty(t, asked, "the first one waits")
		accept(other)
		require.Len(t, asked, 1, "but not for this")
		require.True(t, d.endpointQueue.has(first.EndpointID))
		require.Equal(t, refsOf(a.Deliveries[:2]), refsOf(d.nextBatch()), "what was sent is not started yet")
		require.Empty(t, d.endpointQueue.n)
		accept(third)
		require.Len(t, asked, 1, "they are being started")
		require.Empty(t, d.nextBatch())

		later := first
		later.NotBefore = time.Now().Add(time.Hour)
		accept(later)
		require.Empty(t, asked)
		d.Stop()
	})
}

// While starts do not keep up, nothing is sent eagerly: deliveries go through the queue, which is bounded.
func TestNotEagerWhileStartsDoNotKeepUp(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]func(d *Starter){
		"the queue is full": func(d *Starter) { d.Accepted(accepted(d.queueLength)) },
		"many have gathered": func(d *Starter) {
			d.gatherings.started(time.Now())
			for range maxGathered * d.maxPerWorkflow {
				d.gatherings.join(&accepted(1).Deliveries[0], time.Now())
			}
		},
		"Temporal is down": func(d *Starter) { d.temporalDown.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				d := New(Config{LocalWorker: true, QueueLength: 20, MaxPerWorkflow: 5})
				busy(d)
				d.uses(requests{eager: func(activities.AttemptInput, activities.EagerStart) bool {
					asked++
					return true
				}})
				d.Accepted(accepted(1))
				require.Zero(t, asked)
				d.gatherings.take(true, time.Now())
			})
		})
	}
}

// A delivery that does not fit into the queue, or is left to the relay, does not count as queued.
func TestEndpointCountsFollowTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{QueueLength: 1})
		d.Accepted(accepted(40))
		require.Len(t, d.endpointQueue.n, d.queue.Len())
		require.Less(t, d.queue.Len(), 40)
		<-time.After(queueTime)
		require.Empty(t, d.nextBatch())
		require.Empty(t, d.endpointQueue.n)
	})
}

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
	d := setup(t, Config{Forwarder: to})
	event := accepted(3)
	d.Accepted(event)
	require.Equal(t, []webhook.Accepted{event}, to.events)
	require.Equal(t, 3, d.permits.Held("acme"))
	require.Zero(t, d.Waiting())

	to.done(event.Deliveries[0], webhook.ForwardAccepted)
	require.Equal(t, 2, d.permits.Held("acme"))
	to.done(event.Deliveries[1], webhook.ForwardUnanswered)
	require.Equal(t, 1, d.permits.Held("acme"))
	to.done(event.Deliveries[2], webhook.ForwardRefused)
	require.Equal(t, 1, d.permits.Held("acme"))
	require.Equal(t, refsOf(event.Deliveries[2:]), refsOf(d.nextBatch()))

	d.temporalDown.Store(true)
	held := d.permits.Held("acme")
	release, err := d.ReserveRoom(t.Context(), "acme", 1)
	require.NoError(t, err)
	require.Equal(t, held+1, d.permits.Held("acme"), "what waits to be forwarded is bounded")
	release()
	event = accepted(1)
	d.Accepted(event)
	require.Len(t, to.events, 2, "another process may reach Temporal")
	to.done(event.Deliveries[0], webhook.ForwardRefused)
	require.Zero(t, d.Waiting(), "the relay starts it")
	require.Equal(t, held, d.permits.Held("acme"))
	d.temporalDown.Store(false)

	d.Stop()
	d.Accepted(accepted(1))
	require.Len(t, to.events, 2, "the relay starts it")
}

// A process with a worker forwards new deliveries to endpoints in another process's lanes. It sends its own, and those that the other process
// refuses.
func TestForwardFromAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &forwards{}
		event := accepted(4)
		event.Payload = []byte(`{}`)
		here, elsewhere := event.Deliveries[:2], event.Deliveries[2:]
		d := New(Config{LocalWorker: true, Forwarder: to, Admission: admissionStub{elsewhere: map[webhook.EndpointID]bool{
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
		require.Equal(t, refsOf(here), sent)
		require.Equal(t, []webhook.Accepted{forwarded}, to.events)
		require.Equal(t, 2, d.permits.Held("acme"))
		_, ok := d.fresh.Take(elsewhere[0].Ref)
		require.False(t, ok, "the other process sends the first request")

		sent = nil
		to.done(elsewhere[0], webhook.ForwardAccepted)
		require.Empty(t, sent)
		to.done(elsewhere[1], webhook.ForwardRefused)
		require.Equal(t, refsOf(elsewhere[1:]), sent)
		require.Zero(t, d.permits.Held("acme"))
		_, ok = d.fresh.Take(elsewhere[1].Ref)
		require.True(t, ok, "its payload is at hand")

		sent = nil
		d.temporalDown.Store(true)
		d.Accepted(event)
		require.Empty(t, sent, "the relay starts it")
		require.Len(t, to.events, 2, "another process may reach Temporal")
		d.Stop()
	})
}

// A process with a worker accepts what others have stored as if it had stored it itself.
func TestForwarded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []activities.AttemptInput
		sends := true
		d := New(Config{LocalWorker: true, QueueLength: 4, Now: func() time.Time { return time.Now().Add(time.Hour) }}) // the database's clock
		before := accepted(1)
		require.Equal(t, idsOf(before.Deliveries), refusedBy(d, before), "its worker has not started")
		d.uses(requests{eager: func(in activities.AttemptInput, _ activities.EagerStart) bool {
			asked = append(asked, in)
			return sends
		}})
		forwarded := func(n int, age time.Duration) webhook.Accepted {
			event := accepted(n)
			for i := range event.Deliveries {
				event.Deliveries[i].CreatedAt, event.Deliveries[i].ReceivedAt = d.now().Add(-age), time.Time{}
			}
			return event
		}
		event := forwarded(1, tokenLife/2)
		require.Empty(t, refusedBy(d, event))
		require.Len(t, asked, 1)
		require.Equal(t, time.Now().Add(-tokenLife/2), event.Deliveries[0].ReceivedAt, "by this process's clock")
		<-time.After(tokenLife/2 - time.Millisecond)
		_, ok := d.fresh.Take(event.Deliveries[0].Ref)
		require.True(t, ok, "its payload is at hand")

		old := forwarded(1, tokenLife)
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
		d.temporalDown.Store(true)
		require.Equal(t, idsOf(event.Deliveries), refusedBy(d, event), "Temporal is not available")
		d.temporalDown.Store(false)
		d.Stop()
		refused, stops := d.Forwarded(event)
		require.Equal(t, idsOf(event.Deliveries), refused, "this process stops")
		require.True(t, stops)
	})
}

// A forwarded delivery can go eagerly although only the process that has stored it has read its endpoint.
func TestForwardedToAnEndpointThatIsNotInMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{LocalWorker: true, QueueLength: 4, Now: time.Now})
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
		require.Empty(t, refusedBy(d, accepted(1)))
		synctest.Wait()
		require.Equal(t, []string{"read", "eager"}, taken())

		slow, steps = true, nil
		began := time.Now()
		require.Empty(t, refusedBy(d, accepted(1)))
		synctest.Wait()
		require.Empty(t, taken())
		require.NotEmpty(t, refusedBy(d, accepted(2)), "it counts as queued while it waits")
		<-time.After(readingTime)
		synctest.Wait()
		require.Contains(t, taken(), "eager", "the wait is bounded")
		require.LessOrEqual(t, time.Since(began), readingTime)

		d.Stop()
		require.NotEmpty(t, refusedBy(d, accepted(1)))
	})
}

func idsOf(starts []webhook.Start) (ids []webhook.DeliveryID) {
	for i := range starts {
		ids = append(ids, starts[i].DeliveryID)
	}
	return ids
}

func refusedBy(d *Starter, event webhook.Accepted) []webhook.DeliveryID {
	refused, _ := d.Forwarded(event)
	return refused
}
