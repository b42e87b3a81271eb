package egress

import "time"

// evictionSample is how many entries are compared to find one to evict.
const evictionSample = 8

// lruCache caches one value for each of a bounded number of endpoints. When it is full, it
// evicts the least recently used entry of a small random sample, so an entry in use is
// hardly ever evicted. The caller holds a lock.
type lruCache[V any] struct {
	limit int
	kept  map[string]*lruEntry[V]
}

type lruEntry[V any] struct {
	value V
	used  time.Time
}

func newLRUCache[V any](limit int) lruCache[V] {
	return lruCache[V]{limit: limit, kept: make(map[string]*lruEntry[V])}
}

// get returns the endpoint's value, else the zero value.
func (r *lruCache[V]) get(endpoint string, now time.Time) V {
	known, ok := r.kept[endpoint]
	if !ok {
		var none V
		return none
	}
	known.used = now
	return known.value
}

// put replaces the endpoint's value.
func (r *lruCache[V]) put(endpoint string, value V, now time.Time) {
	if _, known := r.kept[endpoint]; !known && len(r.kept) >= r.limit {
		r.evict()
	}
	r.kept[endpoint] = &lruEntry[V]{value, now}
}

// evict removes the least recently used entry of a sample, taken in the map's random order.
func (r *lruCache[V]) evict() {
	var (
		oldest string
		since  time.Time
		seen   int
	)
	for endpoint, known := range r.kept {
		if seen == 0 || known.used.Before(since) {
			oldest, since = endpoint, known.used
		}
		seen++
		if seen == evictionSample {
			break
		}
	}
	delete(r.kept, oldest)
}
