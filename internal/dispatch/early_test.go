package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// Whose turn is not near waits for it here, with its place in the queue, and for half a second at most.
func TestEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := accepted(3)
		ids := refsOf(a.Deliveries)
		g := doorman{turn: map[webhook.EndpointID]time.Duration{ids[0].EndpointID: troubleWait, ids[1].EndpointID: troubleWait}}
		d := New(Config{Gate: g})
		d.workers.Go(d.serveEarly)
		d.Accepted(a)
		elapse := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		takes := func(want ...webhook.Ref) {
			t.Helper()
			require.Equal(t, want, refsOf(d.gathered()))
			require.Equal(t, 3, usedBy(d, "acme"))
			require.Zero(t, d.queue.Len())
		}
		takes(ids[2])
		require.Equal(t, 2, d.Waiting())
		for range 3 {
			elapse(earlyLook - 1)
			require.Zero(t, d.queue.Len())
			elapse(1)
			require.Equal(t, 2, d.queue.Len())
			takes()
		}
		g.turn[ids[0].EndpointID] = earlyTurn
		elapse(earlyLook)
		takes(ids[0])
		for range earlyTime/earlyLook - 5 {
			elapse(earlyLook)
			takes()
		}
		elapse(earlyLook)
		takes(ids[1])
		elapse(earlyTime)
		require.Zero(t, d.Waiting())
		g.turn[ids[0].EndpointID] = troubleWait
		d.Accepted(webhook.Accepted{Deliveries: a.Deliveries[:1]})
		d.Stop()
	})
}

// Nobody overtakes who waits for the same endpoint, and nobody waits for another's turn.
func TestEarlyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, other := accepted(4), accepted(1)
		for i := range a.Deliveries {
			a.Deliveries[i].EndpointID = a.Deliveries[0].EndpointID
		}
		g := doorman{turn: map[webhook.EndpointID]time.Duration{a.Deliveries[0].EndpointID: troubleWait}}
		d := New(Config{Gate: g})
		d.workers.Go(d.serveEarly)
		d.Accepted(webhook.Accepted{Deliveries: a.Deliveries[:2]})
		require.Empty(t, d.gathered())
		delete(g.turn, a.Deliveries[0].EndpointID)
		d.Accepted(webhook.Accepted{Deliveries: a.Deliveries[2:3]}, other)
		require.Equal(t, refsOf(other.Deliveries), refsOf(d.gathered()))
		d.Accepted(webhook.Accepted{Deliveries: a.Deliveries[3:]})
		<-time.After(earlyLook)
		synctest.Wait()
		require.Equal(t, refsOf(a.Deliveries), refsOf(d.gathered()))
		require.Zero(t, d.Waiting())
		d.Stop()
	})
}

// A batch of which nothing is started says nothing about the CPU, and nobody is loud.
func TestEarlyAreNoStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		loud, quiet := acceptedOf("loud", 60), acceptedOf("quiet", 1)
		g := doorman{turn: map[webhook.EndpointID]time.Duration{}}
		for _, s := range loud.Deliveries {
			g.turn[s.EndpointID] = troubleWait
		}
		d := New(Config{Gate: g})
		s := slot{Dispatcher: d, used: cpuTime}
		d.Accepted(quiet)
		require.Empty(t, s.crowdedBy(s.gather()))
		d.Accepted(loud, quiet)
		batch := s.gather()
		require.Equal(t, []string{"quiet"}, tenantsOf(batch))
		require.Empty(t, s.crowdedBy(batch))
		require.Equal(t, 60, d.early.len())
	})
}
