// What the tests look into.

package keys

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

func (s *Keys) FlushUse(a0 context.Context)        { s.flushUse(a0) }
func (s *keyCache) Close()                         { s.close() }
func (s *keyCache) Forget(a0 webhook.KeyID)        { s.forget(a0) }
func (s *keyCache) IsKnown(a0 webhook.KeyID) bool  { return s.isKnown(a0) }
func (s *keyCache) Know(a0 webhook.KeyID, a1 bool) { s.know(a0, a1) }
func (s *keyCache) LookUp(a0 context.Context, a1 webhook.KeyID, a2 func(context.Context, webhook.KeyID) (*webhook.Key, error)) (*webhook.Key, error) {
	return s.lookUp(a0, a1, a2)
}
func (s *keyCache) MissingWhy(a0 webhook.KeyID, a1 time.Time) webhook.KeyError {
	return s.missingWhy(a0, a1)
}
func (s *keyCache) Remember(a0 webhook.KeyID, a1 time.Time, a2 webhook.KeyError) {
	s.remember(a0, a1, a2)
}
func (s *keyCache) TakeUse() map[webhook.KeyID]time.Time { return s.takeUse() }
func (s *keyCache) Use(a0 webhook.KeyID, a1 time.Time)   { s.use(a0, a1) }

const MaxCachedKeys = maxCachedKeys
const MaxKeyLookUps = maxKeyLookUps
const MaxKnownKeys = maxKnownKeys
const MaxMissingKeys = maxMissingKeys
const MaxPendingUsage = maxPendingUsage
const MissingKeyFor = missingKeyFor

var NewKeyCache = newKeyCache
