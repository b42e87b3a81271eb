package fleet

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// table is the table of leases, without the database: internal/postgres/lanes has the real one.
type table struct {
	mu        sync.Mutex
	lanes     [webhook.Lanes]webhook.Lane
	expires   [webhook.Lanes]time.Time
	processes map[string]webhook.Process
	seen      map[string]time.Time
	cut       map[string]bool // processes that do not reach the database
}

const tableLease = 8 * time.Second

func (s *table) Renew(_ context.Context, self webhook.Process, release []int) (read webhook.Fleet, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut[self.ID] {
		return read, context.DeadlineExceeded
	}
	now, mine, live := time.Now(), 0, 0
	s.processes[self.ID], s.seen[self.ID] = self, now
	for id, p := range s.processes {
		if !p.Leaving && now.Sub(s.seen[id]) < tableLease {
			live++
		}
	}
	read.Share = (webhook.Lanes + live - 1) / max(live, 1)
	for i := range s.lanes {
		switch {
		case s.lanes[i].Owner == self.ID && slices.Contains(release, i):
			s.lanes[i].Owner, s.expires[i] = "", now
		case s.lanes[i].Owner == self.ID:
			s.expires[i] = now.Add(tableLease)
			mine++
		}
	}
	for i := range s.lanes {
		free := s.lanes[i].Owner == "" || now.After(s.expires[i])
		if free && !self.Leaving && mine < read.Share {
			read.Taken = append(read.Taken, webhook.TakenLane{Lane: i, Epoch: s.lanes[i].Epoch + 1, EndedAgo: min(now.Sub(s.expires[i]), time.Hour)})
			s.lanes[i] = webhook.Lane{Owner: self.ID, Epoch: s.lanes[i].Epoch + 1}
			s.expires[i] = now.Add(tableLease)
			mine++
		}
	}
	read.Lanes = s.lanes
	for _, p := range s.processes {
		read.Processes = append(read.Processes, p)
	}
	return read, nil
}

func (s *table) Bury(ctx context.Context, id string) (bool, error) { return true, s.Leave(ctx, id) }

func (s *table) Leave(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, id)
	for i := range s.lanes {
		if s.lanes[i].Owner == id {
			s.lanes[i].Owner, s.expires[i] = "", time.Now()
		}
	}
	return nil
}

// seenBy is the table as a process sees it.
type seenBy struct {
	*table

	id string
}

func (s seenBy) Leave(ctx context.Context, id string) error {
	s.mu.Lock()
	cut := s.cut[s.id]
	s.mu.Unlock()
	if cut {
		return context.DeadlineExceeded
	}
	return s.table.Leave(ctx, id)
}

func (s *table) cutOff(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[id] = true
}

func (s *table) ownerOf(id webhook.EndpointID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lanes[webhook.LaneOf(id)].Owner
}

func newTable() *table {
	return &table{processes: map[string]webhook.Process{}, seen: map[string]time.Time{}, cut: map[string]bool{}}
}

