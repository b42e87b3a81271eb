package app

import (
	"context"
	"errors"
	"time"

	"github.com/everpost/everpost/internal/postgres/retention"
)

// retain removes, every hour, what is past its retention, and has partitioned tables analyzed once a day.
func (a *App) retain(ctx context.Context) {
	tick := time.Tick(time.Hour)
	for {
		a.retainOnce(ctx)
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

func (a *App) retainOnce(ctx context.Context) {
	c := &a.options.Config
	removed, err := a.store.Retention.Retain(ctx, a.store.Now(), c.Retention)
	own, ownErr := a.store.Retention.RetainTenants(ctx, a.store.Now())
	keys, keysErr := a.store.Events.PruneIdempotencyKeys(ctx, c.Retention)
	requests, requestsErr := a.store.Requests.PruneRequests(ctx)
	replays, replaysErr := a.store.Replays.PruneReplays(ctx, c.Retention)
	secrets, secretsErr := a.store.Endpoints.PruneSecrets(ctx)
	_, statisticsErr := a.store.Statistics.RetainStatistics(ctx, a.store.Now())
	tenants, tenantsErr := a.store.Tenants.PruneDeletedTenants(ctx) // last, after their rows
	entries, auditErr := a.store.Audit.PruneAuditLog(ctx, c.AuditRetention)
	if err := errors.Join(err, ownErr, keysErr, requestsErr, replaysErr, secretsErr, statisticsErr, tenantsErr, auditErr); err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "what is past its retention was not all removed; the next try is in an hour", "error", err)
	}
	if removed.Days > 0 || removed.Rows > 0 || keys+requests > 0 || replays > 0 || secrets > 0 || tenants > 0 || entries > 0 {
		a.log.InfoContext(ctx, "removed days past their retention",
			"days", removed.Days, "deliveries", removed.Rows, "idempotency_keys", keys+requests, "replays", replays, "secrets", secrets,
			"tenant_ids", tenants, "audit_entries", entries)
	}
	if err := a.store.Analyze(ctx); err != nil && ctx.Err() == nil { // last, so that no drop of a day waits for it
		a.log.WarnContext(ctx, "the tables were not analyzed; the next try is in an hour", "error", err)
	}
	if own != (retention.TenantRetained{}) {
		a.log.InfoContext(ctx, "removed what is past its tenant's own retention",
			"payloads", own.Payloads, "attempts", own.Attempts, "deliveries", own.Deliveries, "events", own.Events)
	}
}
