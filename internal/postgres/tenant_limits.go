package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	maxCachedLimits = 50_000

	// pendingFor is how long a count of a tenant's pending deliveries is used. What this
	// process accepts meanwhile is added to it; what others accept, and what comes to
	// rest, shows in the next count.
	pendingFor = 3 * time.Second
)

// quotas are the limits of tenants in memory. An event costs a look into it; only a
// tenant with a quota of pending deliveries costs a query, one every few seconds.
type quotas struct {
	*core

	limits  *cache.Cache[string, webhook.Limits]
	pending *cache.Cache[string, *pendingCount]
	byPlan  webhook.Limits // the operator's defaults

	countFor time.Duration // how long a count of pending deliveries is used
}

// pendingCount is about how many deliveries of a tenant are not at rest.
type pendingCount struct {
	counted int // at most one more than the quota
	added   atomic.Int64
}

func (p *pendingCount) now() int { return p.counted + int(p.added.Load()) }

func newQuotas(s *core, defaults webhook.Limits) *quotas {
	q := &quotas{core: s, byPlan: defaults, countFor: pendingFor}
	q.limits = newCache(s, maxCachedLimits, func(ctx context.Context, tenantID string) (cache.Filled[webhook.Limits], error) {
		limits, err := q.read(ctx, tenantID)
		return cache.Filled[webhook.Limits]{Value: limits.Or(q.byPlan)}, err
	})
	q.pending = cache.New(cache.Config[string, *pendingCount]{
		Limit: maxCachedLimits, Life: func() time.Duration { return q.countFor }, Translate: translateCache,
		Fill: func(ctx context.Context, tenantID string) (cache.Filled[*pendingCount], error) {
			return cache.Filled[*pendingCount]{Value: q.countPending(ctx, tenantID)}, nil
		},
	})
	s.subscribe(q)
	return q
}

// TenantLimits are the limits in force for a tenant, the operator's defaults included.
// They come from memory. CodeNotFound: no such tenant.
func (s *Tenants) TenantLimits(ctx context.Context, tenantID string) (webhook.Limits, error) {
	return s.quotas.limits.Get(ctx, tenantID)
}

func (q *quotas) read(ctx context.Context, tenantID string) (limits webhook.Limits, err error) {
	err = q.ofTenant(tenantID).withConn(ctx, "read limits of "+tenantID, func(ctx context.Context, conn querier) error {
		return scanLimits(conn.QueryRow(ctx, `select limits from tenants where id = $1`, tenantID), &limits)
	})
	return limits, err
}

func scanLimits(row pgx.Row, limits *webhook.Limits) error {
	err := row.Scan(limits)
	if isNoRows(err) {
		return webhook.NotFound("tenant")
	}
	if err != nil {
		return fmt.Errorf("read limits: %w", err)
	}
	return nil
}

// countPending counts a tenant's deliveries that are not at rest: those that have no
// first record yet, and those of its endpoints that are open. It does not count beyond
// the quota. A count that fails is none: a quota protects the installation and must
// not be what refuses events.
func (q *quotas) countPending(ctx context.Context, tenantID string) *pendingCount {
	found := &pendingCount{}
	limits, err := q.limits.Get(ctx, tenantID)
	if err == nil && limits.PendingDeliveries > 0 {
		err = q.ofTenant(tenantID).withConn(ctx, "count pending deliveries of "+tenantID, func(ctx context.Context, conn querier) error {
			return conn.QueryRow(ctx, `
				select (select count(*) from (select from outbox where tenant_id = $1 limit $2) waiting) +
					(select count(*) from (
						select from endpoints e join deliveries d on d.endpoint_id = e.id and d.state < 3
						where e.tenant_id = $1 and e.deleted_at is null limit $2) open)`,
				tenantID, limits.PendingDeliveries+1).Scan(&found.counted)
		})
	}
	if err != nil {
		q.log.WarnContext(ctx, "a tenant's pending deliveries were not counted; its quota is not in force for a moment",
			slog.String("tenant", tenantID), slog.Any("error", err))
	}
	return found
}

