package intake

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

// A first request is sent eagerly unless earlier deliveries of its endpoint wait for their workflows, or it is scheduled.
func TestSendEagerly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := enginetest.Accepted(4)
		for i := range a.Deliveries[:3] {
			a.Deliveries[i].EndpointID = a.Deliveries[0].EndpointID
		}
		var asked []activities.AttemptInput
		sends := false
		g := admissionStub{wait: map[webhook.EndpointID]time.Duration{}}
		d := setup(t, parts{LocalWorker: true, Admission: g})
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
		require.True(t, d.queue.endpoints.has(first.EndpointID))
		require.Equal(t, enginetest.RefsOf(a.Deliveries[:2]), enginetest.RefsOf(d.starts.nextBatch()), "what was sent is not started yet")
		require.Empty(t, d.queue.endpoints.n)
		accept(third)
		require.Len(t, asked, 1, "they are being started")
		require.Empty(t, d.starts.nextBatch())

		later := first
		later.NotBefore = time.Now().Add(time.Hour)
		accept(later)
		require.Empty(t, asked)
		d.stop()
	})
}

// While starts do not keep up, nothing is sent eagerly: deliveries go through the queue, which is bounded.
func TestNotEagerWhileStartsDoNotKeepUp(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]func(d *bundle){
		"the queue is full": func(d *bundle) { d.Accepted(enginetest.Accepted(d.queue.length)) },
		"many have gathered": func(d *bundle) {
			d.starts.gatherings.started(time.Now())
			for range maxGathered * d.starts.engine.MaxPerWorkflow() {
				d.starts.gatherings.join(&enginetest.Accepted(1).Deliveries[0], time.Now())
			}
		},
		"Temporal is down": func(d *bundle) { d.health.MarkDown(errDown) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				d := setup(t, parts{LocalWorker: true, QueueLength: 20, MaxPerWorkflow: 5})
				busy(d)
				d.uses(requests{eager: func(activities.AttemptInput, activities.EagerStart) bool {
					asked++
					return true
				}})
				d.Accepted(enginetest.Accepted(1))
				require.Zero(t, asked)
				d.starts.gatherings.take(true, time.Now())
			})
		})
	}
}

// R2: payloads are kept only for deliveries that a worker of this process sends at once.
func TestFreshTokensForLocalWorker(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{true, false} {
		d := setup(t, parts{LocalWorker: local})
		a := enginetest.Accepted(3)
		a.Deliveries[1].NotBefore = time.Now().Add(time.Hour)
		a.Deliveries[2].ReceivedAt = time.Now().Add(-tokenEnd) // its commit took so long
		d.Accepted(a)
		if !local {
			require.Nil(t, d.fresh)
			require.Equal(t, 3, d.Waiting())
			continue
		}
		_, now := d.fresh.Take(a.Deliveries[0].Ref)
		_, later := d.fresh.Take(a.Deliveries[1].Ref)
		require.True(t, now)
		_, slow := d.fresh.Take(a.Deliveries[2].Ref)
		require.False(t, later)
		require.False(t, slow)
	}
}

// The times of the engine's check: until a call raises a suspicion, and of the check itself.
const checkDelay, checkTimeout, checkEvery = 3 * engine.Patience / 4, 3 * time.Second, time.Second

// No request is refused while Temporal cannot write, however short the queue is: ReserveRoom waits for the verdict.
func TestTemporalThatCannotWriteIsDown(t *testing.T) {
	t.Parallel()
	for name, err := range enginetest.WaysNotToWrite() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, c := enginetest.New(t)
				d := setup(t, parts{Client: c, QueueLength: 4, MaxPerWorkflow: 1})
				d.start()
				defer d.stop()
				post := func() {
					release, err := d.ReserveRoom(t.Context(), "acme", 1)
					require.NoError(t, err)
					d.Accepted(enginetest.Accepted(1))
					release()
				}
				post()
				synctest.Wait()
				require.True(t, d.health.Up())

				f.CannotWrite(err)
				began := time.Now()
				var callers sync.WaitGroup
				for range 20 {
					callers.Go(func() {
						for range 10 {
							post()
						}
					})
				}
				callers.Wait()
				require.False(t, d.health.Up())
				require.Less(t, time.Since(began), checkDelay+reserveTimeout+checkTimeout)
				enginetest.LetPass(time.Minute)
				require.False(t, d.health.Up(), "a health check says nothing")
				require.Zero(t, d.Waiting(), "all is left to the relay")

				f.CanWrite()
				enginetest.LetPass(checkEvery + checkTimeout)
				require.True(t, d.health.Up())
				require.False(t, d.health.Down(t.Context()))
				before := len(f.Started())
				post()
				synctest.Wait()
				require.Len(t, f.Started(), before+1)
			})
		})
	}
}

// A Temporal that is slow but can be written to is busy, and ReserveRoom keeps its bound.
func TestBusyTemporalIsNotDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := enginetest.New(t)
		f.Quick = enginetest.IsProbe
		d := setup(t, parts{Client: c, QueueLength: 4, MaxPerWorkflow: 1})
		d.start()
		defer d.stop()
		f.CannotWrite(nil)
		for range 2 {
			release, err := d.ReserveRoom(t.Context(), "acme", 1)
			require.NoError(t, err)
			d.Accepted(enginetest.Accepted(1))
			release()
		}
		enginetest.LetPass(engine.Patience)
		synctest.Wait()
		require.True(t, d.health.Up())
		_, err := d.ReserveRoom(t.Context(), "acme", 1)
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
		checks := 0
		for _, in := range f.Started() {
			if enginetest.IsProbe(in) {
				checks++
			}
		}
		require.Positive(t, checks)
		require.LessOrEqual(t, checks, 2)
		f.CanWrite()
	})
}
