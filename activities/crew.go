package activities

import (
	"sync"
	"time"
)

// crewRest is how long a goroutine waits for something more to do.
const crewRest = 100 * time.Millisecond

// crew are goroutines that are kept for what is next. An attempt needs more stack than a goroutine
// has at first, and to grow it for each takes a twentieth of the CPU under load (docs/performance.md).
type crew struct {
	next    chan func()
	over    <-chan struct{}
	members sync.WaitGroup
}

// newCrew keeps goroutines until over is closed.
func newCrew(over <-chan struct{}) *crew { return &crew{next: make(chan func()), over: over} }

// run runs fn in a goroutine of its own, which may have run others. It must not be called
// beside a Wait for the members.
func (c *crew) run(fn func()) {
	select {
	case c.next <- fn:
	default:
		c.members.Go(func() { c.serve(fn) })
	}
}

func (c *crew) serve(fn func()) {
	rest := time.NewTimer(crewRest)
	defer rest.Stop()
	for {
		fn()
		rest.Reset(crewRest)
		select {
		case fn = <-c.next:
		case <-rest.C:
			return
		case <-c.over:
			return
		}
	}
}
