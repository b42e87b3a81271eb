package activities

import (
	"sync"
	"time"
)

// poolIdle is how long a goroutine of the pool waits for its next function.
const poolIdle = 100 * time.Millisecond

// goroutinePool keeps goroutines for a while. An attempt needs more stack than a goroutine has at
// first, and growing it for each attempt costs CPU (docs/adr/0024).
type goroutinePool struct {
	next    chan func()
	over    <-chan struct{}
	members sync.WaitGroup
}

// newGoroutinePool keeps goroutines until over is closed.
func newGoroutinePool(over <-chan struct{}) *goroutinePool {
	return &goroutinePool{next: make(chan func()), over: over}
}

// run runs fn in an idle goroutine, or in a new one if none is idle. It must not be called beside
// a Wait for the members.
func (p *goroutinePool) run(fn func()) {
	select {
	case p.next <- fn:
	default:
		p.members.Go(func() { p.serve(fn) })
	}
}

func (p *goroutinePool) serve(fn func()) {
	idle := time.NewTimer(poolIdle)
	defer idle.Stop()
	for {
		fn()
		idle.Reset(poolIdle)
		select {
		case fn = <-p.next:
		case <-idle.C:
			return
		case <-p.over:
			return
		}
	}
}
