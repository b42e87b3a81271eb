package cache

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	fillTimeout  = 10 * time.Second
	renewTimeout = time.Minute // the first one reads everything
)

// ErrClosed is the error of a Get that would need a fill after Close.
var ErrClosed = errors.New("the cache is closed")

// Cache is a bounded map that fills itself. Callers that miss the same key at the
// same time share one fill. It is safe for concurrent use.
//
// A fill that was running when its key was forgotten is not stored, and no
// later caller joins it: what it read may be from before the change. So a value is
// never older than the last Forget that returned before Get was called.
type Cache[K comparable, V any] struct {
	config Config[K, V]

	stop   context.Context //nolint:containedctx // ended by Close: a fill has many callers and belongs to none
	cancel context.CancelFunc

	mu      sync.Mutex
	values  *Map[K, filled[V]]
	fills   map[K]*fill[V]
	made    uint64 // counts calls of Make
	closed  bool
	running sync.WaitGroup
}

// Config describes a Cache. Limit, Life, and Fill or Make and Renew are required.
type Config[K comparable, V any] struct {
	Limit int                  // of the sum of the weights
	Life  func() time.Duration // of an entry, from the start of its fill
	Fill  func(context.Context, K) (Filled[V], error)

	// Make and Renew take the place of Fill for a value that is expensive to read as a whole. Make
	// makes an empty one, and Renew brings it up to date and returns its weight. A value that was
	// forgotten or is too old is kept, for the next Renew only; ForgetAll drops it. Two Renews of a
	// value may run at a time: one that was forgotten, and one that began later.
	Make  func() V
	Renew func(context.Context, K, V) (weight int, err error)

	// Translate makes the error that a caller receives, of ErrClosed or of its own context.
	// Defaults to the error itself.
	Translate func(error) error
}

// Filled is the result of a fill.
type Filled[V any] struct {
	Value  V
	Weight int       // zero counts as 1
	Until  time.Time // the value ends then; zero: it does not
}

// filled is a value in the cache.
type filled[V any] struct {
	value V
	until time.Time
	since time.Time // start of the fill
	made  uint64    // by which Make
	stale bool      // only kept for Renew
}

// fill is a fill that is running.
type fill[V any] struct {
	done  chan struct{} // closed when value and err are set
	value V
	err   error
	made  uint64
}

// New returns a cache. The caller closes it.
func New[K comparable, V any](c Config[K, V]) *Cache[K, V] {
	if c.Translate == nil {
		c.Translate = func(err error) error { return err }
	}
	cache := &Cache[K, V]{config: c, values: NewMap[K, filled[V]](c.Limit), fills: map[K]*fill[V]{}}
	cache.stop, cache.cancel = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return cache
}

// Get returns the value of a key, and fills it when it is absent or too old. An error of a
// fill reaches every caller that waits for it and is not kept.
func (c *Cache[K, V]) Get(ctx context.Context, key K) (V, error) {
	value, f, err := c.lookUp(ctx, key)
	if f == nil {
		return value, err
	}
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		var none V
		return none, c.config.Translate(ctx.Err())
	}
}

// Known is Get for a value that is there and not too old; it fills nothing.
func (c *Cache[K, V]) Known(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.use(key, time.Now())
}

// Peek returns the value of a key if it is there, however old, and fills nothing.
func (c *Cache[K, V]) Peek(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.values.Peek(key)
	return found.value, ok
}

// Expect begins to fill a key unless it is there, and does not wait for it.
func (c *Cache[K, V]) Expect(ctx context.Context, key K) {
	_, _, err := c.lookUp(ctx, key)
	_ = err // a later Get has it, if there still is one
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values.Len()
}

// Filling returns the number of fills that are running and have not been forgotten.
func (c *Cache[K, V]) Filling() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.fills)
}

// lookUp returns the value, or the fill that brings it.
func (c *Cache[K, V]) lookUp(ctx context.Context, key K) (value V, _ *fill[V], _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if value, ok := c.use(key, now); ok {
		return value, nil, nil
	}
	if c.closed {
		return value, nil, c.config.Translate(ErrClosed)
	}
	f, ok := c.fills[key]
	if !ok {
		f = c.begin(key, now)
		// Not the caller's context: others may wait for the same fill.
		ctx := context.WithoutCancel(ctx)
		c.running.Go(func() { c.run(ctx, key, f, now) })
	}
	return value, f, nil
}

// begin returns a fill that is about to run, with the value that it is to renew. The caller holds the
// lock.
func (c *Cache[K, V]) begin(key K, now time.Time) *fill[V] {
	f := &fill[V]{done: make(chan struct{})}
	c.fills[key] = f
	if c.config.Renew == nil {
		return f
	}
	if found, ok := c.values.Peek(key); ok {
		f.value, f.made = found.value, found.made
		return f
	}
	c.made++
	f.value, f.made = c.config.Make(), c.made
	c.values.Put(key, filled[V]{value: f.value, made: f.made, stale: true}, now)
	return f
}

// use returns a value that is there, and removes one that is too old. The caller holds
// the lock.
func (c *Cache[K, V]) use(key K, now time.Time) (value V, ok bool) {
	found, ok := c.values.Get(key, now)
	if !ok || found.stale {
		return value, false
	}
	if now.Sub(found.since) >= c.config.Life() || !found.until.IsZero() && !now.Before(found.until) {
		c.drop(key)
		return value, false
	}
	return found.value, true
}

// drop makes a value unusable. The caller holds the lock.
func (c *Cache[K, V]) drop(key K) {
	if c.config.Renew == nil {
		c.values.Delete(key)
		return
	}
	c.values.Edit(key, func(kept *filled[V]) { kept.stale = true })
}

func (c *Cache[K, V]) run(ctx context.Context, key K, f *fill[V], since time.Time) {
	timeout := fillTimeout
	if c.config.Renew != nil {
		timeout = renewTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(c.stop, cancel)() //nolint:contextcheck // the end of the cache belongs to no request
	found, err := c.read(ctx, key, f.value)
	f.value, f.err = found.Value, err

	c.mu.Lock()
	current := c.fills[key] == f // not forgotten meanwhile
	if current {
		delete(c.fills, key)
	}
	kept, ok := c.values.Peek(key)
	again := c.config.Renew != nil && ok && kept.made == f.made // it has grown, whether or not it is current
	switch {
	case err != nil:
	case current:
		c.values.PutWeighing(key, filled[V]{found.Value, found.Until, since, f.made, false}, max(1, found.Weight), time.Now())
	case again:
		c.values.PutWeighing(key, kept, max(1, found.Weight), time.Now())
	}
	c.mu.Unlock()
	close(f.done)
}

// read fills or renews a value.
func (c *Cache[K, V]) read(ctx context.Context, key K, value V) (Filled[V], error) {
	if c.config.Renew == nil {
		return c.config.Fill(ctx, key)
	}
	weight, err := c.config.Renew(ctx, key, value)
	return Filled[V]{Value: value, Weight: weight}, err
}

// Forget makes the next Get of the key read it.
func (c *Cache[K, V]) Forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fills, key)
	c.drop(key)
}

// ForgetIf is Forget for the entries that match, and for every fill that is running: what
// that will bring is not known yet.
func (c *Cache[K, V]) ForgetIf(match func(V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.fills)
	c.values.DeleteIf(func(found filled[V]) bool { return match(found.value) })
}

// ForgetAll is Forget for every key.
func (c *Cache[K, V]) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.fills)
	c.values.Clear()
}

// Close ends the fills that are running. Later Gets find what is there and fill nothing.
func (c *Cache[K, V]) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
}
