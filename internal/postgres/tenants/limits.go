package tenants

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	maxCachedLimits = 50_000

	// PendingFor is for how long a count of a tenant's pending deliveries is used. Deliveries
	// that this process accepts meanwhile are added to it. Those that other processes accept,
	// and those that finish, show in the next count.
	PendingFor = 3 * time.Second
)

// Quotas keeps the limits of tenants in memory. Accepting an event reads only memory; a tenant
// with a quota of pending deliveries costs a query every few seconds.
type Quotas struct {
	core *postgres.Core

	limits  *cache.Cache[string, webhook.Limits]
	pending *cache.Cache[string, *PendingCount]
	byPlan  webhook.Limits // the operator's defaults

	countFor time.Duration // how long a count of pending deliveries is used
}

// PendingCount is the approximate number of open deliveries of a tenant.
type PendingCount struct {
	counted int // at most one more than the quota
	added   atomic.Int64
}

// Now is the count with what was added.
func (p *PendingCount) Now() int { return p.counted + int(p.added.Load()) }

// Add counts what this process has accepted.
func (p *PendingCount) Add(n int) { p.added.Add(int64(n)) }

// NewQuotas makes a Quotas, which Close ends.
func NewQuotas(s *postgres.Core, defaults webhook.Limits) *Quotas {
	q := &Quotas{core: s, byPlan: defaults, countFor: PendingFor}
	q.limits = postgres.NewCache(s, maxCachedLimits, func(ctx context.Context, tenantID string) (cache.Filled[webhook.Limits], error) {
		limits, err := q.read(ctx, tenantID)
		return cache.Filled[webhook.Limits]{Value: limits.Or(q.byPlan)}, err
	})
	q.pending = cache.New(cache.Config[string, *PendingCount]{
		Limit: maxCachedLimits, Life: func() time.Duration { return q.countFor }, Translate: postgres.TranslateCache,
		Fill: func(ctx context.Context, tenantID string) (cache.Filled[*PendingCount], error) {
			return cache.Filled[*PendingCount]{Value: q.countPending(ctx, tenantID)}, nil
		},
	})
	s.Subscribe(q)
	return q
}

// TenantLimits returns the effective limits of a tenant, the operator's defaults included, from
// memory. CodeNotFound: no such tenant.
func (s *Tenants) TenantLimits(ctx context.Context, tenantID string) (webhook.Limits, error) {
	return s.quotas.Limits(ctx, tenantID)
}

// Limits is TenantLimits.
func (q *Quotas) Limits(ctx context.Context, tenantID string) (webhook.Limits, error) {
	return q.limits.Get(ctx, tenantID)
}

// Pending returns the count of a tenant's pending deliveries; it counts unless the last count is recent.
func (q *Quotas) Pending(ctx context.Context, tenantID string) (*PendingCount, error) {
	return q.pending.Get(ctx, tenantID)
}

// PendingKnown is Pending without a query: false if there is no recent count.
func (q *Quotas) PendingKnown(tenantID string) (*PendingCount, bool) { return q.pending.Peek(tenantID) }

func (q *Quotas) read(ctx context.Context, tenantID string) (limits webhook.Limits, err error) {
	err = q.core.OfTenant(tenantID).WithConn(ctx, "read limits of "+tenantID, func(ctx context.Context, conn postgres.Querier) error {
		return scanLimits(conn.QueryRow(ctx, `select limits from tenants where id = $1`, tenantID), &limits)
	})
	return limits, err
}

func scanLimits(row pgx.Row, limits *webhook.Limits) error {
	err := row.Scan(limits)
	if postgres.IsNoRows(err) {
		return webhook.NotFound("tenant")
	}
	if err != nil {
		return fmt.Errorf("read limits: %w", err)
	}
	return nil
}

// countPending counts a tenant's open deliveries: those in the outbox, and those that are recorded as open. It does not count beyond the quota,
// and reads as many rows of the index deliveries_open_by_tenant. If it fails, it returns zero: a failed count must
// not reject events.
func (q *Quotas) countPending(ctx context.Context, tenantID string) *PendingCount {
	found := &PendingCount{}
	limits, err := q.limits.Get(ctx, tenantID)
	if err == nil && limits.PendingDeliveries > 0 {
		tenant := q.core.OfTenant(tenantID).ByIndex()
		err = tenant.WithConn(ctx, "count pending deliveries of "+tenantID, func(ctx context.Context, conn postgres.Querier) error {
			return conn.QueryRow(ctx, `
				select (select count(*) from (select from outbox where tenant_id = $1 limit $2) waiting) +
					(select count(*) from (
						select from deliveries where tenant_id = $1 and state `+postgres.IsOpen+` order by id desc limit $2) open)`,
				tenantID, limits.PendingDeliveries+1).Scan(&found.counted)
		})
	}
	if err != nil {
		q.core.Log.WarnContext(ctx, "a tenant's pending deliveries were not counted; its quota is not in force for a moment",
			slog.String("tenant", tenantID), slog.Any("error", err))
	}
	return found
}

// AllowEndpoint returns CodeQuota if a tenant may have no further endpoint. The caller has locked
// the tenant's row, so the count is exact.
func (q *Quotas) AllowEndpoint(ctx context.Context, tx pgx.Tx, tenantID string) error {
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
		select count(*) >= $2 from (select from endpoints where tenant_id = $1 and deleted_at is null and not internal limit $2) living`,
		tenantID, quota).Scan(&full)
	if err != nil {
		return fmt.Errorf("count endpoints of %s: %w", tenantID, err)
	}
	if full {
		return QuotaError("endpoints", quota)
	}
	return nil
}

// AllowReplay returns CodeQuota if a tenant may have no further replay: webhook.MaxOpenReplays have not ended. Until the transaction ends no
// other of the tenant is allowed, so the count is exact. It reads as many rows of the index replays_open at most.
func (q *Quotas) AllowReplay(ctx context.Context, tx pgx.Tx, tenantID string) error {
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('everpost/replays/' || $1, 0))`, tenantID); err != nil {
		return fmt.Errorf("wait for other replays of %s: %w", tenantID, err)
	}
	var full bool
	err := tx.QueryRow(ctx, `
		select count(*) >= $2 from (
			select from replays where tenant_id = $1 and state `+postgres.ReplayIsOpen+` limit $2) open`,
		tenantID, webhook.MaxOpenReplays).Scan(&full)
	if err != nil {
		return fmt.Errorf("count replays of %s: %w", tenantID, err)
	}
	if full {
		return QuotaError("open replays", webhook.MaxOpenReplays)
	}
	return nil
}

// QuotaError is the error of a limit that is reached.
func QuotaError(what string, quota int) *webhook.Error {
	return &webhook.Error{Code: webhook.CodeQuota, Message: "the tenant's limit of " + what + " is " + strconv.Itoa(quota)}
}

// Changed implements postgres.ChangeHandler.
func (q *Quotas) Changed(c postgres.Change) {
	if c.Kind == postgres.ChangeTenant {
		q.limits.Forget(c.Tenant)
		q.pending.Forget(c.Tenant)
	}
}

// ForgetAll implements postgres.ChangeHandler.
func (q *Quotas) ForgetAll() {
	q.limits.ForgetAll()
	q.pending.ForgetAll()
}

// Close ends the reads under way.
func (q *Quotas) Close() {
	q.limits.Close()
	q.pending.Close()
}
