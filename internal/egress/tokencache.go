package egress

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/retry"
)

const (
	// maxTokens bounds the endpoints whose tokens are kept; one more costs a request.
	maxTokens = 10_000
	// After a failure the token server is left alone for as long as it says, at most
	// maxTokenPause, or else for minTokenPause, twice that after the next, and so on.
	minTokenPause, maxUnsaidTokenPause, maxTokenPause = 5 * time.Second, 30 * time.Second, time.Hour
)

// standing is how an endpoint stands with its token server. It is not changed once it
// is kept: another takes its place.
type standing struct {
	version int64 // of the endpoint
	style   authStyle
	token   *token // nil for none

	failure  *tokenError // the latest, nil after a success
	failures int         // in a row
	pause    time.Time   // until when it is not asked again
	said     time.Time   // until when it wants to be left alone, zero if it did not say
}

// tokens keeps one token for each endpoint. Whoever needs one that is being fetched
// waits for it, and shares what became of it.
type tokens struct {
	mu         sync.Mutex
	byEndpoint *cache.Map[string, *standing]
	fetching   map[string]*fetch
}

type fetch struct {
	version int64
	style   authStyle // how it is asked for; the asker may learn better
	done    chan struct{}
	token   *token
	err     error
}

func newTokens() *tokens {
	return &tokens{byEndpoint: cache.NewMap[string, *standing](maxTokens), fetching: make(map[string]*fetch)}
}

// authStyle is where the client's credentials are in a request for a token.
type authStyle = oauth2.AuthStyle

// asker asks a token server, in the style, and returns the one that it was asked in at
// last.
type asker func(style authStyle) (*token, authStyle, error)

// get returns the endpoint's token; cached tells that an earlier request has used it.
func (t *tokens) get(ctx context.Context, deadline time.Time, r *Request, ask asker) (_ *token, cached bool, _ error) {
	if r.EndpointID == "" {
		got, _, err := ask(oauth2.AuthStyleInHeader)
		return got, false, err
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		kept, running, mine, err := t.enter(r)
		switch {
		case err != nil:
			return nil, false, err
		case kept != nil:
			return kept, true, nil
		case mine:
			running.token, running.style, running.err = ask(running.style)
			t.leave(r.EndpointID, running, time.Now())
			return running.token, false, running.err
		}
		select {
		case <-running.done:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, false, fmt.Errorf("wait for a token: %w", ctx.Err())
			}
			return nil, false, &tokenError{fault: retry.FaultTokenUnavailable, cause: "the token server gave no token in time"}
		}
		// What failed because its own request was cancelled says nothing.
		if running.version == r.Version && (running.err == nil || !errors.Is(running.err, context.Canceled)) {
			return running.token, false, running.err
		}
	}
}

// enter returns the kept token, or the failure that is too recent to ask again, or the
// fetch under way, or one that is the caller's to make.
func (t *tokens) enter(r *Request) (kept *token, running *fetch, mine bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, style := time.Now(), oauth2.AuthStyleInHeader
	if known, _ := t.byEndpoint.Get(r.EndpointID, now); known != nil && known.version == r.Version {
		switch {
		case known.token != nil && now.Before(known.token.until):
			return known.token, nil, false, nil
		case known.failure != nil && now.Before(known.pause):
			return nil, nil, false, known.again(now)
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

// leave ends a fetch and keeps what is to be known of it.
func (t *tokens) leave(endpoint string, f *fetch, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.fetching, endpoint)
	close(f.done)
	if f.err == nil {
		t.byEndpoint.Put(endpoint, &standing{version: f.version, style: f.style, token: f.token}, now)
		return
	}
	failure, ok := errors.AsType[*tokenError](f.err)
	if !ok || failure.fault == retry.FaultUnknown { // because of us
		return
	}
	next := &standing{version: f.version, style: oauth2.AuthStyleInHeader, failure: failure, failures: 1}
	if known, _ := t.byEndpoint.Get(endpoint, now); known != nil && known.version == f.version {
		next.style, next.failures = known.style, known.failures+1
	}
	next.wait(now)
	t.byEndpoint.Put(endpoint, next, now)
}

// wait sets how long the token server is left alone.
func (s *standing) wait(now time.Time) {
	if said := s.failure.wants(now); said > 0 {
		s.said, s.pause = now.Add(said), now.Add(min(said, maxTokenPause))
		return
	}
	pause := minTokenPause << min(s.failures-1, 10)
	s.pause = now.Add(min(pause, maxUnsaidTokenPause))
}

// wants is how long the token server asks to be left alone; 0 when it does not.
func (e *tokenError) wants(now time.Time) time.Duration {
	answer := retry.Answer{Status: 503, RetryAfter: e.retryAfter, Date: e.date, ReceivedAt: now}
	return retry.Classify(answer, retry.Default()).RetryAfter
}

// again is the failure for a request that is made later. Such a request has cost an
// attempt without asking anybody, so the next one shall not come before it may ask.
func (s *standing) again(now time.Time) *tokenError {
	left := max(s.pause.Sub(now), s.said.Sub(now))
	return &tokenError{fault: s.failure.fault, cause: s.failure.cause, retryAfter: strconv.FormatInt(int64(left/time.Second)+1, 10)}
}

// drop forgets a token that the receiver did not want, not how to ask for another.
func (t *tokens) drop(endpoint string, unwanted *token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if known, _ := t.byEndpoint.Get(endpoint, now); known != nil && known.token == unwanted {
		t.byEndpoint.Put(endpoint, &standing{version: known.version, style: known.style}, now)
	}
}
