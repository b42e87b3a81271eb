package console

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/everpost/everpost/internal/fair"
)

// Limits on the work for readers, so that it does not slow down deliveries.
const (
	maxPages     = 16               // pages that are being made at a time, in a process
	maxLooks     = 1                // live pages at a time that are made again: together they would delay deliveries
	maxSlow      = 8                // pages at a time that wait for others, or whose form is big
	maxTransfers = 64               // forms at a time that are being read, and large answers that are being sent
	busyWait     = 3 * time.Second  // for one of these places
	pageTime     = 15 * time.Second // to make a page
	testTime     = 50 * time.Second // of a page that waits for a receiver's answer
	maxForm      = 64 << 10         // bytes of a form
	maxBigForm   = 1 << 20          // bytes of a form with a payload, whose percent-encoding triples it
	maxPublic    = 8 << 10          // bytes of a form before a log-in
	smallAnswer  = 16 << 10         // bytes of an answer that needs no place to be sent
)

// Failed log-ins of one network: ten at once, then one every six seconds. Log-ins with one key: sixty at once, and then as
// often: a key may be that of a team.
const (
	guessBurst = 10
	logInBurst = 60
	logInEvery = 6 * time.Second
	maxSources = 10_000
)

// logInLimiter limits log-ins by what they come from: a key, or a network.
type logInLimiter[K comparable] struct {
	burst int

	mu    sync.Mutex
	of    map[K]*rate.Limiter
	swept time.Time
}

func newLogInLimiter[K comparable](burst int) *logInLimiter[K] {
	return &logInLimiter[K]{burst: burst, of: map[K]*rate.Limiter{}}
}

// allow reports whether a source may try now.
func (a *logInLimiter[K]) allow(source K, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	limiter := a.of[source]
	if limiter == nil {
		var others K
		limiter = a.of[others] // see count
	}
	return limiter == nil || limiter.TokensAt(now) >= 1
}

// count counts an attempt. Sources beyond maxSources count as one, so that many of them get no
// more attempts than that.
func (a *logInLimiter[K]) count(source K, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[source] == nil && len(a.of) >= maxSources {
		a.sweep(now)
		if len(a.of) >= maxSources {
			var others K
			source = others
		}
	}
	if a.of[source] == nil {
		a.of[source] = rate.NewLimiter(rate.Every(logInEvery), a.burst)
	}
	a.of[source].AllowN(now, 1)
}

// sweep removes the limiters of the sources that have all their attempts again.
func (a *logInLimiter[K]) sweep(now time.Time) {
	if now.Sub(a.swept) < logInEvery {
		return
	}
	a.swept = now
	for source, limiter := range a.of {
		if limiter.TokensAt(now) >= float64(a.burst) {
			delete(a.of, source)
		}
	}
}

// places bounds work for readers, and shares it: a tenant gets as much as is free, so that another tenant always
// gets some. A quarter is for operators only.
type places struct {
	all     *fair.Semaphore
	tenants *fair.Semaphore
}

func newPlaces(n int) places {
	return places{fair.NewCapped(n, n), fair.NewDynamic(n-n/4, 1)} //nolint:mnd // a quarter
}

// enter waits for a place. leave may be called more than once.
func (p places) enter(ctx context.Context, share string, wait time.Duration) (leave func(), ok bool) {
	if share != ofOperators && !p.tenants.Acquire(ctx, share, 1, wait) {
		return nil, false
	}
	if !p.all.Acquire(ctx, share, 1, wait) {
		if share != ofOperators {
			p.tenants.Release(share, 1)
		}
		return nil, false
	}
	return sync.OnceFunc(func() {
		p.all.Release(share, 1)
		if share != ofOperators {
			p.tenants.Release(share, 1)
		}
	}), true
}

// Streams under way at a time.
const (
	maxStreams        = 100
	maxSessionStreams = 6
)

// streams bounds the streams of a process, of each tenant and of each session, and ends them all when it stops.
type streams struct {
	places places

	mu   sync.Mutex
	of   map[string]int // by the session's token
	done chan struct{}
	once sync.Once
}

func newStreams() *streams {
	return &streams{places: newPlaces(maxStreams), of: map[string]int{}, done: make(chan struct{})}
}

// enter takes a place for a stream of a session, if there is one.
func (s *streams) enter(ctx context.Context, of session) (leave func(), ok bool) {
	s.mu.Lock()
	full := s.of[of.token] >= maxSessionStreams
	if !full {
		s.of[of.token]++
	}
	s.mu.Unlock()
	if full {
		return nil, false
	}
	free := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.of[of.token]--
		if s.of[of.token] == 0 {
			delete(s.of, of.token)
		}
	}
	done, ok := s.places.enter(ctx, of.share(), 0)
	if !ok {
		free()
		return nil, false
	}
	return func() { done(); free() }, true
}

func (s *streams) close() { s.once.Do(func() { close(s.done) }) }
