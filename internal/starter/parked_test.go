package starter

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// A delivery with a longer wait for admission is parked and keeps its permit, for half a second at most.
func TestParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := accepted(3)
		ids := refsOf(a.Deliveries)
		g := admissionStub{wait: map[webhook.EndpointID]time.Duration{ids[0].EndpointID: unhealthyWait, ids[1].EndpointID: unhealthyWait}}
		d := New(Config{Admission: g})
		d.workers.Go(d.returnParked)
		d.Accepted(a)
		elapse := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		takes := func(want ...webhook.Ref) {
			t.Helper()
			require.Equal(t, want, refsOf(d.gathered()))
			require.Equal(t, 3, d.permits.Held("acme"))
			require.Zero(t, d.queue.Len())
		}
		takes(ids[2])
		require.Equal(t, 2, d.Waiting())
		for range 3 {
			elapse(parkInterval - 1)
			require.Zero(t, d.queue.Len())
			elapse(1)
			require.Equal(t, 2, d.queue.Len())
			takes()
		}
		g.wait[ids[0].EndpointID] = parkAbove
		elapse(parkInterval)
		takes(ids[0])
		for range maxParked/parkInterval - 5 {
			elapse(parkInterval)
			takes()
		}
		elapse(parkInterval)
		takes(ids[1])
		elapse(maxParked)
		require.Zero(t, d.Waiting())
		g.wait[ids[0].EndpointID] = unhealthyWait
		d.Accepted(webhook.Accepted{Deliveries: a.Deliveries[:1]})
		d.Stop()
	})
}

// A delivery does not overtake parked ones of its endpoint, and does not wait for those of another.
func TestParkedKeepTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, other := accepted(4), accepted(1)
		for i := range a.Deliveries {
			a.Deliveries[i].EndpointID = a.Deliveries[0].EndpointID
		}
		g := admissionStub{wait: map[webhook.EndpointID]time.Duration{a.Deliveries[0].EndpointID: unhealthyWait}}
		d := New(Config{Admission: g})
		d.workers.Go(d.returnParked)
		d.Accepted(webhook.Accepted{Deliveries: a.Deliveries[:2]})
		require.Empty(t, d.gathered())
		delete(g.wait, a.Deliveries[0].EndpointID)
		d.Accepted(webhook.Accepted{Deliveries: a.Deliveries[2:3]}, other)
		require.Equal(t, refsOf(other.Deliveries), refsOf(d.gathered()))
		d.Accepted(webhook.Accepted{Deliveries: a.Deliveries[3:]})
		<-time.After(parkInterval)
		synctest.Wait()
		require.Equal(t, refsOf(a.Deliveries), refsOf(d.gathered()))
		require.Zero(t, d.Waiting())
		d.Stop()
	})
}

// A tenant whose deliveries are all parked does not dominate a start.
func TestParkedAreNoStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dominant, quiet := acceptedOf("dominant", 60), acceptedOf("quiet", 1)
		g := admissionStub{wait: map[webhook.EndpointID]time.Duration{}}
		for _, s := range dominant.Deliveries {
			g.wait[s.EndpointID] = unhealthyWait
		}
		d := New(Config{Admission: g})
		s := startLoop{Starter: d}
		d.Accepted(quiet)
		require.Empty(t, s.dominantTenant(s.nextBatch()))
		d.Accepted(dominant, quiet)
		batch := s.nextBatch()
		require.Equal(t, []string{"quiet"}, tenantsOf(batch))
		require.Empty(t, s.dominantTenant(batch))
		require.Equal(t, 60, d.parked.len())
	})
}

// opening is an admission that admits deliveries of an endpoint from a time on.
type opening struct {
	admissionStub

	at map[webhook.EndpointID]time.Time
}

func (o opening) Forecast(id webhook.EndpointID) admission.Forecast {
	return admission.Forecast{Wait: max(time.Until(o.at[id]), 0), Rate: minParkRate}
}

// With several start loops, each parked delivery is started once.
func TestSeveralStartLoopsStartParkedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tenants := []string{"a", "b", "c"}
		reconcileRound := accepted(12).Deliveries
		g := opening{at: map[webhook.EndpointID]time.Time{}}
		for i := range reconcileRound { // some at once, some before they have waited for too long, some after
			g.at[reconcileRound[i].EndpointID] = time.Now().Add(time.Duration(i) * 60 * time.Millisecond)
		}
		f, c := newFrontend(t)
		d := setup(t, Config{Client: c, Admission: g, StartLoops: 3, Width: 10})
		d.Start(nil)
		t.Cleanup(d.Stop)
		var want []webhook.Ref
		waited := false
		for range 40 {
			open := f.shut() // the start loops are in step when it ends
			a := accepted(len(reconcileRound))
			for i := range a.Deliveries {
				a.Deliveries[i].EndpointID, a.Deliveries[i].TenantID = reconcileRound[i].EndpointID, tenants[i%len(tenants)]
			}
			d.Accepted(a)
			want = append(want, refsOf(a.Deliveries)...)
			pass(7 * time.Millisecond)
			waited = waited || d.parked.len() > 0
			open()
		}
		pass(maxParked + parkInterval)
		require.True(t, waited)
		require.ElementsMatch(t, want, begunBy(t, f))
		require.Zero(t, d.Waiting())
		require.Empty(t, d.endpointQueue.n)
		require.Zero(t, d.permits.Tenants())
	})
}

