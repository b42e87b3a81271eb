package recovery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// releases is a store of releases in memory.
type releases struct {
	mu     sync.Mutex
	room   int
	due    map[webhook.EndpointID]*releasable
	fail   error
	onTurn func(webhook.ReleaseTurn)
	turns  []webhook.ReleaseTurn
}

// releasable is a release with what is held.
type releasable struct {
	webhook.DueRelease

	held []webhook.Start
	next time.Time
}

// heldFor is a store with some endpoints of a tenant and so many held deliveries of each.
func (s *releases) heldFor(tenant string, endpoints, n int) (ids []webhook.EndpointID) {
	for range endpoints {
		id, held := enginetest.HeldFor(n)
		if s.due == nil {
			s.due = map[webhook.EndpointID]*releasable{}
		}
		s.due[id] = &releasable{webhook.DueRelease{Release: webhook.Release{EndpointID: id, TenantID: tenant, StartedAt: time.Now()}}, held, time.Now()}
		ids = append(ids, id)
	}
	return ids
}

func (s *releases) StartRoom(context.Context, []int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room, s.fail
}

func (s *releases) DueReleases(_ context.Context, _ []int, limit int) (all []webhook.DueRelease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.SortedFunc(maps.Values(s.due), func(a, b *releasable) int { return a.next.Compare(b.next) }) {
		if !r.next.After(time.Now()) && len(all) < limit {
			r.Now, r.DueAt = time.Now(), r.next
			all = append(all, r.DueRelease)
		}
	}
	return all, nil
}

func (s *releases) TakeTurn(ctx context.Context, turn webhook.ReleaseTurn) (starts []webhook.Start, err error) {
	if s.onTurn != nil {
		s.onTurn(turn)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns = append(s.turns, turn)
	r := s.due[turn.EndpointID]
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := min(turn.Limit, len(r.held))
	starts, r.held = r.held[:n], r.held[n:]
	if r.next = time.Now().Add(turn.Pause); n == 0 {
		r.next = time.Now().Add(max(turn.Look, time.Second))
	}
	return starts, nil
}

func (s *releases) Postpone(_ context.Context, all []webhook.PostponedRelease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range all {
		if r := s.due[p.EndpointID]; r.next.Equal(p.DueAt) {
			r.next = time.Now().Add(p.Pause)
		}
	}
	return nil
}

func (s *releases) limits() (all []int) {
	for _, turn := range s.turns {
		all = append(all, turn.Limit)
	}
	return all
}

// As much is released as admission has room for, less what it does not count yet. One that has no room is put off.
func TestReleaseKeepsToAdmission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := enginetest.New(t)
		s, room := &releases{room: 1000}, 3
		ids := s.heldFor("acme", 1, 8)
		d := setup(t, parts{Client: c, Releases: s, Admission: admissionStub{func(webhook.EndpointID) int { return room }}})
		require.Equal(t, 3, d.releaseOnce())
		require.Len(t, enginetest.Begun(t, f), 3)
		require.Zero(t, d.releaseOnce(), "what is on its way fills the room")
		require.True(t, s.due[ids[0]].next.After(time.Now()))
		<-time.After(lastWait)
		room = 100
		require.Equal(t, 5, d.releaseOnce())
		require.Equal(t, []int{3, 100}, s.limits())
		d.Lifetime.Stop()
	})
}

// The room is shared among tenants, however many endpoints one has. What gets none stays due.
func TestReleaseSharesTheRoom(t *testing.T) {
	t.Parallel()
	_, c := enginetest.New(t)
	s := &releases{room: 20}
	s.heldFor("large", 50, 40)
	small := s.heldFor("small", 1, 5)
	d := setup(t, parts{Client: c, Releases: s, Admission: admissionStub{upTo(100)}})
	require.Equal(t, 15, d.releaseOnce())
	require.Empty(t, s.due[small[0]].held)
	due, err := s.DueReleases(t.Context(), nil, 100)
	require.NoError(t, err)
	require.Len(t, due, 51)
	s.room = 0
	require.Zero(t, d.releaseOnce(), "new events wait")
}

// A round makes all of its turns, however much each may release and however little it does: what one does not use is for the next.
func TestARoundMakesItsTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := enginetest.New(t)
		s := &releases{room: 400}
		s.heldFor("acme", releaseRound, 1)
		d := setup(t, parts{Client: c, Releases: s, Admission: admissionStub{upTo(1000)}})
		require.Equal(t, releaseRound, d.releaseOnce())
		require.Len(t, s.turns, releaseRound)
		d.Lifetime.Stop()
	})
}

// A turn that fails or hangs delays no other tenant's, and neither the tenant's own nor the next round for long.
func TestReleaseThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := enginetest.New(t)
		s := &releases{room: 1000}
		broken, well := s.heldFor("acme", 1, 5), append(s.heldFor("other", 20, 5), s.heldFor("acme", 1, 5)...)
		s.due[broken[0]].next = time.Now().Add(-time.Second) // the tenant's first turn
		var mu sync.Mutex
		hangs := true
		s.onTurn = func(turn webhook.ReleaseTurn) {
			mu.Lock()
			defer mu.Unlock()
			if hangs && slices.Contains(broken, turn.EndpointID) {
				mu.Unlock()
				<-time.After(turnTimeout + time.Millisecond)
				mu.Lock()
			}
		}
		d := setup(t, parts{Client: c, Releases: s, Admission: admissionStub{upTo(100)}})
		began := time.Now()
		require.Equal(t, (len(well)-1)*5, d.releaseOnce())
		require.LessOrEqual(t, time.Since(began), turnTimeout+time.Millisecond)
		require.Equal(t, time.Now().Add(firstPause), s.due[broken[0]].next)
		require.Equal(t, 5, d.releaseOnce(), "the tenant's other one")
		mu.Lock()
		hangs = false
		mu.Unlock()
		<-time.After(firstPause)
		require.Equal(t, 5, d.releaseOnce())
		d.Lifetime.Stop()
	})
}

