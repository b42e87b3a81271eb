package starter

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// heldStore is a store of held deliveries.
type heldStore struct {
	mu       sync.Mutex
	faulty   bool // because of an internal fault
	starts   map[webhook.EndpointID][]webhook.Start
	expired  []webhook.Start
	fail     error // of all reads
	searches int
	looks    []int // the limits
	onLook   func()
}

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

func (s *heldStore) ReleaseHeld(_ context.Context, id webhook.EndpointID, limit int) ([]webhook.Start, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = append(s.looks, limit)
	if s.onLook != nil {
		s.onLook()
	}
	if s.fail != nil {
		return nil, s.fail
	}
	starts := s.starts[id][:min(limit, len(s.starts[id]))]
	if len(starts) > 0 {
		s.starts[id] = s.starts[id][len(starts):]
	}
	return assigned(starts), nil
}

func (s *heldStore) ReleaseExpired(_ context.Context, limit int) ([]webhook.Start, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	some := s.expired[:min(limit, len(s.expired))]
	s.expired = s.expired[len(some):]
	return assigned(some), nil
}

// assigned assigns workflows, as the store does.
func assigned(starts []webhook.Start) []webhook.Start {
	all := make([]*webhook.Start, len(starts))
	for i := range starts {
		all[i] = &starts[i]
	}
	webhook.Assign(all)
	return starts
}

func (s *heldStore) failing(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *heldStore) counts() (searches, looks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.searches, len(s.looks)
}

// ids are all endpoints of the list.
func (h *heldEndpoints) ids() (ids []webhook.EndpointID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.byID))
}

// heldFor are n held deliveries of one endpoint, the oldest first.
func heldFor(n int) (webhook.EndpointID, []webhook.Start) {
	starts, endpoint := accepted(n).Deliveries, webhook.NewEndpointID()
	for i := range starts {
		starts[i].EndpointID = endpoint
		starts[i].DeliveryID = webhook.DeliveryIDOf(starts[i].EventID, endpoint)
	}
	slices.SortFunc(starts, func(a, b webhook.Start) int { return bytes.Compare(a.DeliveryID[:], b.DeliveryID[:]) })
	for i := range starts {
		s := &starts[i]
		s.GiveUpAt = s.GiveUpAt.UTC().Truncate(time.Microsecond)
		s.Resume = &webhook.Progress{
			Run: 1, Seq: 1 + i, State: webhook.StateHeld, Reason: webhook.ReasonBacklog, Attempts: i, RunAttempts: i, GiveUpAt: s.GiveUpAt,
		}
	}
	return endpoint, starts
}

// What has expired is started, however much it is and whatever admission has room for.
func TestReleaseExpired(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	_, held := heldFor(relayBatch + 3)
	s := &heldStore{expired: held}
	d := setup(t, Config{Client: c, Admission: admissionStub{releasable: upTo(0)}, HeldStore: s})
	d.releaseExpired()
	require.Empty(t, s.expired)
	require.Equal(t, len(held), countBegun(t, f))
	s.failing(errors.New("away"))
	d.releaseExpired()
}

