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
	// leaveTimeout bounds the access to PostgreSQL of a process that stops.
	leaveTimeout = time.Second
	// maxAsync bounds the asynchronous calls under way.
	maxAsync = 16
)

// call makes one call to Temporal and classifies its result.
func (s *Starter) call(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(s.life, startTimeout)
	defer cancel()
	late := time.AfterFunc(suspectAfter, s.suspect)
	err := f(ctx)
	late.Stop()
	if s.life.Err() == nil { // else Stop has cancelled it
		s.classifyResult(err)
	}
}

// tryCall makes a call unless Temporal is not available or Stop has cancelled all calls.
func (s *Starter) tryCall(f func(context.Context) error) {
	if !s.temporalDown.Load() && s.life.Err() == nil {
		s.call(f)
	}
}

// callAsync makes a call in the background. It makes none after Stop, or when too many are under way:
// the relay makes up for it.
func (s *Starter) callAsync(f func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping() {
		return
	}
	select {
	case s.async <- struct{}{}:
	default:
		return
	}
	s.workers.Go(func() {
		defer func() { <-s.async }()
		s.call(f)
	})
}

// readBatch reads a batch from PostgreSQL and logs an error. It reads nothing after Stop: what the
// store hands out it does not hand out again for a while.
func readBatch[T any](s *Starter, read func(context.Context, int) ([]T, error)) ([]T, error) {
	if s.stopping() {
		return nil, context.Canceled
	}
	ctx, cancel := context.WithTimeout(s.life, readTimeout)
	defer cancel()
	batch, err := read(ctx, relayBatch)
	if err != nil && !s.stopping() {
		s.log.Warn("a batch cannot be read from PostgreSQL", "error", err)
	}
	return batch, err
}

// waitFor waits for a value of ready, and then for the given time. It returns false when the starter
// stops.
func (s *Starter) waitFor(ready <-chan struct{}, wait time.Duration) bool {
	select {
	case <-s.stopped:
		return false
	case <-ready:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-s.stopped:
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