// With several start loops, parked deliveries of an endpoint are started in the order of their coming, together with those that
// arrive when their wait has become short or no start loop is free.
func TestParkedKeepTheirOrderWithSeveralStartLoops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const every = 10 * time.Millisecond
		a := accepted(20)
		near := time.Now().Add(19 * every) // for the last but one, when the others have not looked again
		g := opening{at: map[webhook.EndpointID]time.Time{a.Deliveries[0].EndpointID: near.Add(parkAbove)}}
		f, c := newFrontend(t)
		d := setup(t, Config{Client: c, Admission: g, StartLoops: 3})
		d.Start(nil)
		t.Cleanup(d.Stop)
		open := sync.OnceFunc(f.shut())
		t.Cleanup(open)
		for i := range a.Deliveries {
			pass(every)
			if i < d.startLoops-1 || i == len(a.Deliveries)-1 { // another start loop has something to do
				d.Accepted(accepted(1))
				synctest.Wait()
			}
			a.Deliveries[i].EndpointID = a.Deliveries[0].EndpointID
			d.Accepted(webhook.Accepted{Deliveries: a.Deliveries[i : i+1]})
		}
		synctest.Wait()
		require.Equal(t, d.startLoops, countBegun(t, f))
		require.Equal(t, len(a.Deliveries)-1, d.parked.len())
		pass(parkInterval)
		require.Equal(t, len(a.Deliveries), d.queue.Len())
		open()
		synctest.Wait()
		shared, _ := groups(t, f)
		require.Len(t, shared, 1)
		require.Equal(t, refsOf(a.Deliveries), refsOfShared(shared[0]))
	})
}

// A parked delivery is started when its wait has become short, although another tenant's large start is under way.
func TestParkedStartConcurrentlyWithLargeStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		quiet := acceptedOf("quiet", 3)
		for i := range quiet.Deliveries {
			quiet.Deliveries[i].EndpointID = quiet.Deliveries[0].EndpointID
		}
		g := opening{at: map[webhook.EndpointID]time.Time{quiet.Deliveries[0].EndpointID: time.Now().Add(parkAbove + 4*parkInterval)}}
		s, f, open := concurrentStart(t, g, quiet)
		defer s.Stop()
		pass(4*parkInterval - 1)
		require.Equal(t, s.width, countBegun(t, f))
		pass(1)
		require.Equal(t, refsOf(quiet.Deliveries), begunBy(t, f)[s.width:])
		require.Zero(t, s.permits.Held("quiet"))
		open()
		pass(parkInterval)
		require.Equal(t, s.width+len(quiet.Deliveries), countBegun(t, f))
		require.Zero(t, s.permits.Tenants())
	})
}

// Parked deliveries of a dominant tenant wait for its large start. They do not delay other tenants' starts or reservations.
func TestParkedOfDominantTenantDelayNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		early := acceptedOf("dominant", 700)
		for i := range early.Deliveries {
			early.Deliveries[i].EndpointID = early.Deliveries[0].EndpointID
		}
		g := opening{at: map[webhook.EndpointID]time.Time{early.Deliveries[0].EndpointID: time.Now().Add(parkAbove + 3*parkInterval)}}
		s, f, open := concurrentStart(t, g, early)
		defer s.Stop()
		var others []webhook.Ref
		for range 6 {
			asked := time.Now()
			release, err := s.Reserve(t.Context(), "quiet", 1)
			require.NoError(t, err)
			quiet := acceptedOf("quiet", 1)
			others = append(others, refsOf(quiet.Deliveries)...)
			s.Accepted(quiet)
			release()
			synctest.Wait()
			require.Zero(t, time.Since(asked))
			_, own := groups(t, f)
			require.Equal(t, others, refsOfOwn(own))
			pass(parkInterval)
		}
		require.Equal(t, s.width+len(others), countBegun(t, f))
		require.Equal(t, len(early.Deliveries), s.queue.Len(), "their turn has come")
		open()
		pass(parkInterval)
		require.Equal(t, s.width+len(others)+len(early.Deliveries), countBegun(t, f))
		require.Zero(t, s.permits.Tenants())
	})
}