// As much is released as admission has room for. The endpoint stays on the list until less is found.
func TestReleaseOf(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		room, starts int
		fail         error
		looks        []int
		released     int
		more         bool
	}{
		"there is no room":          {room: 0, starts: 3, more: true},
		"there is less than none":   {room: -7, starts: 3, more: true},
		"some fit":                  {room: 2, starts: 3, looks: []int{2}, released: 2, more: true},
		"all fit, and no more":      {room: 3, starts: 3, looks: []int{3}, released: 3, more: true},
		"all fit":                   {room: 4, starts: 3, looks: []int{4}, released: 3},
		"nothing is held any more":  {room: 4, looks: []int{4}},
		"more than one look may be": {room: 5 * releaseBatch, starts: 1, looks: []int{releaseBatch}, released: 1},
		"it cannot be read":         {room: 4, starts: 3, fail: errors.New("away"), looks: []int{4}, more: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFrontend(t)
			endpoint, held := heldFor(test.starts)
			s := &heldStore{fail: test.fail, starts: map[webhook.EndpointID][]webhook.Start{endpoint: held}}
			d := setup(t, Config{Client: c, Admission: admissionStub{releasable: upTo(test.room)}, HeldStore: s})
			d.heldEndpoints.note(endpoint, time.Time{}, false)
			d.releaseDue()
			require.Equal(t, test.more, len(d.heldEndpoints.ids()) == 1)
			require.Equal(t, test.looks, s.looks)
			var got []webhook.DeliveryID
			for _, request := range f.started() {
				if request.GetWorkflowType().GetName() == "DeliveryWorkflow" {
					got = append(got, inputOf[workflows.DeliveryInput](t, request.GetInput()).DeliveryID)
					continue
				}
				for _, delivery := range inputOf[workflows.FanoutInput](t, request.GetInput()).Deliveries {
					got = append(got, delivery.DeliveryID)
				}
			}
			require.Empty(t, f.signalled)
			var want []webhook.DeliveryID
			for _, start := range held[:test.released] { // the oldest
				want = append(want, start.DeliveryID)
			}
			require.ElementsMatch(t, want, got)
		})
	}
}

// An endpoint is on the list from when something is held until a while after nothing was
// found: what is said to be held is not in the store yet. While there is no room for
// it, it stays.
func TestHeldIsLookedForUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &heldStore{}
		var room atomic.Int64
		room.Store(4)
		d := setup(t, Config{Admission: admissionStub{releasable: func(webhook.EndpointID) int { return int(room.Load()) }}, HeldStore: s})
		d.workers.Go(d.release)
		time.AfterFunc(1500*time.Millisecond, func() { d.NoteHeld(webhook.NewEndpointID()) })
		looksAfter := func(wait time.Duration) int {
			_, before := s.counts()
			<-time.After(wait)
			synctest.Wait()
			_, after := s.counts()
			return after - before
		}
		require.Zero(t, looksAfter(1900*time.Millisecond))
		require.Equal(t, 6, looksAfter(20*time.Second), "one that begins five seconds after it was said is the last")
		require.Empty(t, d.heldEndpoints.ids())

		room.Store(0)
		d.NoteHeld(webhook.NewEndpointID())
		require.Zero(t, looksAfter(20*time.Second))
		require.Len(t, d.heldEndpoints.ids(), 1)
		room.Store(1)
		require.Equal(t, 1, looksAfter(10*time.Second))
		require.Empty(t, d.heldEndpoints.ids())
		d.Stop()
	})
}

// A hold that is noted during a look is not forgotten by it, and reading an endpoint from the store does not renew an older note.
func TestHeldEndpointsAreForgotten(t *testing.T) {
	t.Parallel()
	var h heldEndpoints
	id, other := webhook.NewEndpointID(), webhook.NewEndpointID()
	noted := time.Now()
	h.note(id, noted, false)
	h.note(id, time.Time{}, false) // from the store
	h.note(other, time.Time{}, false)
	h.released(id, 0, false, noted.Add(holdDelay-1))
	h.released(other, 0, false, noted)
	require.Equal(t, []webhook.EndpointID{id}, h.ids())
	h.note(id, noted.Add(time.Second), false)
	h.released(id, 0, false, noted.Add(holdDelay))
	require.Equal(t, []webhook.EndpointID{id}, h.ids())
	h.released(id, 0, false, noted.Add(holdDelay+time.Second))
	require.Empty(t, h.ids())
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
		d := setup(t, Config{Admission: admissionStub{releasable: func(webhook.EndpointID) int { return int(room.Load()) }}, HeldStore: s})
		d.temporalDown.Store(true)
		d.workers.Go(d.release)
		d.workers.Go(d.findAllHeld)
		searchesAfter := func(wait time.Duration) int {
			before, _ := s.counts()
			<-time.After(wait)
			synctest.Wait()
			after, _ := s.counts()
			return after - before
		}
		require.Zero(t, searchesAfter(10500*time.Millisecond))
		d.temporalDown.Store(false)
		require.Equal(t, 2, searchesAfter(3*time.Second), "in vain, and less and less often")
		s.failing(nil)
		require.Equal(t, 3, searchesAfter(time.Second), "pages")
		require.Len(t, d.heldEndpoints.ids(), 2*heldPage+1)
		require.Zero(t, searchesAfter(findEvery-time.Second))
		require.Equal(t, 3, searchesAfter(time.Second))
		room.Store(1)
		require.Zero(t, searchesAfter(time.Second))
		require.Empty(t, d.heldEndpoints.ids(), "what was read in the store is forgotten as soon as it is not there any more")
		d.Stop()
	})
}

