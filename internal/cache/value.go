package cache

import (
	"context"
	"sync/atomic"
	"time"
)

// Value is a Cache of one value, which many read at a time: while the value is fresh, Get takes no lock. What Cache says of forgetting holds for it, too. It is
// safe for concurrent use.
type Value[V any] struct {
	cache *Cache[struct{}, V]
	// fresh is a copy of the value in the cache. Each Forget puts an empty one in its place, so that a Get that began before does not put an older one back.
	fresh atomic.Pointer[filled[V]]
}

// NewValue returns a Value. Fill and Life of the Config are required, and Make and Renew are not used. The caller closes it.
func NewValue[V any](c Config[struct{}, V]) *Value[V] {
	c.Limit = 1
	v := &Value[V]{cache: New(c)}
	v.fresh.Store(&filled[V]{})
	return v
}

// Get returns the value, and fills it when it is absent or too old.
func (v *Value[V]) Get(ctx context.Context) (V, error) {
	before := v.fresh.Load()
	if !before.since.IsZero() && time.Since(before.since) < v.cache.config.Life() {
		return before.value, nil
	}
	value, err := v.cache.Get(ctx, struct{}{})
	if err != nil {
		return value, err
	}
	if now, there := v.peek(); there {
		v.fresh.CompareAndSwap(before, &now)
	}
	return value, nil
}

// peek is the value that is in the cache now, with the start of its fill; false for one that ends at a time, which only the cache compares.
func (v *Value[V]) peek() (filled[V], bool) {
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	found, there := v.cache.values.Peek(struct{}{})
	return found, there && !found.stale && found.until.IsZero()
}

// Forget makes the next Get read the value.
func (v *Value[V]) Forget() {
	v.cache.ForgetAll() // first: a Get that sees what follows finds nothing older in the cache
	v.fresh.Store(&filled[V]{})
}

// Close ends a fill that is running. Later Gets find what is there and fill nothing.
func (v *Value[V]) Close() { v.cache.Close() }
