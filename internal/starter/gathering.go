package starter

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

// startAgainAfter is how long after a failed start a gathering is started again.
const startAgainAfter = time.Second

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
	taken    bool // it is being started, or was
}

// gatherings are the gatherings of a process.
type gatherings struct {
	width int
	ready chan struct{} // holds something when a gathering is to be started

	mu      sync.Mutex
	open    *gathering
	ending  []*gathering // complete, but some of their members are still being recorded
	due     []*gathering // to be started
	waiting int          // deliveries in all of them
	latest  time.Time    // when one was started, or joined, last
}

func newGatherings(width int) *gatherings {
	return &gatherings{width: width, ready: make(chan struct{}, 1)}
}

// join adds a delivery that is being recorded to the open gathering, or, if it is alone, to one of its
// own, which has the id of its own workflow.
func (g *gatherings) join(start *webhook.Start, now time.Time) *gathering {
	g.mu.Lock()
	defer g.mu.Unlock()
	alone := now.Sub(g.latest) >= gatherTime
	g.latest = now
	g.waiting++
	if g.open == nil && (alone || g.width == 1) {
		own := &gathering{id: start.WorkflowID(), joined: 1}
		g.complete(own)
		return own
	}
	if g.open == nil {
		opened := &gathering{id: workflows.GatheringID(start.EventID, rand.Text())}
		g.open = opened
		time.AfterFunc(gatherTime, func() { g.close(opened) })
	}
	in := g.open
	in.joined++
	if in.joined == g.width {
		g.complete(in)
	}
	return in
}

// ended says that the attempt of a delivery which has joined is recorded, or will not be.
func (g *gatherings) ended(in *gathering, start webhook.Start) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if in.taken {
		return // at a stop, without it
	}
	in.members = append(in.members, start)
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
	g.ending = append(g.ending, in)
	g.startIfComplete(in)
}

// startIfComplete has a gathering started that is complete and whose members are all recorded. The
// caller holds the lock.
func (g *gatherings) startIfComplete(in *gathering) {
	if !in.complete || len(in.members) < in.joined {
		return
	}
	g.ending = slices.DeleteFunc(g.ending, func(other *gathering) bool { return other == in })
	g.due = append(g.due, in)
	g.wake()
}

// wake says that something is to be started.
func (g *gatherings) wake() {
	select {
	case g.ready <- struct{}{}:
	default: // it is known
	}
}

// take takes what is to be started; with all set also what is still gathering, as far as it is recorded.
func (g *gatherings) take(all bool) []*gathering {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all && g.open != nil {
		g.complete(g.open)
	}
	due := g.due
	g.due = nil
	if all {
		due = append(due, slices.DeleteFunc(g.ending, func(in *gathering) bool { return len(in.members) == 0 })...)
		g.ending = nil
	}
	for _, one := range due {
		one.taken = true
		g.waiting -= one.joined
	}
	return due
}

// putBack has a gathering started again a while later.
func (g *gatherings) putBack(one *gathering) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due = append(g.due, one)
	g.waiting += one.joined
	time.AfterFunc(startAgainAfter, g.wake)
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

// startGathered starts the workflows of what has gathered, at the end all. One that cannot be started
// is started later under the same id, when Temporal can be written to: it is the only one that its
// deliveries have.
func (d *Starter) startGathered(atEnd bool) {
	if d.away.Load() && !atEnd {
		return // setBack wakes
	}
	for _, one := range d.gatherings.take(atEnd) {
		started := false
		d.carry(func(ctx context.Context) error {
			err := d.startGathering(ctx, one)
			started = err == nil
			return err
		})
		if !started && !atEnd {
			d.gatherings.putBack(one)
		}
	}
}

func (d *Starter) startGathering(ctx context.Context, one *gathering) error {
	if workflows.IsFanout(one.id) {
		return d.startFanout(ctx, one.id, one.members)
	}
	return d.begin(ctx, one.members[0])
}

// eagerStart starts the workflow of a delivery whose first request was sent eagerly.
type eagerStart struct {
	d     *Starter
	start webhook.Start
	in    *gathering // that it has joined; nil: none is started for what was delivered
}

var _ activities.EagerStart = (*eagerStart)(nil)

// Delivered implements activities.EagerStart.
func (s *eagerStart) Delivered() (workflowID string, starts bool) {
	if s.d.stopping() || s.d.away.Load() {
		return s.start.WorkflowID(), false
	}
	s.in = s.d.gatherings.join(&s.start, time.Now())
	return s.in.id, true
}

// Ended implements activities.EagerStart.
func (s *eagerStart) Ended() {
	if s.in != nil {
		s.d.gatherings.ended(s.in, s.start)
	}
}

// Undelivered implements activities.EagerStart.
func (s *eagerStart) Undelivered(recorded bool) (starts bool) {
	own := s.start
	own.OwnWorkflow, own.Recorded, own.ReceivedAt = true, recorded, time.Now()
	return !s.d.away.Load() && !s.d.stopping() && s.d.enqueue(&own)
}