// join starts a process.
func (s *table) join(t *testing.T, id string) *Fleet {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	controller := admission.New(admission.Config{})
	f, err := New(Config{
		Store: seenBy{s, id}, Controller: controller, Health: controller.Health, ID: id, Listener: listener, Address: listener.Addr().String(),
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, f.Start(t.Context()))
	t.Cleanup(func() { f.Stop(context.WithoutCancel(t.Context())) })
	return f
}

// settled waits until processes have their shares, and agree about the owners.
func settled(t *testing.T, all ...*Fleet) {
	t.Helper()
	share := (webhook.Lanes + len(all) - 1) / len(all)
	require.Eventually(t, func() bool {
		sum := 0
		for _, f := range all {
			f.mu.Lock()
			own := 0
			for i := range f.lanes {
				if f.lanes[i].own && f.lanes[i].ready {
					own++
				}
				if f.lanes[i].owner == "" || f.lanes[i].owner != all[0].lanes[i].owner {
					own = webhook.Lanes + 1
				}
			}
			f.mu.Unlock()
			if own > share {
				return false
			}
			sum += own
		}
		return sum == webhook.Lanes
	}, 20*time.Second, 20*time.Millisecond)
}

// endpointOf is an endpoint in a lane of a process.
func endpointOf(t *testing.T, s *table, owner *Fleet) webhook.EndpointID {
	t.Helper()
	for range 10_000 {
		if id := webhook.NewEndpointID(); s.ownerOf(id) == owner.self.ID {
			return id
		}
	}
	t.Fatal("the process has no lane")
	return webhook.EndpointID{}
}

func request(endpoint webhook.EndpointID, most int) admission.Request {
	return admission.Request{
		Endpoint: endpoint, Delivery: webhook.DeliveryIDOf(webhook.NewEventID(), endpoint),
		Limits: admission.Limits{MaxInFlight: most, Rate: 10_000, Timeout: 15 * time.Second}, URL: "https://receiver.example/",
	}
}

func TestCapHoldsOverProcesses(t *testing.T) {
	t.Parallel()
	s := newTable()
	a, b := s.join(t, "a"), s.join(t, "b")
	settled(t, a, b)
	endpoint := endpointOf(t, s, a)
	var permits []*admission.Permit
	for i := range 6 {
		f := []*Fleet{a, b}[i%2]
		d := f.Acquire(t.Context(), request(endpoint, 4))
		if i < 4 {
			require.NotNil(t, d.Permit, "request %d", i)
			require.Equal(t, 15*time.Second, d.Permit.Timeout())
			require.True(t, d.Permit.Usable())
			permits = append(permits, d.Permit)
			continue
		}
		require.Nil(t, d.Permit)
		require.Equal(t, webhook.ReasonInFlight, d.Reason)
		require.Positive(t, d.Wait)
	}
	permits[1].Done(admission.Result{Latency: time.Millisecond, Number: 1, Delivered: true, Answered: true}) // b's
	require.Eventually(t, func() bool { return a.controller.Health(endpoint).Delivered == 1 }, 5*time.Second, 5*time.Millisecond)
	require.Zero(t, b.controller.Health(endpoint).Delivered)
	d := b.Acquire(t.Context(), request(endpoint, 4))
	require.NotNil(t, d.Permit)
	for _, p := range append(permits, d.Permit) {
		p.Cancel()
	}
	require.Eventually(t, func() bool { return a.controller.Totals().InFlight == 0 }, 5*time.Second, 5*time.Millisecond)
}

func TestLanesMoveWithWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	s := newTable()
	a, b := s.join(t, "a"), s.join(t, "b")
	settled(t, a, b)
	endpoint := endpointOf(t, s, a)
	own, other := a.Acquire(t.Context(), request(endpoint, 2)).Permit, b.Acquire(t.Context(), request(endpoint, 2)).Permit
	require.NotNil(t, own)
	require.NotNil(t, other)

	a.Leave(t.Context())
	require.Eventually(t, func() bool { _, is := b.owner(endpoint); return is }, 5*time.Second, 5*time.Millisecond)
	require.Equal(t, 2, b.controller.Health(endpoint).InFlight)
	require.Nil(t, b.Acquire(t.Context(), request(endpoint, 2)).Permit, "both are still under way")

	own.Done(admission.Result{Latency: time.Millisecond, Number: 1, Delivered: true, Answered: true})
	require.Eventually(t, func() bool { return b.controller.Health(endpoint).InFlight == 1 }, 5*time.Second, 5*time.Millisecond)
	require.Equal(t, 1, b.controller.Health(endpoint).Delivered)
	other.Cancel()
	require.Eventually(t, func() bool { return b.controller.Health(endpoint).InFlight == 0 }, 5*time.Second, 5*time.Millisecond)
	p := a.Acquire(t.Context(), request(endpoint, 2)).Permit // a still sends what it has
	require.NotNil(t, p)
	p.Cancel()
}

func TestPermitsOfAProcessThatEndedAreGivenBack(t *testing.T) {
	t.Parallel()
	s := newTable()
	a, b := s.join(t, "a"), s.join(t, "b")
	settled(t, a, b)
	endpoint := endpointOf(t, s, a)
	require.NotNil(t, b.Acquire(t.Context(), request(endpoint, 1)).Permit)
	require.Nil(t, a.Acquire(t.Context(), request(endpoint, 1)).Permit)
	s.cutOff("b") // it dies without a word
	b.Stop(t.Context())
	require.Eventually(t, func() bool { return a.controller.Health(endpoint).InFlight == 0 }, 5*time.Second, 5*time.Millisecond)
	settled(t, a)
}

