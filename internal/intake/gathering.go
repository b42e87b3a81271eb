package intake

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	// gatherTime is how long deliveries are gathered for one workflow, and how long after a start the
	// next delivery is not alone.
	gatherTime = 500 * time.Millisecond
	// startAgainAfter is how long after a failed start a gathering is started again. The pause doubles
	// up to longestStartPause, because Temporal may refuse the start permanently.
	startAgainAfter   = time.Second
	longestStartPause = 5 * time.Minute
	// maxGathered bounds the deliveries in gatherings, in multiples of maxPerWorkflow.
	maxGathered = 4
)

// gathering is a shared workflow that is still to be started, for deliveries that eager requests have
// delivered. Their workflow only serves display, so that its start can wait: one workflow is started for
// all that were delivered within gatherTime, up to maxPerWorkflow. A delivery that is alone gets its own
// at once. What a process loses when it dies is in the store.
type gathering struct {
	id       string
	members  []webhook.Start // whose attempts are recorded
	joined   int             // members, and deliveries whose attempts are being recorded
	complete bool            // no more can join
	taken    bool            // its start has begun
	pause    time.Duration   // after the last failed start
	again    time.Time       // the end of that pause
}

// gatherings are the gatherings of a process.
type gatherings struct {
	maxPerWorkflow int
	ready          chan struct{} // receives a value when a gathering is to be started

	mu        sync.Mutex
	open      *gathering
	recording []*gathering // complete, but not all members are recorded
	due       []*gathering // to be started
	waiting   int          // deliveries in all of them
	latest    time.Time    // of the last start, or of the last delivery that joined
}

func newGatherings(maxPerWorkflow int) *gatherings {
	return &gatherings{maxPerWorkflow: maxPerWorkflow, ready: make(chan struct{}, 1)}
}

// join adds a delivery, whose attempt is about to be recorded, to the open gathering. If the delivery
// is alone, it gets a gathering of its own, which has the id of its own workflow.
func (g *gatherings) join(start *webhook.Start, now time.Time) *gathering {
	g.mu.Lock()
	defer g.mu.Unlock()
	alone := now.Sub(g.latest) >= gatherTime
	g.latest = now
	g.waiting++
	if g.open == nil && (alone || g.maxPerWorkflow == 1) {
		own := &gathering{id: start.WorkflowID(), joined: 1}
		g.complete(own)
		return own
	}
	if g.open == nil {
		opened := &gathering{id: workflows.GatheringID(start.EventID, rand.Text())}
		g.open = opened
		time.AfterFunc(gatherTime, func() { g.closeAfterTime(opened) })
	}
	joined := g.open
	joined.joined++
	if joined.joined == g.maxPerWorkflow {
		g.complete(joined)
	}
	return joined
}

// recorded makes a delivery that has joined a member: its attempt is recorded, or is left to the
// workflow to be recorded.
func (g *gatherings) recorded(in *gathering, start webhook.Start) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if in.taken {
		return // Stop has started it without this delivery
	}
	in.members = append(in.members, start)
	g.startIfRecorded(in)
}

func (g *gatherings) closeAfterTime(one *gathering) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !one.complete {
		g.complete(one)
	}
}

// complete closes a gathering. The caller holds the lock.
func (g *gatherings) complete(one *gathering) {
	one.complete = true
	if g.open == one {
		g.open = nil
	}
	g.recording = append(g.recording, one)
	g.startIfRecorded(one)
}

// startIfRecorded makes a gathering due if it is complete and all its members are recorded. The caller
// holds the lock.
func (g *gatherings) startIfRecorded(one *gathering) {
	if !one.complete || len(one.members) < one.joined {
		return
	}
	g.recording = slices.DeleteFunc(g.recording, func(other *gathering) bool { return other == one })
	g.due = append(g.due, one)
	g.wake()
}

func (g *gatherings) wake() {
	select {
	case g.ready <- struct{}{}:
	default: // a value is pending
	}
}

// take takes the due gatherings whose pause has ended; with all set, every due one, and also those that are
// not complete, with the members that are recorded.
func (g *gatherings) take(all bool, now time.Time) []*gathering {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all && g.open != nil {
		g.complete(g.open)
	}
	pauses := func(one *gathering) bool { return !all && one.again.After(now) }
	due := slices.DeleteFunc(slices.Clone(g.due), pauses)
	g.due = slices.DeleteFunc(g.due, func(one *gathering) bool { return !pauses(one) })
	if all {
		due = append(due, slices.DeleteFunc(g.recording, func(one *gathering) bool { return len(one.members) == 0 })...)
		g.recording = nil
	}
	for _, one := range due {
		one.taken = true
		g.waiting -= one.joined
	}
	return due
}

// retry makes a gathering due again after a while.
func (g *gatherings) retry(one *gathering, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one.pause = min(max(2*one.pause, startAgainAfter), longestStartPause)
	one.again = now.Add(one.pause)
	g.due = append(g.due, one)
	g.waiting += one.joined
	time.AfterFunc(one.pause, g.wake)
}

// hasRoom reports that starts keep up with what is gathered.
func (g *gatherings) hasRoom() bool { return g.len() < maxGathered*g.maxPerWorkflow }

// len returns the number of deliveries in gatherings.
func (g *gatherings) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// started notes a start: a delivery that joins within gatherTime is not alone.
func (g *gatherings) started(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latest = now
}
