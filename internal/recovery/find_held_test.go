package recovery

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func (s *heldStore) HeldEndpoints(_ context.Context, after webhook.HeldPlace, limit int) (
	found []webhook.HeldEndpoint, next webhook.HeldPlace, err error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.searches++
	all := slices.SortedFunc(maps.Keys(s.starts), func(a, b webhook.EndpointID) int { return bytes.Compare(a[:], b[:]) })
	all = slices.DeleteFunc(all, func(id webhook.EndpointID) bool { return bytes.Compare(id[:], after.EndpointID[:]) <= 0 })
	for _, id := range all[:min(limit, len(all))] {
		found = append(found, webhook.HeldEndpoint{ID: id, Faulty: s.faulty})
	}
	if len(found) == limit {
		next.EndpointID = found[limit-1].ID
	}
	return found, next, s.fail
}

// All endpoints are looked for regularly, page by page; when that fails, again soon, after a pause that grows.
// While Temporal is away nothing is: what were released then would come all at once.
func TestBacklogIsLookedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &heldStore{fail: errors.New("away"), starts: map[webhook.EndpointID][]webhook.Start{}}
		for range 2*heldPage + 1 {
			s.starts[webhook.NewEndpointID()] = nil
		}
		var room atomic.Int64
		d := setup(t, parts{Admission: admissionStub{releasable: func(webhook.EndpointID) int { return int(room.Load()) }}, HeldStore: s})
		d.Health.MarkDown(errTemporalDown)
		d.run(d.release.Run)
		d.run(d.finder.Run)
		searchesAfter := func(wait time.Duration) int {
			before, _ := s.counts()
			<-time.After(wait)
			synctest.Wait()
			after, _ := s.counts()
			return after - before
		}
		require.Zero(t, searchesAfter(10500*time.Millisecond))
		d.Health.MarkUp()
		require.Equal(t, 2, searchesAfter(3*time.Second), "in vain, and less and less often")
		s.failing(nil)
		require.Equal(t, 3, searchesAfter(time.Second), "pages")
		require.Len(t, d.held.ids(), 2*heldPage+1)
		require.Zero(t, searchesAfter(findEvery-time.Second))
		require.Equal(t, 3, searchesAfter(time.Second))
		room.Store(1)
		require.Zero(t, searchesAfter(time.Second))
		require.Empty(t, d.held.ids(), "what was read in the store is forgotten as soon as it is not there any more")
		d.Lifetime.Stop()
	})
}

// What is held in lanes that this process has taken is looked for at once, and again when what the owner before was holding is stored.
func TestBacklogIsLookedForInNewLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &heldStore{}
		d := setup(t, parts{Admission: admissionStub{releasable: upTo(0)}, HeldStore: s})
		d.run(d.finder.Run)
		<-time.After(findEvery / 2)
		looks := func(wait time.Duration) int {
			before, _ := s.counts()
			<-time.After(wait)
			synctest.Wait()
			after, _ := s.counts()
			return after - before
		}
		require.Zero(t, looks(releaseEvery))
		d.held.LanesTaken()
		require.Equal(t, 1, looks(releaseEvery))
		require.Zero(t, looks(holdDelay-2*releaseEvery))
		require.Equal(t, 1, looks(2*releaseEvery))
		require.Zero(t, looks(findEvery-2*releaseEvery))
		d.Lifetime.Stop()
	})
}
