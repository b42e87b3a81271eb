package activities

import "time"

// crewRest is how long a goroutine waits for something more to do.
const crewRest = time.Second

// crew are goroutines that are kept for what is next. An attempt needs four times the stack that a
// goroutine has at first; to grow it for each was a twentieth of all CPU under load.
type crew struct {
	next chan func()
	over <-chan struct{}
}

// newCrew keeps goroutines until over is closed.
func newCrew(over <-chan struct{}) crew { return crew{make(chan func()), over} }

// run runs fn in a goroutine of its own, which may have run others.
func (c crew) run(fn func()) {
	select {
	case c.next <- fn:
	default:
		go c.serve(fn)
	}
}

func (c crew) serve(fn func()) {
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
