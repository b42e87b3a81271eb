// Package pool runs functions on goroutines that stay for the next function. A new goroutine has a small stack. To grow it takes some 9 µs for
// 24 KiB, as an attempt needs them (BenchmarkDeepFunctions), and a third of the time of a start.
package pool

import (
	"sync"
	"sync/atomic"
)

// Pool runs functions. It is safe for concurrent use.
type Pool struct {
	stay   int64 // goroutines, at most, that wait for a function
	idle   atomic.Int64
	next   chan func()
	closed chan struct{}
	once   sync.Once
	all    sync.WaitGroup
}

// New returns a pool of which up to stay goroutines wait for the next function. The caller closes it.
func New(stay int) *Pool {
	return &Pool{stay: int64(stay), next: make(chan func()), closed: make(chan struct{})}
}

// Go runs a function on a goroutine that waits, or on a new one. It does not block. It must not be called during or after Close, but by
// a function that the pool runs.
func (p *Pool) Go(f func()) {
	select {
	case p.next <- f:
	default:
		p.all.Go(func() { p.run(f) })
	}
}

func (p *Pool) run(f func()) {
	for {
		f()
		if p.idle.Add(1) > p.stay {
			p.idle.Add(-1)
			return
		}
		select {
		case f = <-p.next:
			p.idle.Add(-1)
		case <-p.closed:
			return
		}
	}
}

// Close waits until all functions have returned, and ends the goroutines. It may be called again.
func (p *Pool) Close() {
	p.once.Do(func() { close(p.closed) })
	p.all.Wait()
}
