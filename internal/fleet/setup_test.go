package fleet

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
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
	seenLate  bool            // every process was seen too lately to be evicted

	forwarded func(to string, event webhook.Accepted) (refused []webhook.DeliveryID)
	stops     atomic.Bool // all processes stop
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
		if !p.Leaving && p.Address != "" && now.Sub(s.seen[id]) < tableLease {
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
		if free && !self.Leaving && self.Address != "" && mine < read.Share {
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

func (s *table) Register(ctx context.Context, self webhook.Process) (webhook.Fleet, error) {
	return s.Renew(ctx, self, nil)
}

func (s *table) Owners(context.Context) (all []webhook.Process, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.processes {
		if p.Address != "" && time.Since(s.seen[id]) < tableLease {
			all = append(all, p)
		}
	}
	return all, nil
}

func (s *table) Evict(ctx context.Context, id string) (bool, error) {
	s.mu.Lock()
	late := s.seenLate
	s.mu.Unlock()
	if late {
		return false, nil
	}
	return true, s.Leave(ctx, id)
}

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

func (s *table) setForwarded(forwarded func(to string, event webhook.Accepted) []webhook.DeliveryID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forwarded = forwarded
}

func (s *table) forward(to string, event webhook.Accepted) []webhook.DeliveryID {
	s.mu.Lock()
	forwarded := s.forwarded
	s.mu.Unlock()
	return forwarded(to, event)
}

// join starts a process.
func (s *table) join(t *testing.T, id string) *Fleet {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return s.joinAt(t, id, listener)
}

// joinAt starts a process at an address.
func (s *table) joinAt(t *testing.T, id string, listener net.Listener) *Fleet {
	t.Helper()
	controller := admission.New(admission.Config{})
	f, err := New(Config{
		Store: seenBy{s, id}, Controller: controller, ID: id, Listener: listener, Address: listener.Addr().String(),
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	NewServer(f, controller.Health, startsOf{s, id}).Start()
	require.NoError(t, f.Start(t.Context()))
	t.Cleanup(func() { f.Stop(context.WithoutCancel(t.Context())) })
	return f
}

// startsOf takes what is forwarded to a process.
type startsOf struct {
	*table

	id string
}

func (s startsOf) Forwarded(event webhook.Accepted) ([]webhook.DeliveryID, bool) {
	return s.forward(s.id, event), s.stops.Load()
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

// twoProcesses are two that have shared the lanes.
func twoProcesses(t *testing.T) (s *table, a, b *Fleet) {
	t.Helper()
	s = newTable()
	a, b = s.join(t, "a"), s.join(t, "b")
	settled(t, a, b)
	return s, a, b
}
