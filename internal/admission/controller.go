// Package admission admits requests to endpoints, so that no receiver can hurt another
// and none is hurt by us: at most so many requests at a time, no more than so many
// per second, none while the receiver is in trouble, and a slope when it is back.
//
// Who cannot go at once gets a reservation, a time of its own: if that is near, Acquire
// waits for it; else the caller sets a timer and comes back, normally once. What does
// not fit into the next minutes is held. So a receiver that hangs costs timers and
// rows, never a goroutine or a place that its neighbours need.
//
// Endpoints that lead to one host may share a cap, too: host.go.
//
// The gate knows what its own process sends. See docs/adr/0016 and 0029.
package admission

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	shards = 128 // each with a lock of its own, unless hosts are capped
	// idleAfter is how long an endpoint is remembered when there is nothing to do.
	idleAfter = 5 * time.Minute
)

// Config is what a gate needs. The zero value is usable.
type Config struct {
	// Now is the clock. Defaults to time.Now. Waits inside Acquire, the timers for those who
	// wait and the circuit breaker's cooldown follow the real one.
	Now func() time.Time
	// MaxEndpoints is how many are remembered; above it, those that have been idle for
	// longest are forgotten at once, in whatever state they are. Defaults to 100,000, which is about 100 MB;
	// half as much again if the timeout of each follows its answers.
	MaxEndpoints int
	// MaxReserved is how many reservations there are in all. Defaults to 250,000,
	// which is about 25 MB.
	MaxReserved int
	// MaxInFlightPerHost is how many requests at a time go to one host, whichever
	// endpoints they are of. 0 is no cap.
	MaxInFlightPerHost int
	// Random returns a number in [0, 1). Defaults to math/rand/v2's.
	Random func() float64
	// OnCircuitChange is told of each change of a circuit. It is called within Acquire, Done and
	// Reset, or by a timer of somebody inside Acquire, without a lock, and must be quick. May
	// be nil.
	OnCircuitChange func(CircuitChange)
}

// CircuitChange is what became of a circuit.
type CircuitChange struct {
	Endpoint  webhook.EndpointID
	From, To  Circuit
	At        time.Time
	NextProbe time.Time // when it opened
	Why       string    // it is not closed: "14 of 20 requests failed, the last with http_503"
}

// Controller is the admission to all endpoints. It needs no closing: its timers are set only while
// somebody waits.
type Controller struct {
	config      Config
	base        time.Time
	shardSize   int
	maxReserved int64
	reserved    atomic.Int64
	inside      atomic.Int64 // those in Acquire, of all endpoints
	shards      [shards]shard

	// With a cap per host, a place that one endpoint gives back may be another's: shared
	// is then the lock of all shards, and of hosts. See docs/adr/0029.
	shared lock
	hosts  map[string]*host
}

// lock guards shards.
type lock struct {
	sync.Mutex

	changes []CircuitChange // to be told when it is given back
}

// shard is a part of the endpoints.
type shard struct {
	gate      *Controller
	mu        *lock
	own       lock
	endpoints map[webhook.EndpointID]*endpoint
	oldest    *endpoint // by use
	youngest  *endpoint
}

// New makes a gate.
func New(c Config) *Controller {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.MaxEndpoints <= 0 {
		c.MaxEndpoints = 100_000
	}
	if c.MaxReserved <= 0 {
		c.MaxReserved = 250_000
	}
	g := &Controller{config: c, base: c.Now(), maxReserved: int64(c.MaxReserved), hosts: make(map[string]*host)}
	g.shardSize = max(1, c.MaxEndpoints/shards)
	for i := range g.shards {
		g.shards[i].gate = g
		g.shards[i].mu = &g.shards[i].own
		if c.MaxInFlightPerHost > 0 {
			g.shards[i].mu = &g.shared
		}
		g.shards[i].endpoints = make(map[webhook.EndpointID]*endpoint)
	}
	return g
}