// elsewhere is an admission of which another process has every endpoint.
type elsewhere struct{ admissionStub }

func (elsewhere) Admits(webhook.EndpointID) bool { return false }

// What this process has held because of an internal fault is released by the process that admits the requests. It is told when the
// fault is over here, once.
func TestAnotherProcessReleases(t *testing.T) {
	t.Parallel()
	endpoint, starts := heldFor(2)
	store := &heldStore{starts: map[webhook.EndpointID][]webhook.Start{endpoint: starts}}
	var told []webhook.EndpointID
	d := setup(t, Config{
		HeldStore: store, Admission: elsewhere{admissionStub{releasable: upTo(0)}},
		TellHeld: func(id webhook.EndpointID) { told = append(told, id) },
	})
	fault := errors.New("too many open files")
	d.uses(requests{check: func(context.Context, webhook.EndpointID) error { return fault }})
	d.heldEndpoints.faulted(endpoint, fault.Error(), time.Now().Add(-time.Minute))
	d.releaseOf(endpoint)
	require.Empty(t, told, "the fault is not over")
	fault = nil
	for range 3 {
		d.releaseOf(endpoint)
	}
	require.Equal(t, []webhook.EndpointID{endpoint}, told)
	_, looks := store.counts()
	require.Zero(t, looks)
}

// What is held in lanes that this process has taken is looked for at once, and again when what the owner before was holding is stored.
func TestBacklogIsLookedForInNewLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &heldStore{}
		d := setup(t, Config{Admission: admissionStub{releasable: upTo(0)}, HeldStore: s})
		d.workers.Go(d.findAllHeld)
		<-time.After(findEvery / 2)
		looks := func(wait time.Duration) int {
			before, _ := s.counts()
			<-time.After(wait)
			synctest.Wait()
			after, _ := s.counts()
			return after - before
		}
		require.Zero(t, looks(releaseEvery))
		d.LanesTaken()
		require.Equal(t, 1, looks(releaseEvery))
		require.Zero(t, looks(holdDelay-2*releaseEvery))
		require.Equal(t, 1, looks(2*releaseEvery))
		require.Zero(t, looks(findEvery-2*releaseEvery))
		d.Stop()
	})
}

// A round ends when Temporal goes away in it, or the process does.
func TestReleaseEndsWithTemporal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Starter){
		"down": func(d *Starter) { d.temporalDown.Store(true) },
		"stop": func(d *Starter) { close(d.stopped) },
	} {
		s := &heldStore{}
		d := setup(t, Config{Admission: admissionStub{releasable: upTo(1)}, HeldStore: s})
		var once sync.Once // several are served at a time
		s.onLook = func() { once.Do(func() { end(d) }) }
		for range 10 {
			d.NoteHeld(webhook.NewEndpointID())
		}
		d.releaseDue()
		require.NotEmpty(t, s.looks, name)
		require.LessOrEqual(t, len(s.looks), releaseWidth, name)
		require.Len(t, d.heldEndpoints.ids(), 10, name)
		require.False(t, d.findHeld(), name)
		require.Zero(t, s.searches, name)
	}
}

