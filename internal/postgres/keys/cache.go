package keys

import (
	"context"
	"crypto/subtle"
	"errors"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	maxCachedKeys = 20_000

	// Keys that do not exist are cached apart from those that do, so that a flood of
	// invented ids cannot evict real keys. They are cached briefly: the operator may be
	// about to create the key that a client already uses.
	maxMissingKeys  = 20_000
	missingKeyFor   = time.Second
	maxKnownKeys    = 100_000
	maxKeyLookUps   = 4 // at a time, of each kind; invented ids must not take the pool
	keyLookUpWait   = time.Second
	maxPendingUsage = 20_000
)

// keyCache keeps API keys in memory. Creation, revocation and deletion take effect
// at once in the process that made them and within 2 s in the others.
type keyCache struct {
	Keys *cache.Cache[webhook.KeyID, *webhook.Key] // a key that does not exist is an error of its fill

	now func() time.Time // by the database's clock

	// One slot for each look-up under way. Ids that had a key before have slots of their
	// own: a flood of invented ids cannot delay them.
	knownLookUps, LookUps chan struct{}

	mu      sync.Mutex
	Known   *cache.Map[webhook.KeyID, struct{}] // existed when they were looked up last
	Missing *cache.Map[webhook.KeyID, missingKey]
	Written *cache.Map[webhook.KeyID, time.Time] // uses that takeUse returned within the last minute
	used    map[webhook.KeyID]time.Time          // uses to be written
}

// missingKey is an invalid key: why it is, and until when that is cached.
type missingKey struct {
	why   webhook.KeyError
	until time.Time
}

func newKeyCache(s *postgres.Core, read func(context.Context, webhook.KeyID) (*webhook.Key, error)) *keyCache {
	c := &keyCache{
		now:          s.Now,
		knownLookUps: make(chan struct{}, maxKeyLookUps),
		LookUps:      make(chan struct{}, maxKeyLookUps),
		Known:        cache.NewMap[webhook.KeyID, struct{}](maxKnownKeys),
		Missing:      cache.NewMap[webhook.KeyID, missingKey](maxMissingKeys),
		Written:      cache.NewMap[webhook.KeyID, time.Time](maxCachedKeys),
		used:         map[webhook.KeyID]time.Time{},
	}
	c.Keys = postgres.NewCache(s, maxCachedKeys, func(ctx context.Context, id webhook.KeyID) (cache.Filled[*webhook.Key], error) {
		k, err := c.lookUp(ctx, id, read)
		return cache.Filled[*webhook.Key]{Value: k}, err
	})
	s.Subscribe(c)
	return c
}

// lookUp reads a key. It bounds the concurrent look-ups. CodeUnavailable: no slot was free in
// time.
func (c *keyCache) lookUp(ctx context.Context, id webhook.KeyID, read func(context.Context, webhook.KeyID) (*webhook.Key, error)) (*webhook.Key, error) {
	slots, refusal := c.LookUps, "too many unknown keys are being tried"
	if c.isKnown(id) {
		slots, refusal = c.knownLookUps, "too many keys are being looked up"
	}
	timer := time.NewTimer(keyLookUpWait)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return nil, postgres.Translate("look up a key", ctx.Err())
	case <-timer.C:
		return nil, &webhook.Error{Code: webhook.CodeUnavailable, Message: refusal, RetryAfter: time.Second}
	}
	k, err := read(ctx, id)
	if err == nil && k == nil {
		err = errBadKey(webhook.ErrKeyUnknown)
	}
	if webhook.CodeOf(err) == webhook.CodeUnauthenticated {
		c.know(id, false)
	}
	if err != nil {
		return nil, err
	}
	c.know(id, true)
	return k, nil
}

func (c *keyCache) isKnown(id webhook.KeyID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.Known.Peek(id)
	return known
}