// allowEndpoint refuses one more endpoint of a tenant that has as many as it may. The
// tenant's row is locked by the caller, so that the count is exact.
func (q *quotas) allowEndpoint(ctx context.Context, tx pgx.Tx, tenantID string) error {
	var own webhook.Limits
	if err := scanLimits(tx.QueryRow(ctx, `select limits from tenants where id = $1`, tenantID), &own); err != nil {
		return err
	}
	quota := own.Or(q.byPlan).Endpoints
	if quota == 0 {
		return nil
	}
	var full bool
	err := tx.QueryRow(ctx, `
		select count(*) >= $2 from (select from endpoints where tenant_id = $1 and deleted_at is null limit $2) living`, tenantID, quota).Scan(&full)
	if err != nil {
		return fmt.Errorf("count endpoints of %s: %w", tenantID, err)
	}
	if full {
		return quotaError("endpoints", quota)
	}
	return nil
}

// set looks up what a request of events must keep to.
func (q *quotas) set(ctx context.Context, in *intake) error {
	if in.exempt {
		in.limits, in.pending = webhook.Limits{}, nil
		return nil
	}
	limits, err := q.limits.Get(ctx, in.tenantID)
	if err != nil {
		return err
	}
	in.limits, in.pending = limits, nil
	if limits.PendingDeliveries > 0 {
		in.pending, err = q.pending.Get(ctx, in.tenantID)
	}
	return err
}

// renew gives requests that have waited for their flush the present counts.
func (q *quotas) renew(items []*intake) {
	for _, in := range items {
		if in.pending == nil {
			continue
		}
		if present, ok := q.pending.Peek(in.tenantID); ok {
			in.pending = present
		}
	}
}

// countStored adds what a flush has committed to the present counts, whether or not
// their callers still wait for the answers.
func (q *quotas) countStored(items []*intake) {
	for _, in := range items {
		if !in.stores() {
			continue
		}
		if present, ok := q.pending.Peek(in.tenantID); ok {
			_, made := in.makes()
			present.added.Add(int64(made))
		}
	}
}

// makes is how many deliveries a request's new events have, the most of one event and
// all together.
func (in *intake) makes() (most, all int) {
	for i := range in.arrivals {
		if a := &in.arrivals[i]; !a.isKnown() {
			most, all = max(most, len(a.starts)), all+len(a.starts)
		}
	}
	return most, all
}

// over is why a request that is over a quota of its tenant is refused; nil of any other. It is
// asked when it is known which of the events are new: the answer to an earlier one has no price.
func (in *intake) over() *webhook.Error {
	most, all := in.makes()
	quota, pending := in.limits.PendingDeliveries, 0
	if in.pending != nil {
		pending = in.pending.now()
	}
	switch {
	case in.limits.EndpointsPerEvent > 0 && most > in.limits.EndpointsPerEvent:
		return quotaError("endpoints per event", in.limits.EndpointsPerEvent)
	case quota == 0 || all == 0 || pending+all <= quota:
		return nil
	case all > quota:
		return quotaError("pending deliveries", quota)
	default:
		return &webhook.Error{
			Code: webhook.CodeRateLimited, RetryAfter: pendingFor,
			Message: "the tenant's limit of pending deliveries is " + strconv.Itoa(quota) + ", and it has about " + strconv.Itoa(pending),
		}
	}
}

// quotaError says which limit is reached.
func quotaError(what string, quota int) *webhook.Error {
	return &webhook.Error{Code: webhook.CodeQuota, Message: "the tenant's limit of " + what + " is " + strconv.Itoa(quota)}
}

// changed implements changeHandler.
func (q *quotas) changed(c change) {
	if c.Kind == changeTenant {
		q.limits.Forget(c.Tenant)
		q.pending.Forget(c.Tenant)
	}
}

func (q *quotas) forgetAll() {
	q.limits.ForgetAll()
	q.pending.ForgetAll()
}

func (q *quotas) close() {
	q.limits.Close()
	q.pending.Close()
}