func (g *Controller) now() time.Duration { return g.config.Now().Sub(g.base) }

// shard returns an endpoint's; the last byte of an id is random.
func (g *Controller) shard(id webhook.EndpointID) *shard { return &g.shards[id[len(id)-1]%shards] }

// Acquire asks to send one request. A turn that is near is awaited, by a bounded number
// for one endpoint, in their order. When ctx ends meanwhile, the place is given back and
// the answer is a deferral without a reservation.
//
// Only with the verdict Admitted there is a Permit, which must be ended. Deferred means
// to come back at Until, at most a second later: then the same delivery's turn is
// kept for it. Whoever comes to rest otherwise is to be told to Forget.
func (g *Controller) Acquire(ctx context.Context, en Request) Decision {
	e, now := g.lockFor(&en)
	decision, w := e.decide(now, &en)
	e.shard.unlock()
	for w != nil {
		decision, w = e.await(ctx, w, &en)
	}
	return decision
}

// TryAcquire asks to send one request at once. Nil means that it would have to wait, or that
// the receiver is slow or its last request failed; nothing is reserved then.
func (g *Controller) TryAcquire(en Request) *Permit {
	e, now := g.lockFor(&en)
	defer e.shard.unlock()
	if !e.free(now) || e.recent.failureStreak > 0 || e.ails(now) {
		return nil
	}
	return e.admit(now, now, en.Retries)
}

// lockFor locks the shard of an entry's endpoint, which knows its limits and host then.
func (g *Controller) lockFor(en *Request) (e *endpoint, now time.Duration) {
	en.Limits = en.Limits.withDefaults()
	s := g.shard(en.Endpoint)
	s.mu.Lock()
	now = g.now()
	e = s.endpoint(en.Endpoint, now)
	e.apply(now, en.Limits)
	if g.config.MaxInFlightPerHost > 0 {
		e.leadTo(now, en.Host)
		e.host.review(now)
	}
	return e, now
}

// await waits for a waiter's turn.
func (e *endpoint) await(ctx context.Context, w *waiter, en *Request) (Decision, *waiter) {
	s := e.shard
	now := s.gate.now()
	alarm := time.NewTimer(w.at - now)
	if w.at <= now {
		alarm.Reset(w.deadline - now)
	}
	defer alarm.Stop()
	for {
		gone := false
		select {
		case <-w.ready:
		case <-alarm.C:
		case <-ctx.Done():
			gone = true
		}
		decision, next, more := e.awake(w, en, gone)
		if !more {
			return decision, next
		}
		alarm.Reset(max(w.deadline-s.gate.now(), 0))
	}
}

// awake finds out why a waiter woke up: it has a pass, or was turned away, or its
// turn has come and maybe passed. More says that it goes on waiting.
func (e *endpoint) awake(w *waiter, en *Request, gone bool) (decision Decision, next *waiter, more bool) {
	s := e.shard
	s.mu.Lock()
	defer s.unlock()
	now := s.gate.now()
	s.used(e, now)
	if !gone {
		e.pump(now)
	}
	called := false
	select {
	case <-w.ready:
		called = true
	default:
		if !gone && now < w.deadline {
			return Decision{}, nil, true
		}
	}
	e.inside--
	s.gate.inside.Add(-1)
	switch {
	case gone && w.permit != nil:
		e.finish(w.permit, now, unsent)
	case gone:
		e.leave(w)
		e.pump(now)
	case w.permit != nil:
		return Decision{Permit: w.permit}, nil, false
	case called && !e.leadsTo(en.Host): // the endpoint has another URL by now
	case called: // turned away: what was reserved does not hold any more
		decision, next = e.decide(now, en)
		return decision, next, false
	default: // the place it waited for did not become free
		e.leave(w)
		if w.returned {
			return e.bookAgain(now, en), nil, false
		}
		at, reason := e.earliest(now)
		return e.book(now, at, reason, en), nil, false
	}
	return e.deferred(now+minDeferral, ReasonInFlight), nil, false
}