// know stores whether the key exists.
func (c *keyCache) know(id webhook.KeyID, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if there {
		c.Known.Put(id, struct{}{}, time.Now())
	} else {
		c.Known.Delete(id)
	}
}

func (c *keyCache) authenticate(ctx context.Context, id webhook.KeyID, sum [32]byte) (webhook.Key, error) {
	now := time.Now()
	k, missing, err := c.find(ctx, id, now)
	if err != nil {
		return webhook.Key{}, err
	}
	// Compared even when there is no such key, so that it takes as long as a wrong secret.
	matches := subtle.ConstantTimeCompare(k.SHA256[:], sum[:]) == 1
	expired := !k.ExpiresAt.IsZero() && !c.now().Before(k.ExpiresAt)
	switch {
	case missing != "":
		return webhook.Key{}, errBadKey(missing)
	case !matches:
		return webhook.Key{}, errBadKey(webhook.ErrKeyWrongSecret)
	case expired:
		return webhook.Key{}, errBadKey(webhook.ErrKeyExpired)
	}
	return *k, nil
}

// find returns the key and "", or an empty key and why it is invalid.
func (c *keyCache) find(ctx context.Context, id webhook.KeyID, now time.Time) (*webhook.Key, webhook.KeyError, error) {
	if why := c.missingWhy(id, now); why != "" {
		return &webhook.Key{}, why, nil
	}
	k, err := c.Keys.Get(ctx, id)
	if webhook.CodeOf(err) == webhook.CodeUnauthenticated {
		why, known := errors.AsType[webhook.KeyError](err)
		if !known {
			why = webhook.ErrKeyUnknown
		}
		c.remember(id, now, why)
		return &webhook.Key{}, why, nil
	}
	if err != nil {
		return nil, "", err
	}
	return k, "", nil
}

func errBadKey(why webhook.KeyError) error {
	return &webhook.Error{Code: webhook.CodeUnauthenticated, Message: "the key is not valid", Err: why}
}

// missingWhy is why the key is invalid; "" when the cache does not know.
func (c *keyCache) missingWhy(id webhook.KeyID, now time.Time) webhook.KeyError {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gone, ok := c.Missing.Get(id, now); ok && now.Before(gone.until) {
		return gone.why
	}
	return ""
}

func (c *keyCache) remember(id webhook.KeyID, now time.Time, why webhook.KeyError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Missing.Put(id, missingKey{why: why, until: now.Add(missingKeyFor)}, now)
}

// use notes that a key was used, at most once a minute.
func (c *keyCache) use(id webhook.KeyID, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, _ := c.Written.Peek(id) // an evicted one is written again, but the statement keeps to the minute, too
	if now.Sub(last) < keyUseStep || len(c.used) >= maxPendingUsage {
		return
	}
	c.Written.Put(id, now, now)
	c.used[id] = now
}

// takeUse returns the uses to be written, and forgets them.
func (c *keyCache) takeUse() map[webhook.KeyID]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := c.used
	c.used = map[webhook.KeyID]time.Time{}
	return used
}

func (c *keyCache) forget(id webhook.KeyID) {
	c.Keys.Forget(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Missing.Delete(id)
}

func (c *keyCache) forgetTenant(tenantID string) {
	c.Keys.ForgetIf(func(k *webhook.Key) bool { return k.TenantID == tenantID })
}

// Changed implements postgres.ChangeHandler.
func (c *keyCache) Changed(of postgres.Change) {
	switch of.Kind {
	case postgres.ChangeKey:
		if id, err := webhook.ParseKeyID(of.ID); err == nil {
			c.forget(id)
		}
	case postgres.ChangeTenant:
		c.forgetTenant(of.Tenant)
	case postgres.ChangeEndpoint, postgres.ChangeMoved, postgres.ChangeEventType:
	}
}

func (c *keyCache) ForgetAll() {
	c.Keys.ForgetAll()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Missing.Clear()
}

func (c *keyCache) close() { c.Keys.Close() }
