package postgres

import (
	"context"
	"sync"
	"time"
)

const (
	fillTimeout    = 10 * time.Second
	evictionSample = 8
)

// cache is a bounded map that fills itself. Callers that miss the same key at the
// same time share one fill.
//
// A fill that was under way when its key was forgotten is stored nowhere, and no
// later caller joins it: what it read may be from before the change. So a value is
// never older than the last forget that returned before get was called.
type cache[K comparable, V any] struct {
	limit int                  // of the sum of the weights
	life  func() time.Duration // of an entry, from the start of its fill
	fill  func(context.Context, K) (filled[V], error)

	stop   context.Context //nolint:containedctx // ended by close: a fill has many callers and belongs to none
	cancel context.CancelFunc

	mu      sync.Mutex
	entries map[K]*entry[V]
	flights map[K]*flight[V]
	weight  int
	closed  bool
	running sync.WaitGroup
}

// filled is what a fill found.
type filled[V any] struct {
	value  V
	weight int
	until  time.Time // not to be used from then on; zero: no such time
}

type entry[V any] struct {
	filled[V]

	since time.Time // start of the fill
	used  time.Time
}

type flight[V any] struct {
	done  chan struct{} // closed when value and err are there
	value V
	err   error
}

func newCache[K comparable, V any](limit int, life func() time.Duration, fill func(context.Context, K) (filled[V], error)) *cache[K, V] {
	c := &cache[K, V]{limit: limit, life: life, fill: fill, entries: map[K]*entry[V]{}, flights: map[K]*flight[V]{}}
	c.stop, c.cancel = context.WithCancel(context.Background()) //nolint:gosec // close calls it
	return c
}

// get returns the value of a key, filling it when it is absent or too old. Errors
// of a fill reach everyone who waits for it and are not kept.
func (c *cache[K, V]) get(ctx context.Context, key K) (V, error) {
	value, f, err := c.lookUp(ctx, key)
	if f == nil {
		return value, err
	}
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		var none V
		return none, translate("wait for the cache", ctx.Err())
	}
}

// peek returns the value of a key if it is there, however old, and fills nothing.
func (c *cache[K, V]) peek(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if ok {
		value = e.value
	}
	return value, ok
}

// lookUp returns the value, or the flight that brings it.
func (c *cache[K, V]) lookUp(ctx context.Context, key K) (value V, _ *flight[V], _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if value, ok := c.use(key, now); ok {
		return value, nil, nil
	}
	if c.closed {
		return value, nil, errClosed()
	}
	f, ok := c.flights[key]
	if !ok {
		f = &flight[V]{done: make(chan struct{})}
		c.flights[key] = f
		// Not the caller's end: others may wait for the same fill.
		ctx := context.WithoutCancel(ctx)
		c.running.Go(func() { c.fly(ctx, key, f, now) })
	}
	return value, f, nil
}

// expect begins to fill a key unless it is there. Nobody waits for it.
func (c *cache[K, V]) expect(ctx context.Context, key K) {
	_, f, err := c.lookUp(ctx, key)
	_, _ = f, err // of a fill, whoever gets the value is told
}

// known is get for a value that is there; it fills nothing.
func (c *cache[K, V]) known(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.use(key, time.Now())
}

// use returns a value that is there, and removes one that is too old. The caller holds
// the lock.
func (c *cache[K, V]) use(key K, now time.Time) (value V, ok bool) {
	e, ok := c.entries[key]
	if !ok {
		return value, false
	}
	if now.Sub(e.since) >= c.life() || !e.until.IsZero() && !now.Before(e.until) {
		c.remove(key, e)
		return value, false
	}
	e.used = now
	return e.value, true
}

func (c *cache[K, V]) fly(ctx context.Context, key K, f *flight[V], since time.Time) {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	defer context.AfterFunc(c.stop, cancel)() //nolint:contextcheck // the cache's end is nobody's request
	found, err := c.fill(ctx, key)
	f.value, f.err = found.value, err

	c.mu.Lock()
	if c.flights[key] == f { // not forgotten meanwhile
		delete(c.flights, key)
		if err == nil {
			c.store(key, &entry[V]{filled: found, since: since, used: time.Now()})
		}
	}
	c.mu.Unlock()
	close(f.done)
}

// store puts an entry in and makes room for it. What is too large for the whole
// cache is not kept.
func (c *cache[K, V]) store(key K, e *entry[V]) {
	if e.weight > c.limit {
		return
	}
	for c.weight+e.weight > c.limit {
		c.evict()
	}
	c.entries[key] = e
	c.weight += e.weight
}

// evict removes the least recently used of a few entries; which few is left to the
// map's random order. That is close to removing the least recently used of all, and
// needs no list that every hit has to rearrange.
func (c *cache[K, V]) evict() {
	var (
		oldestKey K
		oldest    *entry[V]
		seen      int
	)
	for key, e := range c.entries {
		if oldest == nil || e.used.Before(oldest.used) {
			oldestKey, oldest = key, e
		}
		seen++
		if seen == evictionSample {
			break
		}
	}
	c.remove(oldestKey, oldest)
}

func (c *cache[K, V]) remove(key K, e *entry[V]) {
	delete(c.entries, key)
	c.weight -= e.weight
}

// forget makes every later get of the key read it anew.
func (c *cache[K, V]) forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, key)
	if e, ok := c.entries[key]; ok {
		c.remove(key, e)
	}
}

// forgetIf is forget for the entries that match, and for every fill under way:
// what those will bring is not known yet.
func (c *cache[K, V]) forgetIf(match func(V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.flights)
	for key, e := range c.entries {
		if match(e.value) {
			c.remove(key, e)
		}
	}
}

func (c *cache[K, V]) forgetAll() { c.forgetIf(func(V) bool { return true }) }

// close ends the fills under way. Later gets find what is there and fill nothing.
func (c *cache[K, V]) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
}
