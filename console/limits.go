package console

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Log-in attempts of one source: ten at once, then one every six seconds.
const (
	attemptBurst = 10
	attemptEvery = 6 * time.Second
	maxSources   = 10_000
)

// attempts limits log-in attempts by source address.
type attempts struct {
	mu sync.Mutex
	of map[netip.Prefix]*rate.Limiter
}

func newAttempts() *attempts { return &attempts{of: map[netip.Prefix]*rate.Limiter{}} }

// allow reports whether a source may try now. A network of IPv6 counts as one source.
func (a *attempts) allow(source netip.Addr, now time.Time) bool {
	bits := 32
	if source.Is6() {
		bits = 64
	}
	network, _ := source.Prefix(bits) // an error: the address is not known, and all of those count as one
	a.mu.Lock()
	defer a.mu.Unlock()
	limiter := a.of[network]
	if limiter == nil {
		if len(a.of) >= maxSources {
			clear(a.of)
		}
		limiter = rate.NewLimiter(rate.Every(attemptEvery), attemptBurst)
		a.of[network] = limiter
	}
	return limiter.AllowN(now, 1)
}

// Streams under way at a time.
const (
	maxStreams        = 100
	maxSessionStreams = 6
)

// streams bounds the streams of a process and of each session, and ends them all when it stops.
type streams struct {
	mu   sync.Mutex
	of   map[string]int // by the session's token
	all  int
	done chan struct{}
	once sync.Once
}

func newStreams() *streams { return &streams{of: map[string]int{}, done: make(chan struct{})} }

// enter takes a place for a stream, if there is one.
func (s *streams) enter(token string) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || s.of[token] >= maxSessionStreams {
		return nil, false
	}
	s.all++
	s.of[token]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		s.of[token]--
		if s.of[token] == 0 {
			delete(s.of, token)
		}
	}, true
}

func (s *streams) close() { s.once.Do(func() { close(s.done) }) }
