package groupcommit

import (
	"context"
	"sync"
	"time"
)

// Apart describes how items are written that need what another transaction has locked: apart from the others, by a goroutine of their own. So
// they cost the others one lock timeout, when the lock is met for the first time.
type Apart[T any] struct {
	// Keys identify what an item writes. After a lock was met at one of them, items with that key are written apart for a while.
	Keys func(item T) []any
	// Locked finds the keys of each item at which it would wait for a lock now; none if it would not wait. It must not wait itself.
	Locked func(ctx context.Context, items []T) ([][]any, error)
	// Turn is held while items are written apart. Writers that share a Turn need one connection for it together.
	Turn sync.Locker
}

const (
	// maxApart bounds the items that wait to be written apart, and the keys that are remembered.
	maxApart = 1000
	// apartFor is how long after a lock was met items with the same key are written apart.
	apartFor = 10 * time.Second
)

// apart has the items that are to be written apart.
type apart[T any] struct {
	ready chan struct{}
	done  chan struct{} // closed by Stop: nothing is added any more

	mu      sync.Mutex
	waiting []*waiting[T]
	keys    map[any]time.Time // until when
}

func newApart[T any]() *apart[T] {
	return &apart[T]{ready: make(chan struct{}, 1), done: make(chan struct{}), keys: map[any]time.Time{}}
}

// add returns false if too many items wait, or the item was tried often enough. keys are those at which a lock was met.
func (a *apart[T]) add(keys []any, item *waiting[T], now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if item.tries >= attempts || len(a.waiting) >= maxApart {
		return false
	}
	if len(a.keys) >= maxApart {
		for other, until := range a.keys {
			if !now.Before(until) {
				delete(a.keys, other)
			}
		}
	}
	for _, key := range keys {
		if len(a.keys) < maxApart {
			a.keys[key] = now.Add(apartFor)
		}
	}
	a.waiting = append(a.waiting, item)
	select {
	case a.ready <- struct{}{}:
	default: // a value is pending
	}
	return true
}

// met returns those of an item's keys at which a lock was met a while ago. It asks for the keys only if there was any.
func (a *apart[T]) met(keysOf func() []any, now time.Time) (met []any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.keys) == 0 {
		return nil
	}
	for _, key := range keysOf() {
		switch until, known := a.keys[key]; {
		case !known:
		case now.Before(until):
			met = append(met, key)
		default:
			delete(a.keys, key)
		}
	}
	return met
}

func (a *apart[T]) forget(keys []any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range keys {
		delete(a.keys, key)
	}
}

func (a *apart[T]) take() []*waiting[T] {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.waiting
	a.waiting = nil
	return all
}

// isApart reports whether an item is to be written apart, because a lock was met at its key, and adds it. It settles one for which there is no room.
func (w *Writer[T]) isApart(item *waiting[T]) bool {
	if w.config.Apart == nil {
		return false
	}
	now := time.Now()
	met := w.apart.met(func() []any { return w.config.Apart.Keys(item.item) }, now)
	if len(met) == 0 {
		return false
	}
	if !w.apart.add(met, item, now) {
		item.settle(w.config.Translate(ErrFull))
	}
	return true
}

// setApart takes those items out of a part that wait for a lock, and returns the others. False: none is found, or nothing is written apart. An item
// that is alone is the one that waits, and if it has one key, it waits there.
func (w *Writer[T]) setApart(ctx context.Context, part []*waiting[T], lock error) (free []*waiting[T], found bool) {
	if w.config.Apart == nil {
		return part, false
	}
	alone := len(part) == 1
	locked := [][]any{w.config.Apart.Keys(part[0].item)}
	if !alone || len(locked[0]) > 1 {
		var err error
		if locked, err = w.config.Apart.Locked(ctx, itemsOf(part)); err != nil {
			return part, false
		}
	}
	for i, item := range part {
		switch {
		case len(locked[i]) == 0 && !alone:
			free = append(free, item)
		case !w.apart.add(locked[i], item, time.Now()):
			item.settle(w.config.Translate(lock))
		}
	}
	return free, len(free) < len(part)
}

// runApart writes what is set apart, until Stop.
func (w *Writer[T]) runApart() {
	for {
		select {
		case <-w.apart.ready:
			w.commitApart(w.apart.take())
		case <-w.apart.done:
			last := w.apart.take()
			for _, item := range last {
				item.tries = attempts // no further wait
			}
			w.commitApart(last)
			return
		}
	}
}

// commitApart writes items together, as many as a flush may have, which waits out a lock for a lock timeout. Those that still wait for one are tried
// again, a few times.
func (w *Writer[T]) commitApart(items []*waiting[T]) {
	for len(items) > 0 {
		n, weight := 0, 0
		for n < len(items) && (n == 0 || weight+w.config.Weight(items[n].item) <= w.config.MaxWeight) {
			weight += w.config.Weight(items[n].item)
			items[n].tries++
			n++
		}
		w.config.Apart.Turn.Lock()
		w.commit(items[:n])
		w.config.Apart.Turn.Unlock()
		items = items[n:]
	}
}

// written forgets the keys of items that were written.
func (w *Writer[T]) written(part []*waiting[T]) {
	if w.config.Apart == nil {
		return
	}
	for _, item := range part {
		if item.tries > 0 {
			w.apart.forget(w.config.Apart.Keys(item.item))
		}
	}
}
