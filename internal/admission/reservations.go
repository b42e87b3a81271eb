package admission

import (
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// slot is a time that is kept for a delivery.
type slot struct {
	at       time.Duration
	delivery webhook.DeliveryID
	inside   bool // it is here and waits; see endpoint.waiters
}

// timeline is an endpoint's reservations, in the order of their times, no two of
// which are the same.
type timeline struct {
	slots []slot
	when  map[webhook.DeliveryID]time.Duration
	total *atomic.Int64 // of all endpoints

	// Nothing is free from full.from to full.to by full's tempo, so that those who come
	// one after another need not look through the whole line each.
	full struct {
		from, to time.Duration
		gap      time.Duration
		ramp     ramp
	}
}

// index is that of the first slot after at.
func (t *timeline) index(at time.Duration) int {
	return sort.Search(len(t.slots), func(i int) bool { return t.slots[i].at > at })
}

// free returns the first time, not before from, that keeps the distance to what is
// reserved before and after it.
func (t *timeline) free(from time.Duration, tempo tempo) time.Duration {
	gap := max(tempo.rate, tempo.places)
	if gap < t.full.gap-t.full.gap/5 || t.full.ramp != *tempo.ramp { // there may be room by now
		t.full.from, t.full.to = 0, -1
	}
	at, i := t.search(from, never, tempo)
	if i > 0 {
		t.noRoom(from, t.slots[i-1].at)
		t.full.gap, t.full.ramp = max(gap, t.full.gap), *tempo.ramp
	}
	return at
}

// freeBefore is free by another tempo than that of the others, not after until;
// false when there is nothing.
func (t *timeline) freeBefore(from, until time.Duration, tempo tempo) (time.Duration, bool) {
	full := t.full
	t.full.from, t.full.to = 0, -1
	at, _ := t.search(from, until, tempo)
	t.full = full
	return at, at <= until
}

// search returns the time and the index of the next slot after it.
func (t *timeline) search(from, until time.Duration, tempo tempo) (at time.Duration, i int) {
	i, at = t.index(from), from
	if i > 0 {
		at = tempo.after(at, t.slots[i-1].at)
	}
	for i < len(t.slots) && at <= until {
		if t.full.from <= at && at <= t.full.to && t.slots[i].at <= t.full.to {
			i = t.index(t.full.to)
			at = tempo.after(at, t.slots[i-1].at)
			continue
		}
		if t.slots[i].at-at >= tempo.gap(at) {
			break
		}
		at = tempo.after(at, t.slots[i].at)
		i++
	}
	return at, i
}

// noRoom remembers that there is none between from and to. Of two stretches that do
// not meet, the longer one is worth more.
func (t *timeline) noRoom(from, to time.Duration) {
	switch full := &t.full; {
	case to < from:
	case full.to < full.from:
		full.from, full.to, full.gap = from, to, 0
	case from <= full.to && to >= full.from:
		full.from, full.to = min(from, full.from), max(to, full.to)
	case to-from > full.to-full.from:
		full.from, full.to = from, to
	}
}

// add reserves at, which is not taken.
func (t *timeline) add(at time.Duration, delivery webhook.DeliveryID) {
	if t.when == nil {
		t.when = make(map[webhook.DeliveryID]time.Duration)
	}
	t.slots = slices.Insert(t.slots, t.index(at), slot{at: at, delivery: delivery})
	t.when[delivery] = at
	t.total.Add(1)
}

// of returns a delivery's reservation; nil when it has none.
func (t *timeline) of(delivery webhook.DeliveryID) *slot {
	at, found := t.when[delivery]
	if !found {
		return nil
	}
	return &t.slots[t.index(at)-1]
}

// remove gives a delivery's reservation back; false when it has none.
func (t *timeline) remove(delivery webhook.DeliveryID) bool {
	at, found := t.when[delivery]
	if !found {
		return false
	}
	i := t.index(at) - 1
	if i < len(t.slots)/2 { // those who come next stand in front
		copy(t.slots[1:i+1], t.slots[:i])
		t.slots = t.slots[1:]
	} else {
		t.slots = slices.Delete(t.slots, i, i+1)
	}
	delete(t.when, delivery)
	t.gone(at, 1, t.index(at))
	return true
}

// expire drops what was reserved for a time before before, but for those who are here.
func (t *timeline) expire(before time.Duration) {
	end, here := 0, 0
	for ; end < len(t.slots) && t.slots[end].at < before; end++ {
		if t.slots[end].inside {
			here++
		}
	}
	if end == here {
		return
	}
	var first time.Duration
	to := end
	for i := end - 1; i >= 0; i-- { // those who are here move up to those who come
		if s := t.slots[i]; s.inside {
			to--
			t.slots[to] = s
		} else {
			first = s.at
			delete(t.when, s.delivery)
		}
	}
	t.slots = t.slots[to:]
	t.gone(first, end-here, here)
}

// gone is what follows when n slots, the first of them at at, are there no more; next
// is the index of the one after them.
func (t *timeline) gone(at time.Duration, n, next int) {
	t.total.Add(-int64(n))
	if full := &t.full; next < len(t.slots) && full.to-t.slots[next].at > at-full.from {
		full.from = max(full.from, t.slots[next].at) // what lies behind them is as full as before
	} else if before := t.index(at) - 1; before >= 0 {
		full.to = min(full.to, t.slots[before].at) // and so is what lies before the one before them
	} else {
		full.from, full.to = 0, -1
	}
	if len(t.slots) == 0 {
		t.slots, t.when = nil, nil // what a backlog needed is not kept
		t.full.from, t.full.to = 0, -1
	}
}
