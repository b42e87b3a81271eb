package egress

import "time"

// evictionSample is how many are looked at to find one that was used long ago.
const evictionSample = 8

// recent keeps something for each of a bounded number of endpoints. When there is no
// room, the least recently used of a few gives way: nobody's can fill it for others, and
// one that is in use is hardly ever lost. The caller has a lock.
type recent[V any] struct {
	limit int
	kept  map[string]*recently[V]
}

type recently[V any] struct {
	value V
	used  time.Time
}

func newRecent[V any](limit int) recent[V] {
	return recent[V]{limit: limit, kept: make(map[string]*recently[V])}
}

// get is what is kept for the endpoint, else the zero value.
func (r *recent[V]) get(endpoint string, now time.Time) V {
	known, ok := r.kept[endpoint]
	if !ok {
		var none V
		return none
	}
	known.used = now
	return known.value
}

// put keeps it in place of what was kept for the endpoint.
func (r *recent[V]) put(endpoint string, value V, now time.Time) {
	if _, known := r.kept[endpoint]; !known && len(r.kept) >= r.limit {
		r.evict()
	}
	r.kept[endpoint] = &recently[V]{value, now}
}

// evict removes the least recently used of a few, which the map's random order picks.
func (r *recent[V]) evict() {
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
