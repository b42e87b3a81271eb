package admission

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// pruneEvery is how often a host's queue is searched for endpoints that no longer wait.
	pruneEvery = 10 * time.Millisecond
	// searchEach is the time for each endpoint of a queue between two searches of it: searching
	// takes about a hundredth of that, so it takes a small share of the time however long the
	// queue is.
	searchEach = 10 * time.Microsecond
	// After deferralsBeforeKeep deferrals of an endpoint's deliveries in a row, a free slot of the
	// host is kept for the next one.
	deferralsBeforeKeep = 2
	// slowInterval is how rarely slots must become free for one to be kept: where they do more
	// often, a delivery gets one while it waits.
	slowInterval = shortPatience
)

// host is a semaphore that endpoints with the same host and port in their URLs share, round-robin.
//
// Endpoints that need a slot of the host stand in a queue, each once. A free slot goes to a
// waiting delivery of the first that has one, and that endpoint goes to the end. A new delivery
// is admitted at once only if a free slot remains for each other endpoint of the queue; else it
// is deferred until after one delivery of each. Where slots become free rarely, deferred
// deliveries may come in vain again and again: a slot is then kept for their endpoint.
//
// A nil *host has no limit.
type host struct {
	name      string
	limit     int
	endpoints int // that have it in their URLs
	inFlight  int
	queue     []*hostEntry // by their numbers
	waiting   []*hostEntry // those of the queue with a waiting delivery, and some that had one; by their numbers
	last      int          // number of an endpoint that joined
	prunedAt  time.Duration

	kept     *hostEntry // what the last search of keptFor found
	searchAt time.Duration

	since    time.Duration // when a slot became free last or, later, all were taken
	interval time.Duration // smoothed, between two slots that become free while all are taken
}

// hostEntry is an endpoint in the queue of its host.
type hostEntry struct {
	contender

	queued bool
	number int // orders the queue
	missed int // deliveries that came in vain since the last was admitted
}

// contender is an endpoint that may need a slot of a host.
type contender interface {
	// waits reports whether a delivery waits.
	waits() bool
	// ready reports whether a waiting delivery needs nothing but a slot of the host.
	ready(now time.Duration) bool
	// needsSlot reports whether a delivery, waiting or deferred, will need one within a time.
	needsSlot(now, within time.Duration) bool
	// admitFirst admits the first waiting delivery; false when it can not be admitted.
	admitFirst(now time.Duration) bool
}

// full reports whether all slots are taken.
func (h *host) full() bool { return h != nil && h.inFlight >= h.limit }

// add takes a slot, or reports that none is free. This is where max_in_flight_per_host is
// enforced.
func (h *host) add(now time.Duration, t *hostEntry) bool {
	if h == nil {
		return true
	}
	if h.full() {
		return false
	}
	h.inFlight++
	t.missed = 0
	if h.full() {
		h.since = now
	}
	if t.queued {
		h.leave(t)
		if t.needsSlot(now, h.soon(now)) {
			h.join(t)
		}
	}
	return true
}

// remove gives back a slot that was taken for so long.
func (h *host) remove(now, took time.Duration) {
	sample := now - h.since
	if !h.full() { // it might have become free sooner: at least so soon
		sample = min(h.interval, took/time.Duration(h.limit))
	}
	h.interval += (sample - h.interval) / smoothing
	h.since = now
	h.inFlight--
	h.admitWaiters(now)
}

// join puts an endpoint at the end of the queue, unless it is in it.
func (h *host) join(t *hostEntry) {
	if !t.queued {
		t.queued = true
		h.last++
		t.number = h.last
		h.queue = append(h.queue, t)
	}
	if i, found := find(h.waiting, t); !found && t.waits() {
		h.waiting = slices.Insert(h.waiting, i, t)
	}
}

// leave takes an endpoint out of the queue.
func (h *host) leave(t *hostEntry) {
	if h.kept == t {
		h.kept = nil
	}
	if !t.queued {
		return
	}
	t.queued = false
	i, _ := find(h.queue, t)
	h.queue = slices.Delete(h.queue, i, i+1)
	if i, found := find(h.waiting, t); found {
		h.waiting = slices.Delete(h.waiting, i, i+1)
	}
}

// find returns an endpoint's index in a part of the queue, or where it would be.
func find(part []*hostEntry, t *hostEntry) (i int, found bool) {
	return slices.BinarySearchFunc(part, t.number, func(other *hostEntry, number int) int { return other.number - number })
}

