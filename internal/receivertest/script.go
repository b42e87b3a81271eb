package receivertest

import (
	"context"
	"fmt"
	"slices"
)

// Script adds responses for a webhook id or a URL path, one per request. The script of the
// id takes precedence over that of the path. Requests without a script, or after its end,
// get Default's response.
func (r *Receiver) Script(key string, steps ...Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts[key] = append(r.scripts[key], steps...)
}

// Default sets the response to requests without a script. Initially it is an empty 200.
func (r *Receiver) Default(step Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fallback = step
}

// Hold makes later requests wait for their responses until Release. They are recorded
// meanwhile.
func (r *Receiver) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = true
}

// Release responds to all held requests, and to later ones at once.
func (r *Receiver) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = false
	r.changed.Broadcast()
}

// Requests returns the recorded requests, oldest first.
func (r *Receiver) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Count returns how many requests have arrived since the start, including those that are no
// longer recorded.
func (r *Receiver) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Most returns the maximum of concurrent requests, with or without a response.
func (r *Receiver) Most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maxActive
}

// WaitFor waits until n requests have arrived and returns the recorded ones. The error is
// the context's, with the number of requests.
func (r *Receiver) WaitFor(ctx context.Context, n int) ([]Request, error) {
	return r.wait(ctx, fmt.Sprintf("%d requests", n), func() bool { return r.count >= n })
}

// WaitHeld waits until n requests are held.
func (r *Receiver) WaitHeld(ctx context.Context, n int) error {
	_, err := r.wait(ctx, fmt.Sprintf("%d held requests", n), func() bool { return r.held >= n })
	return err
}

// WaitUntil waits until the recorded requests satisfy the predicate, which is called again
// after each request, and returns them. The predicate must not call the receiver.
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
