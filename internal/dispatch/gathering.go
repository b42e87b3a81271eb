package dispatch

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// gatherTime is how long delivered deliveries are gathered for one workflow, and how long after a start
// the next one is not alone.
const gatherTime = 500 * time.Millisecond

// A delivery whose eager request was delivered has nothing left to be done: its workflow is only for
// people to look at. So these workflows are not urgent. One is started for all deliveries that were
// delivered within gatherTime, up to the width; one that is alone gets its own at once. What is lost
// with the process is in the store.

// gathering is a workflow that is still to be started, with the deliveries that it will have.
type gathering struct {
	id       string
	members  []webhook.Start
	joined   int  // members and those that are being recorded
	complete bool // no more join
}

// gatherings are the gatherings of a process.
type gatherings struct {
	width int
	ready chan struct{} // holds something when a gathering is to be started

	mu      sync.Mutex
	open    *gathering
	due     []*gathering // to be started
	waiting int          // deliveries in all of them
	latest  time.Time    // when one was started, or joined, last
}

func newGatherings(width int) *gatherings {
	return &gatherings{width: width, ready: make(chan struct{}, 1)}
}

// join adds a delivery that is being recorded to the open gathering; nil for one that is alone.
func (g *gatherings) join(first webhook.EventID, now time.Time) *gathering {
	g.mu.Lock()
	defer g.mu.Unlock()
	alone := now.Sub(g.latest) >= gatherTime
	g.latest = now
	if g.open == nil && (alone || g.width == 1) {
		return nil
	}
	if g.open == nil {
		opened := &gathering{id: workflows.GatheringID(first, rand.Text())}
		g.open = opened
		time.AfterFunc(gatherTime, func() { g.close(opened) })
	}
	in := g.open
	in.joined++
	g.waiting++
	if in.joined == g.width {
		g.complete(in)
	}
	return in
}

// recorded says that a delivery which has joined is recorded.
func (g *gatherings) recorded(in *gathering, start webhook.Start) {
	g.mu.Lock()
	defer g.mu.Unlock()
	in.members = append(in.members, start)
	g.startIfComplete(in)
}

// leave says that a delivery which has joined goes on elsewhere.
func (g *gatherings) leave(in *gathering) {
	g.mu.Lock()
	defer g.mu.Unlock()
	in.joined--
	g.waiting--
	g.startIfComplete(in)
}

// close ends a gathering's time.
func (g *gatherings) close(in *gathering) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !in.complete {
		g.complete(in)
	}
}

// complete lets no more join. The caller holds the lock.
func (g *gatherings) complete(in *gathering) {
	in.complete = true
	if g.open == in {
		g.open = nil
	}
	g.startIfComplete(in)
}

// startIfComplete has a gathering started that is complete and whose members are all recorded. The
// caller holds the lock.
func (g *gatherings) startIfComplete(in *gathering) {
	if !in.complete || len(in.members) < in.joined || in.joined == 0 || slices.Contains(g.due, in) {
		return
	}
	g.due = append(g.due, in)
	select {
	case g.ready <- struct{}{}:
	default: // it is known
	}
}

// take takes what is to be started, and with all set also what is still gathering.
func (g *gatherings) take(all bool) []*gathering {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all && g.open != nil {
		g.complete(g.open)
	}
	due := g.due
	g.due = nil
	for _, one := range due {
		g.waiting -= one.joined
	}
	return due
}

// len is how many deliveries wait for a workflow that they share.
func (g *gatherings) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// started notes that a workflow is being started: what comes within gatherTime is not alone.
func (g *gatherings) started(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latest = now
}

// startGathered starts the workflows of what has gathered.
func (d *Dispatcher) startGathered(all bool) {
	for _, one := range d.gatherings.take(all) {
		d.carry(func(ctx context.Context) error { return d.startFanout(ctx, one.id, one.members) })
	}
}

// eagerStart starts the workflow of a delivery whose first request was sent eagerly.
type eagerStart struct {
	d     *Dispatcher
	start webhook.Start
	in    *gathering // that it has joined; nil: its own
}

var _ activities.EagerStart = (*eagerStart)(nil)

// Delivered implements activities.EagerStart.
func (s *eagerStart) Delivered() (workflowID string, starts bool) {
	if s.d.stopping() || s.d.away.Load() {
		return s.start.WorkflowID(), false
	}
	if s.in = s.d.gatherings.join(s.start.EventID, time.Now()); s.in == nil {
		return s.start.WorkflowID(), true
	}
	return s.in.id, true
}

// Recorded implements activities.EagerStart.
func (s *eagerStart) Recorded() {
	if s.in != nil {
		s.d.gatherings.recorded(s.in, s.start)
		return
	}
	s.startOwn(false) // delivered: the store has deleted the outbox row
}

// Undelivered implements activities.EagerStart.
func (s *eagerStart) Undelivered(recorded bool) {
	if s.in != nil {
		s.d.gatherings.leave(s.in)
	}
	s.startOwn(recorded)
}

// startOwn has the delivery's own workflow started. What is not started is left to the relay.
func (s *eagerStart) startOwn(recorded bool) {
	own := s.start
	own.Own, own.Recorded, own.Begun = true, recorded, time.Now()
	if !s.d.away.Load() && !s.d.stopping() {
		s.d.enqueue(&own)
	}
}
