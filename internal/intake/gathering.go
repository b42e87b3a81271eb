package intake

import (
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// gatherTick is how long deliveries are gathered for one workflow, and how long after a start the
	// next delivery is not alone.
	gatherTick = 500 * time.Millisecond
	// gatherPatience is how long after its tick a gathering waits for members that are still being recorded.
	gatherPatience = time.Second
	// startAgainAfter is how long after a failed start a gathering is started again. The pause doubles
	// up to longestStartPause, because Temporal may refuse the start permanently.
	startAgainAfter   = time.Second
	longestStartPause = 5 * time.Minute
	// maxGathered bounds the deliveries in gatherings, in multiples of maxPerWorkflow.
	maxGathered = 4
)

// gathering is a workflow that is still to be started, for deliveries that eager requests have delivered. Their workflow
// only serves display, so that its start can wait: one workflow is started for all whose recording began within a tick, up
// to maxPerWorkflow. A delivery that is alone gets its own at once. What a process loses when it dies is in the store.
//
// Its members are fixed when its start begins. One that returns later gets its own workflow.
type gathering struct {
	id      string
	shared  bool            // with others of its tick; otherwise id is that of the only delivery's own workflow
	members []webhook.Start // whose attempts are recorded
	joined  int             // members, and deliveries whose attempts are being recorded
	full    bool            // no more can join
	begun   bool            // its start has begun
	ends    time.Time       // when its tick is over
	pause   time.Duration   // after the last failed start
	again   time.Time       // the end of that pause
}

// due is when the gathering is to be started, if nothing else happens before.
func (g *gathering) due() time.Time {
	switch {
	case g.begun:
		return g.again
	case len(g.members) < g.joined:
		return g.ends.Add(gatherPatience)
	case g.full:
		return time.Time{}
	default:
		return g.ends
	}
}

// gatherings are the gatherings of a process. The id of a shared one is fanout/<boot>/<tick>/<part>: boot is random, tick counts the
// time since the process began, and part the gatherings of a tick. next and take look at all of them: hasRoom bounds them by
// maxGathered × maxPerWorkflow, some 400.
type gatherings struct {
	maxPerWorkflow int
	boot           string
	since          time.Time
	changed        chan struct{} // receives a value when the next due time may be earlier

	mu      sync.Mutex
	all     []*gathering
	current *gathering // the last part; nil at first
	tick    int64      // of the last part
	parts   int        // of that tick
	waiting int        // deliveries in all of them
	latest  time.Time  // of the last start, or of the last delivery that joined
}

func newGatherings(maxPerWorkflow int) *gatherings {
	return &gatherings{maxPerWorkflow: maxPerWorkflow, boot: rand.Text(), since: time.Now(), changed: make(chan struct{}, 1)}
}

// join adds a delivery, whose attempt is about to be recorded, to the open gathering of the tick. If the delivery
// is alone, it gets a gathering of its own, which has the id of its own workflow.
func (g *gatherings) join(start *webhook.Start, now time.Time) *gathering {
	g.mu.Lock()
	defer g.mu.Unlock()
	alone := now.Sub(g.latest) >= gatherTick
	g.latest = now
	g.waiting++
	if alone || g.maxPerWorkflow == 1 {
		return g.open(&gathering{id: start.WorkflowID(), joined: 1, full: true, ends: now})
	}
	if g.current == nil || g.current.full || g.current.begun || !now.Before(g.current.ends) {
		g.current = g.open(g.part(now))
	}
	joined := g.current
	joined.joined++
	joined.full = joined.joined == g.maxPerWorkflow
	return joined
}

// part returns a gathering for the next part of a tick. The caller holds the lock.
func (g *gatherings) part(now time.Time) *gathering {
	if tick := int64(now.Sub(g.since) / gatherTick); tick > g.tick { // now may be before that of another call
		g.tick, g.parts = tick, 0
	}
	g.parts++
	return &gathering{
		id:     fmt.Sprintf("%s%s/%d/%d", webhook.SharedWorkflowPrefix, g.boot, g.tick, g.parts),
		shared: true, ends: g.since.Add(time.Duration(g.tick+1) * gatherTick),
	}
}

// open adds a gathering. The caller holds the lock.
func (g *gatherings) open(one *gathering) *gathering {
	g.all = append(g.all, one)
	g.wake()
	return one
}

// recorded makes a delivery that has joined a member: its attempt is recorded, or is left to the
// workflow to be recorded. False: the start has begun without it.
func (g *gatherings) recorded(in *gathering, start webhook.Start) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if in.begun {
		return false
	}
	in.members = append(in.members, start)
	if len(in.members) == in.joined {
		g.wake()
	}
	return true
}

func (g *gatherings) wake() {
	select {
	case g.changed <- struct{}{}:
	default: // a value is pending
	}
}

// next is how long after now the next gathering is due. False: there is none.
func (g *gatherings) next(now time.Time) (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.all) == 0 {
		return 0, false
	}
	first := slices.MinFunc(g.all, func(a, b *gathering) int { return a.due().Compare(b.due()) })
	return max(first.due().Sub(now), 0), true
}

// take takes the due gatherings, or with all set every one. It drops those without a member: what they wait for gets its own workflow.
func (g *gatherings) take(all bool, now time.Time) (due []*gathering) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = slices.DeleteFunc(g.all, func(one *gathering) bool {
		if !all && one.due().After(now) {
			return false
		}
		if !one.begun {
			one.begun = true
			g.waiting -= one.joined - len(one.members) // a late one is not in it
		}
		g.waiting -= len(one.members)
		if len(one.members) > 0 {
			due = append(due, one)
		}
		return true
	})
	return due
}

// retry makes a gathering due again after a while.
func (g *gatherings) retry(one *gathering, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one.pause = min(max(2*one.pause, startAgainAfter), longestStartPause)
	one.again = now.Add(one.pause)
	g.waiting += len(one.members)
	g.open(one)
}

// hasRoom reports that starts keep up with what is gathered.
func (g *gatherings) hasRoom() bool { return g.len() < maxGathered*g.maxPerWorkflow }

// len returns the number of deliveries in gatherings.
func (g *gatherings) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// started notes a start: a delivery that joins within gatherTick is not alone.
func (g *gatherings) started(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latest = now
}
