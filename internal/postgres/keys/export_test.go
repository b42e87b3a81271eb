// Names for the tests, which are in a package of their own.

package keys

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

func (s *Keys) FlushUse(ctx context.Context)          { s.flushUse(ctx) }
func (s *keyCache) Close()                            { s.close() }
func (s *keyCache) Forget(id webhook.KeyID)           { s.forget(id) }
func (s *keyCache) IsKnown(id webhook.KeyID) bool     { return s.isKnown(id) }
func (s *keyCache) Know(id webhook.KeyID, there bool) { s.know(id, there) }
func (s *keyCache) LookUp(ctx context.Context, id webhook.KeyID, read func(context.Context, webhook.KeyID) (*webhook.Key, error)) (*webhook.Key, error) {
	return s.lookUp(ctx, id, read)
}
func (s *keyCache) MissingWhy(id webhook.KeyID, now time.Time) webhook.KeyError {
	return s.missingWhy(id, now)
}
func (s *keyCache) Remember(id webhook.KeyID, now time.Time, why webhook.KeyError) {
	s.remember(id, now, why)
}
func (s *keyCache) TakeUse() map[webhook.KeyID]time.Time { return s.takeUse() }
func (s *keyCache) Use(id webhook.KeyID, now time.Time)  { s.use(id, now) }

const MaxCachedKeys = maxCachedKeys
const MaxKeyLookUps = maxKeyLookUps
const MaxKnownKeys = maxKnownKeys
const MaxMissingKeys = maxMissingKeys
const MaxPendingUsage = maxPendingUsage
const MissingKeyFor = missingKeyFor

var NewKeyCache = newKeyCache
