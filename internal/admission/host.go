package admission

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// host is where several endpoints may lead, of whichever tenants. They share its places
// and take turns at them, so that one with many waiting does not shut out another.
//
// It is guarded by the lock that all shards have in common where hosts are capped.
type host struct {
	gate      *Controller
	name      string
	endpoints int // that lead here
	inFlight  int

	// turns are the endpoints that have somebody inside Acquire who only needs a place here,
	// each once. Who was served goes to the end. While a place is free that is not kept,
	// there is none.
	turns []*endpoint

	// rivals are the endpoints that wait for a place here, inside or with reservations.
	// Each is to have every len(rivals)-th place that becomes free.
	rivals []*endpoint
	look   int // which of them is looked at next

	// kept is the endpoint that one place is kept for until keptUntil: it has missed more
	// turns than others. Nil for none.
	kept      *endpoint
	keptUntil time.Duration

	since time.Duration // when a place became free last or, later, all were taken
	gap   time.Duration // smoothed, between two that become free while all are taken
}

// HostOf is what counts as one host: the name in an endpoint's URL and the port, in
// lower case and without the scheme: "example.com:443". "" for a URL that is not usable,
// and where hosts are not capped.
//
// What answers at another port may be something else, and no answer of a name says which
// names lead to one machine, so no more is taken for the same.
func (g *Controller) HostOf(endpointURL string) string {
	if g.config.MaxInFlightPerHost <= 0 {
		return ""
	}
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

// leadTo makes a host the one that an endpoint leads to; "" is none. What is in flight
// stays at the one before until it ends. Who waits inside was to go there, too, and is
// turned away.
func (e *endpoint) leadTo(now time.Duration, name string) {
	g := e.shard.gate
	if g.config.MaxInFlightPerHost <= 0 || e.leadsTo(name) {
		return
	}
	e.turnAway(0)
	e.leaveHost(now)
	if name == "" {
		return
	}
	h := g.hosts[name]
	if h == nil {
		h = &host{gate: g, name: name, gap: unknownLatency / time.Duration(g.config.MaxInFlightPerHost)}
		g.hosts[name] = h
	}
	h.endpoints++
	e.host = h
}

// leadsTo says whether a host is the endpoint's.
func (e *endpoint) leadsTo(name string) bool {
	if e.host == nil {
		return name == "" || e.shard.gate.config.MaxInFlightPerHost <= 0
	}
	return e.host.name == name
}

// leaveHost makes an endpoint lead nowhere.
func (e *endpoint) leaveHost(now time.Duration) {
	h := e.host
	if h == nil {
		return
	}
	h.giveUp(e)
	if e.queued {
		e.queued = false
		h.turns = slices.DeleteFunc(h.turns, func(o *endpoint) bool { return o == e })
	}
	e.host = nil
	h.endpoints--
	h.pump(now)
	h.forget()
}

// forget drops a host to which nothing leads and nothing is under way.
func (h *host) forget() {
	if h.endpoints == 0 && h.inFlight == 0 {
		delete(h.gate.hosts, h.name)
	}
}

// full says whether all places are taken. Where there is no cap, none ever is.
func (h *host) full() bool { return h != nil && h.inFlight >= h.gate.config.MaxInFlightPerHost }

// hasPlace says whether a place is free that is not kept for another endpoint.
func (h *host) hasPlace(now time.Duration, e *endpoint) bool {
	return h == nil || !h.full() && (h.kept == e || !h.keepsLast(now))
}

// keepsLast says whether the only place that may be free is kept.
func (h *host) keepsLast(now time.Duration) bool {
	return h.kept != nil && now <= h.keptUntil && h.inFlight+1 >= h.gate.config.MaxInFlightPerHost
}

// turnover is how often a place becomes free when all are taken. One that is overdue
// counts already.
func (h *host) turnover(now time.Duration) time.Duration {
	gap := h.gap
	if age := now - h.since; h.full() && age > gap {
		gap += (age - gap) / smoothing
	}
	return max(gap, 1)
}

// nextFree is when a place is likely to become free. One that is overdue is expected to
// take as long again.
func (h *host) nextFree(now time.Duration) time.Duration {
	if !h.full() {
		return now
	}
	if overdue := now - h.since - h.gap; overdue > 0 {
		return now + overdue
	}
	return max(h.since+h.gap, now+1) // now, there is none
}

// enqueue lets an endpoint take its turn if its first waiter could go.
func (h *host) enqueue(now time.Duration, e *endpoint) {
	if !e.queued && e.ready(now) {
		e.queued = true
		h.turns = append(h.turns, e)
	}
}

// pump gives free places to those who wait inside, one each by turns.
func (h *host) pump(now time.Duration) {
	for len(h.turns) > 0 && !h.full() {
		next := 0
		if h.keepsLast(now) {
			next = slices.Index(h.turns, h.kept)
			if next < 0 {
				return
			}
		}
		e := h.turns[next]
		h.turns = slices.Delete(h.turns, next, next+1)
		e.queued = false
		if e.ready(now) && e.letIn(now) {
			h.enqueue(now, e)
		}
	}
	if len(h.turns) == 0 {
		h.turns = nil
	}
}

// take counts a request of an endpoint.
func (h *host) take(now time.Duration, e *endpoint) {
	if h == nil {
		return
	}
	h.inFlight++
	e.missed = 0
	if h.kept == e {
		h.kept = nil
	}
	if h.full() {
		h.since = now
	}
	if len(e.line.slots) == 0 {
		h.giveUp(e)
	}
}

// leave gives the place of a request back that took so long, and lets the next one go.
func (h *host) leave(now, took time.Duration) {
	if h == nil {
		return
	}
	sample := now - h.since
	if !h.full() { // it might have been used faster: at least so fast
		sample = min(h.gap, took/time.Duration(h.gate.config.MaxInFlightPerHost))
	}
	h.gap += (sample - h.gap) / smoothing
	h.since = now
	h.inFlight--
	h.pump(now)
	h.forget()
}