// With a real store: held deliveries are released once, the oldest first, with their status. Those of a paused endpoint are not, and the
// endpoint does not stay on the list.
func TestReleaseFromTheStore(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	store, err := stores.Open(t.Context(), stores.Config{URL: postgrestest.New(t), MaxConns: 3})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	endpoint, held := heldFor(5)
	_, err = store.Pool().Exec(t.Context(), `insert into tenants (id, name) values ('acme', 'Acme')`)
	require.NoError(t, err)
	_, err = store.Pool().Exec(t.Context(), `
		insert into endpoints (id, tenant_id, url, event_types, timeout_ns, max_in_flight, rate_limit, retry_policy, circuit_breaker, auto_disable,
			auto_replay, signature, version)
		values ($1, 'acme', 'https://example.com', '{*}', 1, 1, 1, '{}', '{}', '{}', false, 'v1', 1)`, endpoint)
	require.NoError(t, err)
	for i, start := range held {
		step := webhook.Step{Ref: start.Ref, Progress: *start.Resume, Known: true}
		if i == 1 { // a row of an earlier build names a workflow
			step.WorkflowID = start.WorkflowID()
		}
		_, err := store.Deliveries.RecordStep(t.Context(), step)
		require.NoError(t, err)
	}
	room := 3
	d := setup(t, Config{
		Client: c, Outbox: store.Outbox, Admission: admissionStub{releasable: func(webhook.EndpointID) int { return room }}, HeldStore: store.Held,
	})
	pause := func(state webhook.EndpointState) {
		_, err := store.Pool().Exec(t.Context(), `update endpoints set state = $1`, int16(state))
		require.NoError(t, err)
	}
	pause(webhook.EndpointPaused)
	require.True(t, d.findHeld())
	require.Empty(t, d.heldEndpoints.ids())
	d.releaseOf(endpoint)
	require.Empty(t, f.started())

	pause(webhook.EndpointActive)
	require.True(t, d.findHeld())
	require.Equal(t, []webhook.EndpointID{endpoint}, d.heldEndpoints.ids())
	d.releaseDue()
	require.Equal(t, []webhook.EndpointID{endpoint}, d.heldEndpoints.ids(), "there may be more")
	d.releaseDue()
	require.Equal(t, []webhook.EndpointID{endpoint}, d.heldEndpoints.ids(), "what is on its way fills the room")
	room = 6
	d.releaseDue()
	require.Empty(t, d.heldEndpoints.ids())

	require.Len(t, f.started(), 2)
	require.Empty(t, f.signalled)
	var released []workflows.FanoutDelivery
	for _, request := range f.starts {
		released = append(released, inputOf[workflows.FanoutInput](t, request.GetInput()).Deliveries...)
	}
	for i, start := range held {
		require.Equal(t, workflows.FanoutDelivery{Ref: start.Ref, Progress: start.Progress()}, released[i])
	}

	d.releaseOf(endpoint)
	require.Len(t, f.started(), 2, "all are under way")
	_, err = store.Pool().Exec(t.Context(), `update outbox set relay_at = now()`)
	require.NoError(t, err)
	require.False(t, d.relayOnce())
	require.Len(t, f.started(), 4, "whose start was lost comes back by the relay")
	require.ElementsMatch(t, []string{f.starts[0].GetWorkflowId(), f.starts[1].GetWorkflowId()},
		[]string{f.starts[2].GetWorkflowId(), f.starts[3].GetWorkflowId()}, "in the workflow that the outbox names")
}

// What was released is counted until admission counts it.
func TestReleasedIsUnderWay(t *testing.T) {
	t.Parallel()
	var h heldEndpoints
	id, now := webhook.NewEndpointID(), time.Now()
	h.note(id, time.Time{}, false)
	h.released(id, 5, true, now)
	require.Equal(t, 5, h.underWay(id, now.Add(releaseDelay-1)))
	require.Zero(t, h.underWay(id, now.Add(releaseDelay)))
	h.released(id, 2, false, now.Add(releaseDelay))
	require.Empty(t, h.ids(), "nothing is left")
}
