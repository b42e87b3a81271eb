package vault

import (
	"bytes"
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// maxCachedKeys is the limit per process: 50,000 keys take about 8 MiB.
	maxCachedKeys = 50_000
	// keyFresh is how long a key is used without a request, keyKept how long it is kept at all.
	keyFresh = 15 * time.Minute
	keyKept  = 24 * time.Hour

	evictionSample = 8
)

// keyCache holds data keys in memory by their wrapped form. The secrets that they decrypt are in memory
// too while requests are sent to their endpoints.
type keyCache struct {
	limit int

	mu   sync.Mutex
	keys map[[sha256.Size]byte]*cachedKey
}

type cachedKey struct {
	key     [KeyBytes]byte
	fetched time.Time // when the key management service returned it
	used    time.Time
}

func newKeyCache(limit int) *keyCache {
	return &keyCache{limit: limit, keys: map[[sha256.Size]byte]*cachedKey{}}
}

// get returns a copy of the data key, or nil if it is unknown or too old.
func (c *keyCache) get(wrapped []byte, now time.Time) (key []byte, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hash := sha256.Sum256(wrapped)
	known, ok := c.keys[hash]
	if !ok {
		return nil, false
	}
	age := now.Sub(known.fetched)
	if age >= keyKept {
		c.remove(hash)
		return nil, false
	}
	known.used = now
	return bytes.Clone(known.key[:]), age < keyFresh
}

func (c *keyCache) put(wrapped, key []byte, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hash := sha256.Sum256(wrapped)
	if _, known := c.keys[hash]; !known && len(c.keys) >= c.limit {
		c.evict()
	}
	c.keys[hash] = &cachedKey{key: [KeyBytes]byte(key), fetched: now, used: now}
}

// evict removes the least recently used of a few keys, which the map's random order selects.
func (c *keyCache) evict() {
	var (
		oldest      [sha256.Size]byte
		oldestSince time.Time
		seen        int
	)
	for hash, known := range c.keys {
		if seen == 0 || known.used.Before(oldestSince) {
			oldest, oldestSince = hash, known.used
		}
		seen++
		if seen == evictionSample {
			break
		}
	}
	c.remove(oldest)
}

func (c *keyCache) forget(wrapped []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(sha256.Sum256(wrapped))
}

func (c *keyCache) remove(hash [sha256.Size]byte) {
	if known, ok := c.keys[hash]; ok {
		clear(known.key[:])
		delete(c.keys, hash)
	}
}
