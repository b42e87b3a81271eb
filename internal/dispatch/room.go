package dispatch

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// room counts places. Whoever waits for one gets it in the order of asking.
type room struct {
	mu      sync.Mutex
	used    int
	size    int
	waiters list.List // of chan struct{}, closed when the place is theirs
}

func newRoom(size int) *room { return &room{size: size} }

// take waits for a place, at most patience.
func (r *room) take(ctx context.Context, patience time.Duration) bool {
	r.mu.Lock()
	if r.used < r.size && r.waiters.Len() == 0 {
		r.used++
		r.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	place := r.waiters.PushBack(mine)
	r.mu.Unlock()

	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-mine:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-mine: // it came at the last moment
		return true
	default:
		r.waiters.Remove(place)
		return false
	}
}

// overdraw uses n places whether or not they are free.
func (r *room) overdraw(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used += n
}

// give returns n places.
func (r *room) give(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	for r.used < r.size && r.waiters.Len() > 0 {
		next, _ := r.waiters.Remove(r.waiters.Front()).(chan struct{})
		r.used++
		close(next)
	}
}