// Forget gives back a reservation whose delivery will not come: it came to rest.
func (g *Controller) Forget(id webhook.EndpointID, delivery webhook.DeliveryID) {
	s := g.shard(id)
	s.mu.Lock()
	defer s.unlock()
	if e := s.endpoints[id]; e != nil && !e.waits(delivery) && e.line.remove(delivery) {
		e.pump(g.now())
	}
}

// Reset closes an endpoint's circuit and forgets what was learnt of its answers and
// asked by its answers: it leads elsewhere now, or a person says that it is well.
// What is in flight stays, and what is reserved, unless the circuit was to close long ago.
func (g *Controller) Reset(id webhook.EndpointID) {
	s := g.shard(id)
	s.mu.Lock()
	defer s.unlock()
	e := s.endpoints[id]
	if e == nil {
		return
	}
	now := g.now()
	if e.circuit.state != CircuitClosed {
		e.recover(now)
	}
	e.circuit.breaker, e.circuit.cooldown = nil, 0
	e.circuit.epoch++
	e.barredUntil, e.latency, e.known = 0, 0, false
	if e.answers != nil {
		*e.answers = answers{}
	}
	e.pump(now)
}

// endpoint finds or makes one and marks it as used.
func (s *shard) endpoint(id webhook.EndpointID, now time.Duration) *endpoint {
	e := s.endpoints[id]
	if e == nil {
		e = &endpoint{id: id, shard: s, born: now, sentAt: now}
		e.line.total = &s.gate.reserved
		s.endpoints[id] = e
		s.push(e)
	}
	s.used(e, now)
	s.forgetIdle(e, now)
	return e
}

// used makes an endpoint the youngest by use.
func (s *shard) used(e *endpoint, now time.Duration) {
	e.touched = now
	if s.youngest != e {
		s.unlink(e)
		s.push(e)
	}
}

// forgetIdle looks at the few that have not been used for longest. So the work is
// spread over the calls, and nobody has to clean up. The one that is being used stays.
func (s *shard) forgetIdle(but *endpoint, now time.Duration) {
	for range 4 {
		e := s.oldest
		over := len(s.endpoints) > s.gate.shardSize
		if e == but || !over && now-e.touched < idleAfter {
			return
		}
		s.unlink(e)
		if e.idle(now) && (over || e.settled(now)) {
			delete(s.endpoints, e.id)
			e.leaveHost(now)
		} else {
			s.push(e) // looked at again when its turn comes
		}
	}
}

func (s *shard) push(e *endpoint) {
	e.older, e.younger = s.youngest, nil
	if s.youngest != nil {
		s.youngest.younger = e
	} else {
		s.oldest = e
	}
	s.youngest = e
}

func (s *shard) unlink(e *endpoint) {
	if e.older != nil {
		e.older.younger = e.younger
	} else {
		s.oldest = e.younger
	}
	if e.younger != nil {
		e.younger.older = e.older
	} else {
		s.youngest = e.older
	}
}

// changed notes a change of a circuit, to be told without the lock.
func (e *endpoint) changed(now time.Duration, from Circuit) {
	g, c := e.shard.gate, &e.circuit
	if g.config.OnCircuitChange == nil {
		return
	}
	change := CircuitChange{Endpoint: e.id, From: from, To: c.state, At: g.base.Add(now), Why: c.why()}
	if c.state == CircuitOpen {
		change.NextProbe = g.base.Add(c.until)
	}
	e.shard.mu.changes = append(e.shard.mu.changes, change)
}

// unlock gives the lock back and then tells what has changed.
func (s *shard) unlock() {
	if len(s.mu.changes) == 0 {
		s.mu.Unlock()
		return
	}
	changes := s.mu.changes
	s.mu.changes = nil
	s.mu.Unlock()
	for _, change := range changes {
		s.gate.config.OnCircuitChange(change)
	}
}
