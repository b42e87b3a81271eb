package egress

import (
	"container/list"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
)

// identity is what a kept connection may be used for. Connections are never used
// for another endpoint, nor for another version of the same one.
type identity struct {
	endpoint string
	version  int64
	scheme   string
	address  string
	exempt   netip.AddrPort
}

// pool keeps idle connections, bounded per endpoint and in total. Only endpoints with an
// idle connection take memory. It has no goroutine: a timer runs while it holds a
// connection.
type pool struct {
	max     int
	timeout time.Duration

	mu     sync.Mutex
	drops  *cache.Map[string, idleDrop] // by endpoint id
	byID   map[string]*endpointIdle     // by endpoint id
	oldest *list.List                   // of *conn, longest idle first
	timer  *time.Timer
	closed bool
}

// endpointIdle holds one endpoint's idle connections, longest idle first, all of one
// identity.
type endpointIdle struct {
	id   identity
	idle []*list.Element
}

// idleDrop is after which idle time a receiver was seen to have closed a connection: the least of those seen until a time.
type idleDrop struct {
	after time.Duration
	until time.Time
}

const (
	// maxIdleDrops bounds the endpoints of which idleDrop is remembered, and idleDropMemory for how long.
	maxIdleDrops   = 10_000
	idleDropMemory = 5 * time.Minute
	// minIdleDrop is the least idle time that is believed. A receiver that restarts closes connections that were just used.
	minIdleDrop = 500 * time.Millisecond
)

func newPool(limit int, timeout time.Duration) *pool {
	return &pool{
		max: limit, timeout: timeout, byID: make(map[string]*endpointIdle), oldest: list.New(),
		drops: cache.NewMap[string, idleDrop](maxIdleDrops),
	}
}

// closedByReceiver notes that the receiver has closed a connection under the request that began at a time; zero: now. It closes the
// endpoint's idle connections: they have been idle for longer, so the next request gets a new one.
func (p *pool) closedByReceiver(cn *conn, began time.Time) {
	if began.IsZero() {
		began = time.Now()
	}
	p.learnIdleTime(cn, began)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.byID[cn.id.endpoint]; s != nil {
		for _, e := range slices.Clone(s.idle) {
			p.remove(e).discard()
		}
	}
}

// learnIdleTime notes that the receiver has closed a connection that was idle until a time.
func (p *pool) learnIdleTime(cn *conn, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	after := max(until.Sub(cn.idleSince), minIdleDrop)
	if before, ok := p.drops.Get(cn.id.endpoint, until); ok && until.Before(before.until) {
		after = min(after, before.after)
	}
	p.drops.Put(cn.id.endpoint, idleDrop{after, until.Add(idleDropMemory)}, until)
}

// idleTime is how long a connection of an endpoint may be idle: most, or a little less than after what time the receiver was seen
// to close it.
func (p *pool) idleTime(endpoint string, most time.Duration, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seen, ok := p.drops.Get(endpoint, now); ok && now.Before(seen.until) {
		return min(most, seen.after*9/10)
	}
	return most
}

// take returns the most recently used connection of that identity, or nil. It closes the
// endpoint's connections of other identities, dead ones, and those with unsolicited data.
// The deadline is that of the request that needs the connection.
func (p *pool) take(id identity, now, deadline time.Time) *conn {
	for {
		cn := p.pop(id)
		if cn == nil {
			return nil
		}
		young := now.Before(cn.until) && now.Sub(cn.created) < maxConnectionAge
		// crypto/tls may write a response to what it reads: a key update.
		if young && cn.SetDeadline(deadline) == nil && cn.noPendingData(true) {
			return cn
		}
		if young {
			p.learnIdleTime(cn, now)
		}
		cn.discard()
	}
}

func (p *pool) pop(id identity) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.byID[id.endpoint]
	if s == nil {
		return nil
	}
	if s.id != id {
		for _, e := range slices.Clone(s.idle) {
			p.remove(e).discard()
		}
		return nil
	}
	return p.remove(s.idle[len(s.idle)-1])
}

// put keeps a connection for the next request of its endpoint. When the endpoint or the
// pool is full, it closes the connection that was idle longest.
func (p *pool) put(cn *conn, perEndpoint int, now time.Time) {
	if cn.id.endpoint == "" || perEndpoint <= 0 || !now.Before(cn.until) {
		cn.discard()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		cn.discard()
		return
	}
	s := p.byID[cn.id.endpoint]
	if s != nil && s.id != cn.id {
		// The endpoint changed while this connection's request was under way.
		cn.discard()
		return
	}
	if s != nil && len(s.idle) >= perEndpoint {
		p.remove(s.idle[0]).discard()
	}
	if p.oldest.Len() >= p.max {
		p.remove(p.oldest.Front()).discard()
	}
	s = p.byID[cn.id.endpoint] // remove deletes an entry with its last connection
	if s == nil {
		s = &endpointIdle{id: cn.id}
		p.byID[cn.id.endpoint] = s
	}
	cn.idleSince = now
	s.idle = append(s.idle, p.oldest.PushBack(cn))
	if p.timer == nil {
		p.timer = time.AfterFunc(p.timeout, p.sweep)
	}
}

// sweep closes the connections that have been idle too long and schedules itself for the
// next one.
func (p *pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for e := p.oldest.Front(); e != nil; e = p.oldest.Front() {
		if left := p.timeout - now.Sub(connOf(e).idleSince); left > 0 && !p.closed {
			p.timer.Reset(left)
			return
		}
		p.remove(e).discard()
	}
	p.timer = nil
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.sweep()
}

// len returns the number of kept connections.
func (p *pool) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.oldest.Len()
}

// remove removes an element from both lists. The caller holds the lock.
func (p *pool) remove(e *list.Element) *conn {
	cn := connOf(e)
	p.oldest.Remove(e)
	s := p.byID[cn.id.endpoint]
	if i := slices.Index(s.idle, e); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
	if len(s.idle) == 0 {
		delete(p.byID, cn.id.endpoint)
	}
	return cn
}

func connOf(e *list.Element) *conn {
	cn, _ := e.Value.(*conn) // the list holds nothing else
	return cn
}
