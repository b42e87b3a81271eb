package recovery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/engine/enginetest"
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

// What has expired is started, however much it is and whatever admission has room for.
func TestReleaseExpired(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	_, held := enginetest.HeldFor(batchSize + 3)
	s := &heldStore{expired: held}
	d := setup(t, parts{Client: c, Admission: admissionStub{releasable: upTo(0)}, HeldStore: s})
	_, _ = d.release.releaseExpired(t.Context())
	require.Empty(t, s.expired)
	require.Len(t, enginetest.Begun(t, f), len(held))
	s.failing(errors.New("away"))
	_, _ = d.release.releaseExpired(t.Context())
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
			f, c := enginetest.New(t)
			endpoint, held := enginetest.HeldFor(test.starts)
			s := &heldStore{fail: test.fail, starts: map[webhook.EndpointID][]webhook.Start{endpoint: held}}
			d := setup(t, parts{Client: c, Admission: admissionStub{releasable: upTo(test.room)}, HeldStore: s})
			d.held.note(endpoint, time.Time{}, false)
			d.releaseDue()
			require.Equal(t, test.more, len(d.held.ids()) == 1)
			require.Equal(t, test.looks, s.looks)
			var got []webhook.DeliveryID
			for _, request := range f.Started() {
				if request.GetWorkflowType().GetName() == "DeliveryWorkflow" {
					got = append(got, enginetest.InputOf[workflows.DeliveryInput](t, request.GetInput()).DeliveryID)
					continue
				}
				for _, delivery := range enginetest.InputOf[workflows.FanoutInput](t, request.GetInput()).Deliveries {
					got = append(got, delivery.DeliveryID)
				}
			}
			require.Empty(t, f.Signalled)
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
		d := setup(t, parts{Admission: admissionStub{releasable: func(webhook.EndpointID) int { return int(room.Load()) }}, HeldStore: s})
		d.run(d.release.Run)
		time.AfterFunc(1500*time.Millisecond, func() { d.held.NoteHeld(webhook.NewEndpointID()) })
		looksAfter := func(wait time.Duration) int {
			_, before := s.counts()
			<-time.After(wait)
			synctest.Wait()
			_, after := s.counts()
			return after - before
		}
		require.Zero(t, looksAfter(1900*time.Millisecond))
		require.Equal(t, 6, looksAfter(20*time.Second), "one that begins five seconds after it was said is the last")
		require.Empty(t, d.held.ids())

		room.Store(0)
		d.held.NoteHeld(webhook.NewEndpointID())
		require.Zero(t, looksAfter(20*time.Second))
		require.Len(t, d.held.ids(), 1)
		room.Store(1)
		require.Equal(t, 1, looksAfter(10*time.Second))
		require.Empty(t, d.held.ids())
		d.Lifetime.Stop()
	})
}

// elsewhere is an admission of which another process has every endpoint.
type elsewhere struct{ admissionStub }

func (elsewhere) Admits(webhook.EndpointID) bool { return false }

// What this process has held because of an internal fault is released by the process that admits the requests. It is told when the
// fault is over here, once.
func TestAnotherProcessReleases(t *testing.T) {
	t.Parallel()
	endpoint, starts := enginetest.HeldFor(2)
	store := &heldStore{starts: map[webhook.EndpointID][]webhook.Start{endpoint: starts}}
	var told []webhook.EndpointID
	d := setup(t, parts{
		HeldStore: store, Admission: elsewhere{admissionStub{releasable: upTo(0)}},
		TellHeld: func(id webhook.EndpointID) { told = append(told, id) },
	})
	fault := errors.New("too many open files")
	d.checks(func(context.Context, webhook.EndpointID) error { return fault })
	d.held.faulted(endpoint, fault.Error(), time.Now().Add(-time.Minute))
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

// With a real store: held deliveries are released once, the oldest first, with their status. Those of a paused endpoint are not, and the
// endpoint does not stay on the list.
func TestReleaseFromTheStore(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	store, err := stores.Open(t.Context(), stores.Config{URL: postgrestest.New(t), MaxConns: 3})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	endpoint, held := enginetest.HeldFor(5)
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
	d := setup(t, parts{
		Client: c, Outbox: store.Outbox, Admission: admissionStub{releasable: func(webhook.EndpointID) int { return room }}, HeldStore: store.Held,
	})
	pause := func(state webhook.EndpointState) {
		_, err := store.Pool().Exec(t.Context(), `update endpoints set state = $1`, int16(state))
		require.NoError(t, err)
	}
	pause(webhook.EndpointPaused)
	found, err := d.findHeld()
	require.NoError(t, err)
	require.Zero(t, found)
	require.Empty(t, d.held.ids())
	d.releaseOf(endpoint)
	require.Empty(t, f.Started())

	pause(webhook.EndpointActive)
	found, err = d.findHeld()
	require.NoError(t, err)
	require.Equal(t, 1, found)
	require.Equal(t, []webhook.EndpointID{endpoint}, d.held.ids())
	d.releaseDue()
	require.Equal(t, []webhook.EndpointID{endpoint}, d.held.ids(), "there may be more")
	d.releaseDue()
	require.Equal(t, []webhook.EndpointID{endpoint}, d.held.ids(), "what is on its way fills the room")
	room = 6
	d.releaseDue()
	require.Empty(t, d.held.ids())

	require.Len(t, f.Started(), 2)
	require.Empty(t, f.Signalled)
	var released []workflows.FanoutDelivery
	for _, request := range f.Starts {
		released = append(released, enginetest.InputOf[workflows.FanoutInput](t, request.GetInput()).Deliveries...)
	}
	for i, start := range held {
		require.Equal(t, workflows.FanoutDelivery{Ref: start.Ref, Progress: start.Progress()}, released[i])
	}

	d.releaseOf(endpoint)
	require.Len(t, f.Started(), 2, "all are under way")
	_, err = store.Pool().Exec(t.Context(), `update outbox set relay_at = now()`)
	require.NoError(t, err)
	d.relayOnce()
	require.Len(t, f.Started(), 4, "whose start was lost comes back by the relay")
	require.ElementsMatch(t, []string{f.Starts[0].GetWorkflowId(), f.Starts[1].GetWorkflowId()},
		[]string{f.Starts[2].GetWorkflowId(), f.Starts[3].GetWorkflowId()}, "in the workflow that the outbox names")
}

// A round ends when Temporal goes away in it, or the process does.
func TestReleaseEndsWithTemporal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*bundle){
		"down": func(d *bundle) { d.Health.MarkDown(errTemporalDown) },
		"stop": func(d *bundle) { d.Lifetime.Stop() },
	} {
		s := &heldStore{}
		d := setup(t, parts{Admission: admissionStub{releasable: upTo(1)}, HeldStore: s})
		var once sync.Once // several are served at a time
		s.onLook = func() { once.Do(func() { end(d) }) }
		for range 10 {
			d.held.NoteHeld(webhook.NewEndpointID())
		}
		d.releaseDue()
		require.NotEmpty(t, s.looks, name)
		require.LessOrEqual(t, len(s.looks), releaseWidth, name)
		require.Len(t, d.held.ids(), 10, name)
		_, err := d.findHeld()
		require.Error(t, err, name)
		require.Zero(t, s.searches, name)
	}
}
