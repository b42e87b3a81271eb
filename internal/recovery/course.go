package recovery

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxCourses bounds the releases whose course is kept in memory, and courseMemory is how long one is kept that has no turn. A course that is
	// forgotten begins anew.
	maxCourses   = 20_000
	courseMemory = 2 * time.Minute
)

// courses are the courses of the releases that this process makes the turns of.
type courses struct {
	mu   sync.Mutex
	byID map[webhook.EndpointID]*course
}

// course is what this process knows of a release from its turns. Only one turn of a release is made at a time.
type course struct {
	begun      time.Time // the release's; another one has another course
	seen       time.Time
	released   int // since releasedAt; admission may not count them yet
	releasedAt time.Time
	pause      time.Duration // before the next look, after one that released nothing
	failures   int           // turns that failed, since the last one that did not
	turnAt     time.Time     // of the last one, by the database's clock
	probing    int           // how many a turn releases after an internal fault; 0: there is none
	probePause time.Duration // after a turn that releases one as a probe
	judged     bool          // the fault that was met after the last turn has been seen
}

// of returns the course of a release.
func (all *courses) of(d *webhook.DueRelease, now time.Time) *course {
	all.mu.Lock()
	defer all.mu.Unlock()
	c := all.byID[d.EndpointID]
	if c == nil || !c.begun.Equal(d.StartedAt) {
		if all.byID == nil {
			all.byID = map[webhook.EndpointID]*course{}
		}
		if len(all.byID) >= maxCourses {
			all.forget(now)
		}
		c = &course{begun: d.StartedAt}
		all.byID[d.EndpointID] = c
	}
	c.seen = now
	return c
}

// failures is how many turns of a release have failed one after the other.
func (all *courses) failures(id webhook.EndpointID) int {
	all.mu.Lock()
	defer all.mu.Unlock()
	if c := all.byID[id]; c != nil {
		return c.failures
	}
	return 0
}

// forget forgets courses without a turn for a while, or any if that does not help. The caller holds the lock.
func (all *courses) forget(now time.Time) {
	for id, c := range all.byID {
		if now.Sub(c.seen) >= courseMemory {
			delete(all.byID, id)
		}
	}
	for id := range all.byID {
		if len(all.byID) < maxCourses {
			return
		}
		delete(all.byID, id)
	}
}

// limit is how many a turn may release because of internal faults: one as a probe after a fault, and then twice as many each time, if the fault
// was not met again.
func (c *course) limit(d *webhook.DueRelease) int {
	if d.FaultedAt.After(c.turnAt) && !c.judged {
		again := c.probing > 0
		c.probing, c.judged = 1, true
		c.probePause = max(firstPause, c.probePause)
		if again {
			c.probePause = min(2*c.probePause, lastPause)
		}
	}
	if c.probing == 0 {
		return releaseBatch
	}
	return c.probing
}

// underWay is how many were released a moment ago.
func (c *course) underWay(now time.Time) int {
	if now.Sub(c.releasedAt) >= releaseDelay {
		return 0
	}
	return c.released
}

// waits returns how long a release is put off that cannot have its turn now, at most the given time.
func (c *course) waits(most time.Duration) time.Duration {
	c.pause = min(max(2*c.pause, firstPause), most)
	return c.pause
}

// fails notes a turn that failed, and returns how long the release is put off.
func (c *course) fails() time.Duration {
	c.failures++
	return c.waits(lastPause)
}

// made notes a turn that has released so many.
func (c *course) made(d *webhook.DueRelease, n int, now time.Time) {
	c.turnAt, c.failures = d.Now, 0
	if n > 0 && now.Sub(c.releasedAt) >= releaseDelay {
		c.released, c.releasedAt = 0, now
	}
	c.released += n
	if n == 0 {
		c.waits(lastPause)
		return
	}
	c.pause, c.judged = 0, false
	switch {
	case c.probing >= releaseBatch:
		c.probing, c.probePause = 0, 0
	case c.probing > 0:
		c.probing *= 2
	}
}

// turnPause is the time until the next turn, at least, if this one releases something.
func (c *course) turnPause() time.Duration {
	if c.probing == 1 {
		return c.probePause
	}
	return 0
}