// A process that does not reach the database admits nothing once its leases may have ended. The one that takes its lanes counts
// what that process has under way.
func TestLeasesEnd(t *testing.T) {
	t.Parallel()
	s := newTable()
	a, b := s.join(t, "a"), s.join(t, "b")
	settled(t, a, b)
	endpoint := endpointOf(t, s, a)
	permit := a.Acquire(t.Context(), request(endpoint, 1)).Permit
	require.NotNil(t, permit)
	s.cutOff("a")
	var admittedAt time.Time
	require.Eventually(t, func() bool {
		for _, f := range []*Fleet{a, b} {
			if p := f.TryAcquire(request(endpoint, 1)); p != nil {
				admittedAt = time.Now()
				p.Cancel()
			}
		}
		_, is := b.owner(endpoint)
		return is
	}, 15*time.Second, 5*time.Millisecond)
	require.Zero(t, admittedAt)
	require.Equal(t, 1, b.controller.Health(endpoint).InFlight)
	_, own := a.owner(endpoint)
	require.False(t, own)
	permit.Cancel()
	require.Eventually(t, func() bool { return b.controller.Health(endpoint).InFlight == 0 }, 5*time.Second, 5*time.Millisecond)
}

// A process that stands still may have requests under way for as long as their permits hold.
func TestMuteProcess(t *testing.T) {
	t.Parallel()
	s := newTable()
	a := s.join(t, "a")
	settled(t, a)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	s.mu.Lock()
	s.processes["mute"] = webhook.Process{ID: "mute", Address: listener.Addr().String()} // it accepts connections and does nothing
	for i := range s.lanes {
		s.lanes[i], s.expires[i] = webhook.Lane{Owner: "mute", Epoch: s.lanes[i].Epoch + 1}, time.Now()
	}
	s.mu.Unlock()
	require.Eventually(t, func() bool { // a has taken them back
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.lanes[0].epoch == 3 && a.lanes[webhook.Lanes-1].epoch == 3
	}, 5*time.Second, 5*time.Millisecond)
	short, long := request(webhook.NewEndpointID(), 1), request(webhook.NewEndpointID(), 1)
	short.Limits.Timeout, long.Limits.AutoTimeout = time.Second, true
	decide := func(r admission.Request) (d admission.Decision) {
		require.Eventually(t, func() bool {
			d = a.Acquire(t.Context(), r)
			return d.Reason != webhook.ReasonNoOwner
		}, 15*time.Second, 5*time.Millisecond)
		return d
	}
	d := decide(long)
	require.Equal(t, webhook.ReasonInFlight, d.Reason)
	require.InDelta(t, 36, d.Wait.Seconds(), 3)
	d = decide(short)
	require.Equal(t, webhook.ReasonInFlight, d.Reason)
	require.InDelta(t, 7, d.Wait.Seconds(), 3)

	require.NoError(t, listener.Close()) // it has ended
	require.Eventually(t, func() bool { return a.blockedFor(long.Endpoint, webhook.MaxTimeout) == 0 }, 15*time.Second, 5*time.Millisecond)
	d = decide(long)
	require.NotNil(t, d.Permit)
	d.Permit.Cancel()
}

// A circuit stays open when its lane moves.
func TestCircuitsMove(t *testing.T) {
	t.Parallel()
	s := newTable()
	a, b := s.join(t, "a"), s.join(t, "b")
	settled(t, a, b)
	r := request(endpointOf(t, s, a), 5)
	r.Limits.Breaker = webhook.CircuitBreaker{Enabled: true, MinRequests: 2, Cooldown: 5 * time.Minute}
	for range 2 {
		p := b.Acquire(t.Context(), r).Permit
		require.NotNil(t, p)
		p.Done(admission.Result{Latency: time.Millisecond, Number: 1, Reason: "http_503", Answered: true, BreakerFailure: true})
	}
	before, _ := b.Health(t.Context(), r.Endpoint)
	require.Equal(t, webhook.CircuitOpen, before.Circuit)
	require.Nil(t, b.Acquire(t.Context(), r).Permit)
	a.Leave(t.Context())
	require.Eventually(t, func() bool { _, is := b.owner(r.Endpoint); return is }, 5*time.Second, 5*time.Millisecond)
	after := b.controller.Health(r.Endpoint)
	require.Equal(t, webhook.CircuitOpen, after.Circuit)
	require.Equal(t, before.Why, after.Why)
	require.WithinDuration(t, before.NextProbe, after.NextProbe, 100*time.Millisecond)
	require.WithinDuration(t, before.Since, after.Since, 100*time.Millisecond)
	require.Equal(t, webhook.ReasonCircuitOpen, b.Acquire(t.Context(), r).Reason)
	require.Equal(t, webhook.ReasonCircuitOpen, a.Acquire(t.Context(), r).Reason)
}