// prune drops endpoints that need no slot soon: no delivery came for their reservations, or they wait
// for something else.
func (h *host) prune(now time.Duration) {
	if h == nil || now-h.prunedAt < max(pruneEvery, h.searchTime()) {
		return
	}
	h.prunedAt = now
	within := h.soon(now)
	before := len(h.queue)
	h.queue = slices.DeleteFunc(h.queue, func(t *hostEntry) bool {
		t.queued = t.needsSlot(now, within)
		return !t.queued
	})
	if len(h.queue) < before {
		h.waiting = slices.DeleteFunc(h.waiting, func(t *hostEntry) bool { return !t.queued })
		h.admitWaiters(now) // a slot that was kept
	}
}

// searchTime is the least time between two searches of the whole queue.
func (h *host) searchTime() time.Duration { return time.Duration(len(h.queue)) * searchEach }

// soon is how near a reservation must be for its endpoint to stay in the queue: two rounds.
func (h *host) soon(now time.Duration) time.Duration {
	return minDeferral + 2*time.Duration(len(h.queue))*h.freeInterval(now)
}

// admitWaiters gives the free slots to waiting deliveries, in the order of the queue.
func (h *host) admitWaiters(now time.Duration) {
	for i := 0; i < len(h.waiting) && !h.full(); {
		switch t := h.waiting[i]; {
		case !t.waits():
			h.waiting = slices.Delete(h.waiting, i, i+1)
		case t.ready(now) && h.mayTake(now, t) && t.admitFirst(now):
			i = 0
		default:
			i++
		}
	}
}

// mayTake reports whether an endpoint of the queue may take a slot now.
func (h *host) mayTake(now time.Duration, t *hostEntry) bool {
	if h == nil {
		return true
	}
	if h.inFlight+1 < h.limit || h.full() {
		return !h.full()
	}
	kept := h.keptFor(now)
	return kept == nil || kept == t
}

// keptFor returns the endpoint for which one slot is kept; nil: none is. It is the first of the
// queue whose deliveries came in vain, if another is about to come. Where slots become free often, a
// delivery gets one while it waits.
func (h *host) keptFor(now time.Duration) *hostEntry {
	if h.freeInterval(now) <= slowInterval {
		return nil
	}
	keeps := func(t *hostEntry) bool { return t.missed >= deferralsBeforeKeep && t.needsSlot(now, lateness) }
	if now >= h.searchAt {
		h.kept, h.searchAt = nil, now+h.searchTime()
		if i := slices.IndexFunc(h.queue, keeps); i >= 0 {
			h.kept = h.queue[i]
		}
	}
	if h.kept != nil && h.kept.queued && keeps(h.kept) {
		return h.kept
	}
	return nil
}

// open reports whether a new delivery of an endpoint may be admitted at once.
func (h *host) open(t *hostEntry) bool { return h == nil || h.inFlight+h.others(t) < h.limit }

// others is how many other endpoints are in the queue.
func (h *host) others(t *hostEntry) int {
	if t.queued {
		return len(h.queue) - 1
	}
	return len(h.queue)
}

// nextFree is when a slot is likely to become free. One that is overdue is expected to take as
// long again.
func (h *host) nextFree(now time.Duration) time.Duration {
	if !h.full() {
		return now
	}
	if overdue := now - h.since - h.interval; overdue > 0 {
		return now + overdue
	}
	return max(h.since+h.interval, now+1)
}

// freeInterval is the mean time between two slots that become free when all are taken. One that
// is overdue counts already.
func (h *host) freeInterval(now time.Duration) time.Duration {
	interval := h.interval
	if age := now - h.since; h.full() && age > interval {
		interval += (age - interval) / smoothing
	}
	return max(interval, 1)
}

// slotForNew is when a new delivery of an endpoint is likely to get a slot: after one of each other endpoint.
func (h *host) slotForNew(now time.Duration, t *hostEntry) time.Duration {
	if h.open(t) {
		return now
	}
	return h.nextFree(now) + time.Duration(h.others(t))*h.freeInterval(now)
}

// slotForQueued is when an endpoint whose delivery came in vain is likely to get a slot: after the
// endpoints before it in the queue.
func (h *host) slotForQueued(now time.Duration, t *hostEntry) time.Duration {
	if h == nil || !t.queued {
		return now
	}
	before, _ := find(h.queue, t)
	return h.nextFree(now) + time.Duration(before)*h.freeInterval(now)
}

// share is how far apart the requests of one endpoint are to be, so that each endpoint of the
// queue gets as many, if slots become free at an interval; 0: there is no limit.
func (h *host) share(interval time.Duration, t *hostEntry) time.Duration {
	if h == nil || !t.queued && h.open(t) {
		return 0
	}
	return time.Duration(h.others(t)+1) * interval
}

// hostOf returns the host of a URL, see Controller.HostOf.
func hostOf(endpointURL string) string {
	u, err := url.Parse(endpointURL)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.String() // the same address can be written in several ways
	}
	return net.JoinHostPort(name, port)
}
