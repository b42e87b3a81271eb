// Package admission decides when a request may be sent to an endpoint, so that no receiver
// affects another and Everpost overloads none. It limits the requests in flight and the requests
// per second, sends none while the receiver fails, and ramps the rate up when the receiver has
// recovered.
//
// A delivery that cannot be admitted at once gets a reservation, a time of its own. If that is
// near, Acquire waits for it; else the caller sets a timer and calls Acquire again, normally once.
// A delivery that gets no reservation is held. So a receiver that hangs costs timers and rows, never
// a goroutine or a slot that others need.
//
// The files, from the bottom up, where each uses those before it only:
//
//	tuning                    constants that several files share
//	request, result           requests and their results
//	redirects, recent         where delivered redirects lead, counts of the last minutes
//	timeout                   automatic timeouts
//	rampup, lastsecond, rate  the rate limit (GCRA, exact for each second), and how the rate rises after an outage
//	concurrency               max_in_flight, and how often a slot becomes free
//	reservations              times that are kept for deliveries
//	breaker                   the circuit breaker
//	receiver                  what an endpoint allows, and what its answers have shown
//	host                      max_in_flight_per_host
//	environment               what all endpoints share
//	schedule, reserve         when the next request may be admitted, and how a time is reserved for it
//	endpoint                  one endpoint, and how a result changes it
//	permit, waiters, acquire  how a request is admitted, deliveries that wait for it, the decision
//	shard, controller         all endpoints, and the entry points
//	transfer                  the state that a controller transfers to another one
//	health, forecast          what other packages read of an endpoint
//
// All limits apply within this process; internal/fleet makes one process enforce them for all. See
// docs/adr/0008 and 0009.
package admission

