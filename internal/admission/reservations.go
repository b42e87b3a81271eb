package admission

import (
	"slices"
	"sort"
	"sync/atomic"
	"time"
	"unique"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

// pacing is how far apart requests of an endpoint are to be, as known at one moment.
type pacing struct {
	rate   time.Duration // by the configured rate
	slots  time.Duration // by how often a slot becomes free, with a little to spare
	reason string        // why slots is not less
	ramp   *rampUp
}

// interval is the least time between two requests at a time.
func (p pacing) interval(at time.Duration) time.Duration {
	interval := max(p.rate, p.slots)
	if p.ramp.active {
		interval = max(interval, intervalOf(p.ramp.rate(at)))
	}
	return interval
}

// bySlots reports whether slots bound the rate at a time.
func (p pacing) bySlots(at time.Duration) bool { return p.slots >= p.interval(at) }

// after is the first time, not before at, that keeps the interval to an earlier one.
func (p pacing) after(at, earlier time.Duration) time.Duration {
	return max(at, earlier+p.interval(earlier))
}

// reservation is a time that is kept for a delivery.
type reservation struct {
	at       time.Duration
	delivery webhook.DeliveryID
	waiting  bool // inside Acquire
}

// reserved counts the reservations of all endpoints.
type reserved struct {
	total  atomic.Int64
	shares *fair.Semaphore // by tenant
}

// reservations are those of one endpoint, in the order of their times, no two of which are the
// same.
type reservations struct {
	all    []reservation
	when   map[webhook.DeliveryID]time.Duration
	counts *reserved
	tenant unique.Handle[string] // in counts; it changes only while there are none. A handle, because there are many endpoints

	// Nothing is free from full.from to full.to with full's interval, so that deliveries that
	// come one after another need not look through all reservations each.
	full struct {
		from, to time.Duration
		interval time.Duration
		ramp     rampUp
	}
}

// index is that of the first reservation after a time.
func (r *reservations) index(at time.Duration) int {
	return sort.Search(len(r.all), func(i int) bool { return r.all[i].at > at })
}

// free returns the first time, not before from, that keeps the interval to the reservations
// before and after it.
func (r *reservations) free(from time.Duration, p pacing) time.Duration {
	interval := max(p.rate, p.slots)
	if interval < r.full.interval-r.full.interval/5 || r.full.ramp != *p.ramp { // something may be free by now
		r.full.from, r.full.to = 0, -1
	}
	at, i := r.search(from, never, p)
	if i > 0 {
		r.noteFull(from, r.all[i-1].at)
		r.full.interval, r.full.ramp = max(interval, r.full.interval), *p.ramp
	}
	return at
}

// freeBefore is free with another pacing than that of the other reservations, not after until;
// false when nothing is free.
func (r *reservations) freeBefore(from, until time.Duration, p pacing) (time.Duration, bool) {
	full := r.full
	r.full.from, r.full.to = 0, -1
	at, _ := r.search(from, until, p)
	r.full = full
	return at, at <= until
}

// search returns the time and the index of the next reservation after it.
func (r *reservations) search(from, until time.Duration, p pacing) (at time.Duration, i int) {
	i, at = r.index(from), from
	if i > 0 {
		at = p.after(at, r.all[i-1].at)
	}
	for i < len(r.all) && at <= until {
		if r.full.from <= at && at <= r.full.to && r.all[i].at <= r.full.to {
			i = r.index(r.full.to)
			at = p.after(at, r.all[i-1].at)
			continue
		}
		if r.all[i].at-at >= p.interval(at) {
			break
		}
		at = p.after(at, r.all[i].at)
		i++
	}
	return at, i
}

// noteFull notes that nothing is free between two times. Of two stretches that do not meet, the
// longer one is worth more.
func (r *reservations) noteFull(from, to time.Duration) {
	switch full := &r.full; {
	case to < from:
	case full.to < full.from:
		full.from, full.to, full.interval = from, to, 0
	case from <= full.to && to >= full.from:
		full.from, full.to = min(from, full.from), max(to, full.to)
	case to-from > full.to-full.from:
		full.from, full.to = from, to
	}
}

// add reserves a time, which is free.
func (r *reservations) add(at time.Duration, delivery webhook.DeliveryID) {
	if r.when == nil {
		r.when = make(map[webhook.DeliveryID]time.Duration)
	}
	r.all = slices.Insert(r.all, r.index(at), reservation{at: at, delivery: delivery})
	r.when[delivery] = at
	r.count(1)
}

// count notes that there are n more, or fewer.
func (r *reservations) count(n int) {
	r.counts.total.Add(int64(n))
	switch {
	case n > 0:
		r.counts.shares.Overdraw(r.tenant.Value(), n)
	case n < 0:
		r.counts.shares.Release(r.tenant.Value(), -n)
	}
}

// of returns a delivery's reservation; nil when it has none.
func (r *reservations) of(delivery webhook.DeliveryID) *reservation {
	at, found := r.when[delivery]
	if !found {
		return nil
	}
	return &r.all[r.index(at)-1]
}

// remove gives a delivery's reservation back; false when it has none.
func (r *reservations) remove(delivery webhook.DeliveryID) bool {
	at, found := r.when[delivery]
	if !found {
		return false
	}
	i := r.index(at) - 1
	if i < len(r.all)/2 { // the next ones to go stand in front
		copy(r.all[1:i+1], r.all[:i])
		r.all = r.all[1:]
	} else {
		r.all = slices.Delete(r.all, i, i+1)
	}
	delete(r.when, delivery)
	r.removed(at, 1, r.index(at))
	return true
}

// expire drops the reservations for times before a time, but for deliveries that are waiting.
func (r *reservations) expire(before time.Duration) {
	end, waiting := 0, 0
	for ; end < len(r.all) && r.all[end].at < before; end++ {
		if r.all[end].waiting {
			waiting++
		}
	}
	if end == waiting {
		return
	}
	var first time.Duration
	to := end
	for i := end - 1; i >= 0; i-- { // those that are waiting move up to the rest
		if one := r.all[i]; one.waiting {
			to--
			r.all[to] = one
		} else {
			first = one.at
			delete(r.when, one.delivery)
		}
	}
	r.all = r.all[to:]
	r.removed(first, end-waiting, waiting)
}

// removed is what follows when n reservations, the first of them at a time, are gone; next is
// the index of the one after them.
func (r *reservations) removed(at time.Duration, n, next int) {
	r.count(-n)
	if full := &r.full; next < len(r.all) && full.to-r.all[next].at > at-full.from {
		full.from = max(full.from, r.all[next].at) // what lies behind them is as full as before
	} else if before := r.index(at) - 1; before >= 0 {
		full.to = min(full.to, r.all[before].at) // and so is what lies before them
	} else {
		full.from, full.to = 0, -1
	}
	if len(r.all) == 0 {
		r.all, r.when = nil, nil // what a backlog needed is not kept
		r.full.from, r.full.to = 0, -1
	}
}
