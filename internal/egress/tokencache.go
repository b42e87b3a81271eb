package egress

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/retry"
)

const (
	// maxTokens bounds the endpoints whose tokens are cached; a token counts once for each tokenUnit
	// bytes. An endpoint beyond the bound costs one more token request.
	maxTokens = 10_000
	tokenUnit = 4 << 10
	// After a failure no token is requested for as long as the token server says, at most
	// maxTokenPause. If it says nothing, the pause starts at minTokenPause and doubles with
	// each failure up to maxUnsaidTokenPause.
	minTokenPause, maxUnsaidTokenPause, maxTokenPause = 5 * time.Second, 30 * time.Second, time.Hour
)

// tokenState is what is known of an endpoint's token server. It is immutable once cached: a
// new one replaces it.
type tokenState struct {
	version int64 // of the endpoint
	style   authStyle
	token   *token // nil for none

	failure   *knownError // the latest, nil after a success
	failures  int         // in a row
	pause     time.Time   // no token request before then
	requested time.Time   // end of the pause that the server asked for, zero if none
}

// tokens caches one token for each endpoint. Concurrent requests for the same endpoint wait
// for one fetch and share its result.
type tokens struct {
	mu         sync.Mutex
	byEndpoint *cache.Map[string, *tokenState]
	fetching   map[string]*fetch
}

type fetch struct {
	version int64
	style   authStyle // of the request; fetching may find that the server needs another
	done    chan struct{}
	token   *token
	err     error
}

func newTokens() *tokens {
	return &tokens{byEndpoint: cache.NewMap[string, *tokenState](maxTokens), fetching: make(map[string]*fetch)}
}

// fetchFunc requests a token in the style. It returns the style of its last request.
type fetchFunc func(style authStyle) (*token, authStyle, error)

// get returns the endpoint's token. cached reports that an earlier request fetched it.
func (t *tokens) get(ctx context.Context, deadline time.Time, r *Request, ask fetchFunc) (_ *token, cached bool, _ error) {
	if r.EndpointID == "" {
		got, _, err := ask(styleHeader)
		return got, false, err
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		kept, running, mine, err := t.begin(r)
		switch {
		case err != nil:
			return nil, false, err
		case kept != nil:
			return kept, true, nil
		case mine:
			running.token, running.style, running.err = ask(running.style)
			t.finish(r.EndpointID, running, time.Now())
			return running.token, false, running.err
		}
		select {
		case <-running.done:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, false, fmt.Errorf("wait for a token: %w", ctx.Err())
			}
			return nil, false, &knownError{class: retry.FailureTokenUnavailable, cause: "the token server gave no token in time"}
		}
		// A fetch that failed because its own request was cancelled says nothing about the
		// server.
		if running.version == r.Version && (running.err == nil || !errors.Is(running.err, context.Canceled)) {
			return running.token, false, running.err
		}
	}
}

// begin returns the cached token, or the failure if it is too recent for another request,
// or the fetch under way, or a new fetch that the caller must make (mine).
func (t *tokens) begin(r *Request) (kept *token, running *fetch, mine bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, style := time.Now(), styleHeader
	if known, _ := t.byEndpoint.Get(r.EndpointID, now); known != nil && known.version == r.Version {
		switch {
		case known.token != nil && now.Before(known.token.until):
			return known.token, nil, false, nil
		case known.failure != nil && now.Before(known.pause):
			return nil, nil, false, known.pausedError(now)
		}
		style = known.style
	}
	if running := t.fetching[r.EndpointID]; running != nil {
		return nil, running, false, nil
	}
	running = &fetch{version: r.Version, style: style, done: make(chan struct{})}
	t.fetching[r.EndpointID] = running
	return nil, running, true, nil
}

// finish ends a fetch and caches its result.
func (t *tokens) finish(endpoint string, f *fetch, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.fetching, endpoint)
	close(f.done)
	if f.err == nil {
		kept := &tokenState{version: f.version, style: f.style, token: f.token}
		t.byEndpoint.PutWeighing(endpoint, kept, 1+len(f.token.header)/tokenUnit, now)
		return
	}
	failure, ok := errors.AsType[*knownError](f.err)
	if !ok || failure.own {
		return
	}
	next := &tokenState{version: f.version, style: styleHeader, failure: failure, failures: 1}
	if known, _ := t.byEndpoint.Get(endpoint, now); known != nil && known.version == f.version {
		next.style, next.failures = known.style, known.failures+1
	}
	next.setPause(now)
	t.byEndpoint.Put(endpoint, next, now)
}

// setPause sets until when no token is requested.
func (s *tokenState) setPause(now time.Time) {
	if requested := s.failure.requestedPause(now); requested > 0 {
		s.requested, s.pause = now.Add(requested), now.Add(min(requested, maxTokenPause))
		return
	}
	pause := minTokenPause << min(s.failures-1, 10)
	s.pause = now.Add(min(pause, maxUnsaidTokenPause))
}

// requestedPause is how long the token server asks clients to wait; 0 when it does not.
func (e *knownError) requestedPause(now time.Time) time.Duration {
	answer := retry.Answer{Status: 503, RetryAfter: e.retryAfter, Date: e.date, ReceivedAt: now}
	return retry.Classify(answer, retry.Default()).RetryAfter
}

// pausedError is the failure for a request that comes during the pause. Its Retry-After is
// what remains of the pause: the request used up an attempt without a token request, so the
// next attempt must not come before one is allowed.
func (s *tokenState) pausedError(now time.Time) *knownError {
	left := max(s.pause.Sub(now), s.requested.Sub(now))
	return &knownError{class: s.failure.class, cause: s.failure.cause, retryAfter: strconv.FormatInt(int64(left/time.Second)+1, 10)}
}

// drop removes a token that the receiver rejected and keeps the style.
func (t *tokens) drop(endpoint string, unwanted *token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if known, _ := t.byEndpoint.Get(endpoint, now); known != nil && known.token == unwanted {
		t.byEndpoint.Put(endpoint, &tokenState{version: known.version, style: known.style}, now)
	}
}
