package engine

import (
	"context"
	"sync"
	"time"
)

const (
	// startTimeout bounds one call to Temporal, with the client's own retries.
	startTimeout = 5 * time.Second
	// maxAsync bounds the asynchronous calls under way.
	maxAsync = 16
)

// Calls makes bounded calls to Temporal. None has to succeed: what a call would have done is in the store, from which it is repeated.
type Calls struct {
	lifetime *Lifetime
	health   *Health
	async    chan struct{} // a token for each asynchronous call
}

func newCalls(lifetime *Lifetime, health *Health) *Calls {
	return &Calls{lifetime: lifetime, health: health, async: make(chan struct{}, maxAsync)}
}

// call makes one call of 5 s at most, and classifies its result.
func (c *Calls) call(f func(context.Context) error) {
	life := c.lifetime.Calls()
	ctx, cancel := context.WithTimeout(life, startTimeout)
	defer cancel()
	late := time.AfterFunc(suspectAfter, c.health.suspect)
	err := f(ctx)
	late.Stop()
	if life.Err() == nil { // else Stop has cancelled it
		c.health.classify(err)
	}
}

// Try makes a call unless Temporal is not available or Stop has cancelled all calls. An error that says more than that Temporal did not
// answer is logged.
func (c *Calls) Try(f func(context.Context) error) {
	if c.health.Up() && c.lifetime.Calls().Err() == nil {
		c.call(f)
	}
}

// Async makes a call in the background. It makes none after Stop, or when too many are under way: the relay makes up for it.
func (c *Calls) Async(f func(context.Context) error) {
	select {
	case c.async <- struct{}{}:
	default:
		return
	}
	done := func() { <-c.async }
	begun := c.lifetime.Go(func() {
		defer done()
		c.call(f)
	})
	if !begun {
		done()
	}
}

// ForEach calls f for all items, at most n at a time, and returns when all calls have returned. It
// calls f for a single item on its own goroutine: a start needs a stack of 64 KB, and to grow a new
// one takes a third of the time of a start.
func ForEach[T any](n int, items []T, f func(T)) {
	if len(items) == 1 {
		f(items[0])
		return
	}
	var (
		all    sync.WaitGroup
		tokens = make(chan struct{}, n)
	)
	for _, item := range items {
		tokens <- struct{}{}
		all.Go(func() {
			defer func() { <-tokens }()
			f(item)
		})
	}
	all.Wait()
}
