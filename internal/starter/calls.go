package starter

import (
	"context"
	"sync"
	"time"
)

const (
	// startTimeout bounds one call to Temporal, with the client's own retries.
	startTimeout = 5 * time.Second
	// readTimeout bounds one access to PostgreSQL.
	readTimeout = 10 * time.Second
	// maxAsync bounds the asynchronous calls under way.
	maxAsync = 16
)

// call makes one call to Temporal and classifies its result.
func (d *Starter) call(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(d.life, startTimeout)
	defer cancel()
	late := time.AfterFunc(suspectAfter, d.suspect)
	err := f(ctx)
	late.Stop()
	if d.life.Err() == nil { // else Stop has cancelled it
		d.classifyResult(err)
	}
}

// tryCall makes a call unless Temporal is not available or Stop has cancelled all calls.
func (d *Starter) tryCall(f func(context.Context) error) {
	if !d.temporalDown.Load() && d.life.Err() == nil {
		d.call(f)
	}
}

// callAsync makes a call in the background. It makes none after Stop, or when too many are under way:
// the relay makes up for it.
func (d *Starter) callAsync(f func(context.Context) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping() {
		return
	}
	select {
	case d.async <- struct{}{}:
	default:
		return
	}
	d.workers.Go(func() {
		defer func() { <-d.async }()
		d.call(f)
	})
}

// readBatch reads a batch from PostgreSQL and logs an error. It reads nothing after Stop: what the
// store hands out it does not hand out again for a while.
func readBatch[T any](d *Starter, read func(context.Context, int) ([]T, error)) ([]T, error) {
	if d.stopping() {
		return nil, context.Canceled
	}
	ctx, cancel := context.WithTimeout(d.life, readTimeout)
	defer cancel()
	batch, err := read(ctx, relayBatch)
	if err != nil && !d.stopping() {
		d.log.Warn("a batch cannot be read from PostgreSQL", "error", err)
	}
	return batch, err
}

// waitFor waits for a value of ready, and then for the given time. It returns false when the starter
// stops.
func (d *Starter) waitFor(ready <-chan struct{}, wait time.Duration) bool {
	select {
	case <-d.stopped:
		return false
	case <-ready:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-d.stopped:
		return false
	case <-timer.C:
		return true
	}
}

// forEach calls f for all items, at most n at a time, and returns when all calls have returned. It
// calls f for a single item on its own goroutine: a start needs a stack of 64 KB, and to grow a new
// one takes a third of the time of a start.
func forEach[T any](n int, items []T, f func(T)) {
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
