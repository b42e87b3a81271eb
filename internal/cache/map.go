// Package cache keeps values in memory: a bounded map, and a cache on top of it that fills
// itself.
package cache

import "time"

// evictionSample is the number of entries of which the least recently used is evicted.
const evictionSample = 8

// Map is a map whose entries have a bounded sum of weights. When there is no room, the least
// recently used of a few random entries is evicted. That is close to the least recently used
// of all, and needs no list that every read has to rearrange. The caller synchronises it.
type Map[K comparable, V any] struct {
	limit   int
	weight  int
	entries map[K]*entry[V]
}

type entry[V any] struct {
	value  V
	weight int
	used   time.Time
}

// NewMap returns a map of entries with up to limit of weight.
func NewMap[K comparable, V any](limit int) *Map[K, V] {
	return &Map[K, V]{limit: limit, entries: map[K]*entry[V]{}}
}

// Get returns the value of a key, and marks it as used at the time given.
func (m *Map[K, V]) Get(key K, now time.Time) (value V, ok bool) {
	e, ok := m.entries[key]
	if !ok {
		return value, false
	}
	e.used = now
	return e.value, true
}

// Peek is Get without marking.
func (m *Map[K, V]) Peek(key K) (value V, ok bool) {
	e, ok := m.entries[key]
	if ok {
		value = e.value
	}
	return value, ok
}

// Put stores a value of weight 1 in place of the key's.
func (m *Map[K, V]) Put(key K, value V, now time.Time) { m.PutWeighing(key, value, 1, now) }

// PutWeighing is Put of a value with a weight. One that is heavier than the whole map is not
// kept.
func (m *Map[K, V]) PutWeighing(key K, value V, weight int, now time.Time) {
	m.Delete(key)
	if weight > m.limit {
		return
	}
	for m.weight+weight > m.limit {
		m.evict()
	}
	m.entries[key] = &entry[V]{value, weight, now}
	m.weight += weight
}

// Edit changes the value of a key in place, if it is there. Its weight stays.
func (m *Map[K, V]) Edit(key K, edit func(*V)) {
	if e, ok := m.entries[key]; ok {
		edit(&e.value)
	}
}

func (m *Map[K, V]) evict() {
	var (
		oldest K
		since  time.Time
		seen   int
	)
	for key, e := range m.entries {
		if seen == 0 || e.used.Before(since) {
			oldest, since = key, e.used
		}
		seen++
		if seen == evictionSample {
			break
		}
	}
	m.Delete(oldest)
}

// Delete removes a key if it is there.
func (m *Map[K, V]) Delete(key K) {
	if e, ok := m.entries[key]; ok {
		delete(m.entries, key)
		m.weight -= e.weight
	}
}

// DeleteIf removes the entries whose values match.
func (m *Map[K, V]) DeleteIf(match func(V) bool) {
	for key, e := range m.entries {
		if match(e.value) {
			m.Delete(key)
		}
	}
}

// Clear removes every entry.
func (m *Map[K, V]) Clear() {
	clear(m.entries)
	m.weight = 0
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return len(m.entries) }

// Weight returns the sum of the weights.
func (m *Map[K, V]) Weight() int { return m.weight }
