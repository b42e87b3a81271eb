package receivertest

import (
	"context"
	"fmt"
	"slices"
)

// Script adds answers for a webhook id or a URL path, one per request; the script of
// the id goes before that of the path. When both are used up, or there is none, the
// answer is Default's.
func (r *Receiver) Script(key string, steps ...Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts[key] = append(r.scripts[key], steps...)
}

// Default sets the answer to what no script speaks of. At first it is an empty 200.
func (r *Receiver) Default(step Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fallback = step
}

// Hold keeps requests that arrive from now on waiting for their answers until
// Release. They are recorded meanwhile.
func (r *Receiver) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = true
}

// Release answers all held requests, and later ones at once.
func (r *Receiver) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = false
	r.changed.Broadcast()
}

// Requests returns the recorded requests, oldest first.
func (r *Receiver) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Count returns how many requests have arrived since the start, forgotten ones included.
func (r *Receiver) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Most returns how many requests there were at a time at most, answered or not.
func (r *Receiver) Most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

// WaitFor waits until n requests have arrived and returns what is recorded. The
// error is the context's, with how many there were.
func (r *Receiver) WaitFor(ctx context.Context, n int) ([]Request, error) {
	return r.wait(ctx, fmt.Sprintf("%d requests", n), func() bool { return r.count >= n })
}

// WaitHeld waits until n requests are held.
func (r *Receiver) WaitHeld(ctx context.Context, n int) error {
	_, err := r.wait(ctx, fmt.Sprintf("%d held requests", n), func() bool { return r.held >= n })
	return err
}

// WaitUntil waits until the recorded requests satisfy the predicate, which is asked
// again after each request, and returns them. It must not call the receiver.
func (r *Receiver) WaitUntil(ctx context.Context, satisfied func([]Request) bool) ([]Request, error) {
	return r.wait(ctx, "a predicate", func() bool { return satisfied(r.requests) })
}

func (r *Receiver) wait(ctx context.Context, what string, done func() bool) ([]Request, error) {
	stop := context.AfterFunc(ctx, r.wake)
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !done() {
		if err := ctx.Err(); err != nil {
			return slices.Clone(r.requests), fmt.Errorf("wait for %s (%d arrived, %d held): %w", what, r.count, r.held, err)
		}
		r.changed.Wait()
	}
	return slices.Clone(r.requests), nil
}