// Tenants whose turns hang wait for each other, however long their turns are due.
func TestTenantsThatHangComeLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := enginetest.New(t)
		s := &releases{room: 1000}
		var hung []webhook.EndpointID
		for i := range releaseWidth {
			hung = append(hung, s.heldFor(strconv.Itoa(i), 1, 5)...)
		}
		s.onTurn = func(turn webhook.ReleaseTurn) {
			if slices.Contains(hung, turn.EndpointID) {
				<-time.After(turnTimeout + time.Millisecond)
			}
		}
		d := setup(t, parts{Client: c, Releases: s, Admission: admissionStub{upTo(100)}})
		require.Zero(t, d.releaseOnce())
		for i := range 20 {
			s.heldFor("well "+strconv.Itoa(i), 1, 5)
		}
		for _, id := range hung {
			s.due[id].next = time.Now().Add(-time.Hour)
		}
		require.Equal(t, 20*5, d.releaseOnce())
		d.Lifetime.Stop()
	})
}

// After an internal fault one delivery goes as a probe, and then twice as many each time, unless the fault is met again.
func TestReleaseProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := enginetest.New(t)
		s := &releases{room: 10_000}
		id := s.heldFor("acme", 1, 2000)[0]
		s.due[id].FaultedAt = time.Now().Add(-time.Second)
		meets := 3
		s.onTurn = func(webhook.ReleaseTurn) {
			meets--
			if meets >= 0 {
				time.AfterFunc(100*time.Millisecond, func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.due[id].FaultedAt = time.Now()
				})
			}
		}
		d := setup(t, parts{Client: c, Releases: s, Admission: admissionStub{upTo(10_000)}})
		var at []time.Duration
		began := time.Now()
		for len(s.turns) < 8 {
			if d.releaseOnce() > 0 {
				at = append(at, time.Since(began))
			}
			<-time.After(releaseEvery)
		}
		require.Equal(t, []int{1, 1, 1, 1, 2, 4, 8, 16}, s.limits())
		require.GreaterOrEqual(t, at[1]-at[0], firstPause)
		require.GreaterOrEqual(t, at[2]-at[1], 2*firstPause)
		require.GreaterOrEqual(t, at[3]-at[2], 4*firstPause)
		require.LessOrEqual(t, at[7]-at[4], 4*releaseEvery)

		d.faults.Faulted(id, "its key is lost") // as this process knows
		turns := len(s.turns)
		d.releaseOnce()
		require.Len(t, s.turns, turns)
		d.Lifetime.Stop()
	})
}

// A round ends when Temporal goes away in it, or the process does.
func TestReleaseEndsWithTemporal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*bundle){
		"down": func(d *bundle) { d.Health.MarkDown(errTemporalDown) },
		"stop": func(d *bundle) { d.Lifetime.Stop() },
	} {
		s := &releases{room: 1000}
		s.heldFor("acme", 30, 0)
		d := setup(t, parts{Releases: s, Admission: admissionStub{upTo(1)}})
		var once sync.Once // several are served at a time
		s.onTurn = func(webhook.ReleaseTurn) { once.Do(func() { end(d) }) }
		d.releaseOnce()
		require.NotEmpty(t, s.turns, name)
		require.LessOrEqual(t, len(s.turns), 2*releaseWidth, name)
		require.Zero(t, d.releaseOnce(), name)
	}
}

// With a real store: held deliveries are released once, the oldest first, and come back by the relay if their start is lost.
func TestReleaseFromTheStore(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	b := storetest.Setup(t)
	for range 5 {
		b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	}
	d := setup(t, parts{Client: c, Outbox: b.Outbox, Releases: b.Releases, Admission: everyLane{admissionStub{upTo(100)}}})
	require.Equal(t, 5, d.releaseOnce())
	require.Len(t, enginetest.Begun(t, f), 5)
	require.Zero(t, d.releaseOnce())
	b.Exec(t, `update outbox set relay_at = now()`)
	d.relayOnce()
	require.Len(t, enginetest.Begun(t, f), 10, "in the workflow that the outbox names")
}

// everyLane is an admission of all lanes.
type everyLane struct{ admissionStub }

func (everyLane) OwnLanes() (lanes []int) {
	for lane := range webhook.Lanes {
		lanes = append(lanes, lane)
	}
	return lanes
}

// expired is a store of deliveries to be given up.
type expired struct {
	starts []webhook.Start
	fail   error
}

func (s *expired) ReleaseExpired(_ context.Context, limit int) ([]webhook.Start, error) {
	some := s.starts[:min(limit, len(s.starts))]
	s.starts = s.starts[len(some):]
	return some, s.fail
}

// What has expired is started, and no more in a round than that takes a moment.
func TestExpired(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	_, held := enginetest.HeldFor(expireBatches*batchSize + 3)
	s := &expired{starts: held}
	d := setup(t, parts{Client: c, Expired: s})
	n, err := d.expiry.runOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, expireBatches*batchSize, n)
	require.Len(t, s.starts, 3)
	_, err = d.expiry.runOnce(t.Context())
	require.NoError(t, err)
	require.Len(t, enginetest.Begun(t, f), len(held))
	s.fail = errors.New("away")
	_, err = d.expiry.runOnce(t.Context())
	require.Error(t, err)
}