import (
	"context"
	"time"
	"unique"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

// Controller admits requests to all endpoints. It needs no closing: its timers are set only while
// deliveries wait.
type Controller struct {
	environment

	shards [shards]shard
}

// New makes a controller.
func New(config Config) *Controller {
	config = config.withDefaults()
	c := &Controller{environment: environment{
		config: config, base: config.Now(), hosts: make(map[string]*host), reserved: reserved{shares: fair.NewElastic(config.MaxReserved)},
	}}
	for i := range c.shards {
		s := &c.shards[i]
		s.env, s.lock = &c.environment, &s.own
		if config.MaxInFlightPerHost > 0 {
			s.lock = &c.hostsLock
		}
		s.size = max(1, config.MaxEndpoints/shards)
		s.endpoints = make(map[webhook.EndpointID]*endpoint)
	}
	return c
}

// Acquire asks to send one request. It may wait for most of a second, for a reservation that is
// near; a bounded number of deliveries of one endpoint wait, in the order of their reservations.
// When ctx ends meanwhile, the reservation is given back and the delivery is deferred.
//
// A permit must be ended. A deferred delivery keeps its reservation until a second after
// Decision.Until. One that will not come back is to be given to Forget.
func (c *Controller) Acquire(ctx context.Context, req Request) Decision {
	e, now := c.lockFor(&req)
	decision, w := e.decide(now, &req)
	e.unlock()
	for w != nil {
		decision, w = e.await(ctx, w, &req)
	}
	return decision
}

// TryAcquire asks to send one request at once. Nil means that it would have to wait, or that the
// receiver is slow or its last request failed; nothing is reserved then.
func (c *Controller) TryAcquire(req Request) *Permit {
	e, now := c.lockFor(&req)
	defer e.unlock()
	if e.recent.failureStreak > 0 || e.unresponsive(now) {
		return nil
	}
	return e.admitAtOnce(now, &req)
}

// Done ends a permit whose request was made.
func (p *Permit) Done(r Result) { p.end(&r) }

// Cancel ends a permit with which nothing was sent, or whose request showed nothing of the receiver
// because of an internal fault.
func (p *Permit) Cancel() { p.end(nil) }

// Lose says that another process, which has this permit of the controller, may have ended. The permit keeps its slot until
// it ends, but its age is not the receiver's: it would make the receiver look slow, and put waiting deliveries off for long
// after the slot is free.
func (p *Permit) Lose() {
	e := p.endpoint
	e.lock.Lock()
	defer e.unlock()
	p.lost = true
}

func (p *Permit) end(r *Result) {
	if p.other != nil {
		p.other.end(r)
		return
	}
	e := p.endpoint
	e.lock.Lock()
	defer e.unlock()
	if !p.ended {
		now := e.env.now()
		e.finish(now, p, r)
		e.admitWaiters(now)
	}
}

// Forget gives back the reservation of a delivery that will not come back.
func (c *Controller) Forget(id webhook.EndpointID, delivery webhook.DeliveryID) {
	c.look(id, func(e *endpoint, now time.Duration) {
		if r := e.reservations.of(delivery); r != nil && !r.waiting {
			e.reservations.remove(delivery)
			e.admitWaiters(now)
		}
	})
}

// Adopt counts a request that another controller has admitted, and that is under way. The caller ends the
// permit. It has no slot of the host.
func (c *Controller) Adopt(req Request, age, timeout time.Duration) *Permit {
	e, now := c.lockFor(&req)
	defer e.unlock()
	p := &Permit{endpoint: e, activeRequest: activeRequest{start: now - age, timeout: timeout, epoch: e.breaker.epoch}}
	e.slots.adopt(&p.activeRequest)
	e.rate.adopt(now)
	return p
}

// Drop forgets the selected endpoints, because another controller admits the requests to them. Deliveries
// that wait have to call Acquire again.
func (c *Controller) Drop(which func(webhook.EndpointID) bool) {
	for i := range c.shards {
		s := &c.shards[i]
		s.lock.Lock()
		now := c.now()
		for id, e := range s.endpoints {
			if which(id) {
				e.dropped = true
				e.invalidate(never)
				s.forget(e, now)
			}
		}
		s.unlock()
	}
}

// Reset closes an endpoint's circuit and forgets what its answers have shown and requested: it has
// another URL, or a person says that the receiver is healthy. Requests in flight stay, and so do
// reservations, unless the circuit was expected to close long ago.
func (c *Controller) Reset(id webhook.EndpointID) {
	c.look(id, func(e *endpoint, now time.Duration) {
		before := e.breaker.state
		e.breaker.reset(now)
		e.followCircuit(now, before)
		e.blockedUntil, e.slots.latency, e.slots.known, e.recent.redirects = 0, 0, false, nil
		if e.autoTimeout != nil {
			*e.autoTimeout = autoTimeout{}
		}
		e.admitWaiters(now)
	})
}

// CloseCircuit is for a person who says that a receiver is healthy: a circuit that is open becomes
// half open, and the next request is the probe. If that fails, the cooldown is that of a first
// opening. at identifies the command, which is carried out once. False: there was nothing to do.
func (c *Controller) CloseCircuit(id webhook.EndpointID, at time.Time) (wasOpen bool) {
	c.look(id, func(e *endpoint, now time.Duration) {
		before := e.breaker.state
		if wasOpen = e.breaker.forceProbe(now, at); wasOpen {
			e.rate.skipRampUp(now)
			e.followCircuit(now, before)
			e.admitWaiters(now)
		}
	})
	return wasOpen
}

// HostOf is what counts as one host: the name in an endpoint's URL and the port, in lower case and
// without the scheme: "example.com:443". "" for a URL that is not usable, and where hosts are not
// limited.
//
// Another port may be another service, and DNS does not show which names belong to one machine,
// so no other hosts count as the same.
func (c *Controller) HostOf(endpointURL string) string {
	if c.config.MaxInFlightPerHost <= 0 {
		return ""
	}
	return hostOf(endpointURL)
}

// lockFor locks a request's endpoint and gives it the request's limits and host.
func (c *Controller) lockFor(req *Request) (e *endpoint, now time.Duration) {
	if req.Host == "" {
		req.Host = c.HostOf(req.URL)
	}
	s := c.shard(req.Endpoint)
	s.lock.Lock()
	now = c.now()
	e = s.endpoint(req.Endpoint, now)
	if r := &e.reservations; len(r.all) == 0 && r.tenant.Value() != req.Tenant {
		r.tenant = unique.Make(req.Tenant)
	}
	first := e.limits.MaxInFlight == 0
	if changed := e.apply(now, req.Limits.withDefaults()); changed {
		e.admitWaiters(now)
	}
	if first && !req.Since.IsZero() {
		e.rate.next = max(e.rate.next, req.Since.Sub(c.base)+e.rate.interval)
	}
	if !e.hasHost(req.Host) {
		e.setHost(now, c.host(req.Host))
	}
	e.host.prune(now)
	return e, now
}

// look calls f with an endpoint, if this controller knows it.
func (c *Controller) look(id webhook.EndpointID, f func(e *endpoint, now time.Duration)) {
	s := c.shard(id)
	s.lock.Lock()
	defer s.unlock()
	if e := s.endpoints[id]; e != nil {
		now := c.now()
		e.expire(now)
		f(e, now)
	}
}

// shard returns the shard of an endpoint.
func (c *Controller) shard(id webhook.EndpointID) *shard { return &c.shards[id[shardByte]%shards] }
