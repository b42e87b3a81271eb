package api

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

// Bounds of look-ups.
const (
	MaxLookUps       = 4 // at a time: invented tokens must not take the connections of other requests
	maxUnknownTokens = 10_000
	lookUpWait       = 3 * time.Second
)

// SessionReader reads sessions.
type SessionReader interface {
	// Session reads a session that has not ended; else CodeNotFound. Unless used is set, it does not count as a use,
	// which keeps a session.
	Session(ctx context.Context, sum [sha256.Size]byte, used bool) (webhook.ConsoleSession, error)
}

// SessionLookUps looks sessions up by the hashes of their tokens. Invented tokens take a bounded part of the store, and of that at most half
// from one source. It is safe for concurrent use.
type SessionLookUps struct {
	busy  error
	slots *fair.Semaphore // by source

	mu sync.Mutex
	// unknown are tokens that have no session, and will have none: a session's token is new, and one that has ended does not come back.
	unknown *cache.Map[[sha256.Size]byte, struct{}]
}

// NewSessionLookUps makes a SessionLookUps. busy is its error when there is no place for a look-up.
func NewSessionLookUps(busy error) *SessionLookUps {
	return &SessionLookUps{
		busy: busy, slots: fair.NewDynamic(MaxLookUps, 1), unknown: cache.NewMap[[sha256.Size]byte, struct{}](maxUnknownTokens),
	}
}

// Start waits until a token from the source may be looked up, up to 3 s.
func (l *SessionLookUps) Start(ctx context.Context, source netip.Addr) (done func(), err error) {
	share := NetworkOf(source).String()
	if !l.slots.Acquire(ctx, share, 1, lookUpWait) {
		return nil, l.busy
	}
	return func() { l.slots.Release(share, 1) }, nil
}

// Session reads the session of a token that came from the source: see SessionReader.
func (l *SessionLookUps) Session(
	ctx context.Context, from SessionReader, source netip.Addr, sum [sha256.Size]byte, used bool,
) (webhook.ConsoleSession, error) {
	if l.isUnknown(sum) {
		return webhook.ConsoleSession{}, webhook.NotFound("session")
	}
	done, err := l.Start(ctx, source)
	if err != nil {
		return webhook.ConsoleSession{}, err
	}
	defer done()
	found, err := from.Session(ctx, sum, used)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unknown.Put(sum, struct{}{}, time.Now())
	}
	return found, err
}

func (l *SessionLookUps) isUnknown(sum [sha256.Size]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, unknown := l.unknown.Peek(sum)
	return unknown
}
