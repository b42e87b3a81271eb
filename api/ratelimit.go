package api

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/everpost/everpost/internal/webhook"
)

// Limits knows what bounds a tenant. It is asked with each request and answers from
// memory.
type Limits interface {
	TenantLimits(ctx context.Context, tenantID string) (webhook.Limits, error)
}

// maxBuckets bounds the tenants whose rate is remembered. When there are more, those
// whose bucket is full are forgotten first: they lose nothing by it.
const maxBuckets = 10_000

// buckets are the token buckets of the tenants that have a limit of their rate. Each
// process has its own: two of them let twice as many requests through.
type buckets struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

// admit takes a token for a request made with a key of a tenant, or says when to come
// back. Operators are not limited: they have to be able to put things right.
func (s *Server) admit(ctx context.Context, key webhook.Key) error {
	if key.TenantID == "" {
		return nil
	}
	limits, err := s.Limits.TenantLimits(ctx, key.TenantID)
	if err != nil || limits.RequestsPerSecond == 0 {
		return err
	}
	wait := s.buckets.take(key.TenantID, limits, s.Now())
	if wait == 0 {
		return nil
	}
	return &webhook.Error{
		Code: webhook.CodeRateLimited, RetryAfter: wait,
		Message: "the tenant may make " + formatFloat(limits.RequestsPerSecond) + " requests per second, " +
			strconv.Itoa(limits.Burst) + " at once",
	}
}

// take takes a token of the tenant's bucket. When there is none it returns how long
// until there is one, and takes nothing.
func (b *buckets) take(tenantID string, limits webhook.Limits, now time.Time) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bucket := b.of[tenantID]
	switch {
	case bucket == nil:
		b.makeRoom(now)
		bucket = rate.NewLimiter(rate.Limit(limits.RequestsPerSecond), limits.Burst)
		b.of[tenantID] = bucket
	case bucket.Limit() != rate.Limit(limits.RequestsPerSecond) || bucket.Burst() != limits.Burst:
		bucket.SetLimitAt(now, rate.Limit(limits.RequestsPerSecond))
		bucket.SetBurstAt(now, limits.Burst)
	}
	reserved := bucket.ReserveN(now, 1)
	wait = reserved.DelayFrom(now)
	if wait > 0 {
		reserved.CancelAt(now)
	}
	return wait
}

// makeRoom forgets buckets when there are too many: those that are full, and any others
// until half of the room is free, so that it is not looked for again at once.
func (b *buckets) makeRoom(now time.Time) {
	if len(b.of) < maxBuckets {
		return
	}
	for id, bucket := range b.of {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(b.of, id)
		}
	}
	for id := range b.of {
		if len(b.of) <= maxBuckets/2 {
			return
		}
		delete(b.of, id)
	}
}
