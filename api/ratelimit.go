package api

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/everpost/everpost/internal/webhook"
)

// Limits returns a tenant's limits. It is called for each request and answers from memory.
type Limits interface {
	TenantLimits(ctx context.Context, tenantID string) (webhook.Limits, error)
}

// maxBuckets limits the number of buckets. Beyond it, full buckets are removed first, which has no
// effect on their tenants.
const maxBuckets = 10_000

// buckets are the token buckets of the tenants with a rate limit. Each process has its own, so two
// processes admit twice as many requests.
type buckets struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

// limiter keeps the requests of tenants within their rates.
type limiter struct {
	limits  Limits
	now     func() time.Time
	buckets buckets
}

func newLimiter(limits Limits, now func() time.Time) *limiter {
	return &limiter{limits: limits, now: now, buckets: buckets{of: map[string]*rate.Limiter{}}}
}

// The least that pages may do for a tenant with a limit: each makes several requests.
const (
	pagesRate  = 20
	pagesBurst = 100
)

// admit takes a token for a request with a tenant's key, or returns an error with RetryAfter. Requests that do not
// post events take one of another bucket, too.
// Operators are not limited, so that they can always intervene. Pages have a bucket of their own, so that those of the console, and those
// that a product makes with portal tokens, do not count against the limit of the tenant's own requests.
func (l *limiter) admit(ctx context.Context, r route, key webhook.Key, pages bool) error {
	if key.TenantID == "" {
		return nil
	}
	limits, err := l.limits.TenantLimits(ctx, key.TenantID)
	if err != nil {
		return err
	}
	if !r.postsEvents() {
		others := webhook.Limits{RequestsPerSecond: limits.OtherRequestsPerSecond, Burst: limits.OtherBurst}
		if err := l.takeToken("other\x00"+key.TenantID, " other than posting events", others, pages); err != nil {
			return err
		}
	}
	return l.takeToken(key.TenantID, "", limits, pages)
}

// takeToken takes a token of a bucket for certain requests, or returns an error with RetryAfter.
func (l *limiter) takeToken(bucket, of string, limits webhook.Limits, pages bool) error {
	if limits.RequestsPerSecond == 0 {
		return nil
	}
	caller := "the tenant"
	if pages {
		bucket, caller = "pages\x00"+bucket, "the tenant's pages"
		limits.RequestsPerSecond, limits.Burst = max(limits.RequestsPerSecond, pagesRate), max(limits.Burst, pagesBurst)
	}
	wait := l.buckets.take(bucket, limits, l.now())
	if wait == 0 {
		return nil
	}
	return &webhook.Error{
		Code: webhook.CodeRateLimited, RetryAfter: wait,
		Message: caller + " may make " + formatFloat(limits.RequestsPerSecond) + " requests per second" + of + ", " +
			strconv.Itoa(limits.Burst) + " at once",
	}
}

// take takes a token of the tenant's bucket. If there is none, it returns the time until there is
// one.
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

// makeRoom removes buckets when there are too many: first the full ones, then any others until half
// of the capacity is free, so that it does not run again soon.
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
