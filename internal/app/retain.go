package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres/retention"
	"github.com/everpost/everpost/internal/postgres/stores"
)

// retainer removes what is past its retention.
type retainer struct {
	store  *stores.DB
	config *config.Config
	log    *slog.Logger
}

// run removes, every hour, what is past its retention, and has partitioned tables analyzed once a day.
func (r retainer) run(ctx context.Context) {
	tick := time.Tick(time.Hour)
	for {
		r.once(ctx)
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

func (r retainer) once(ctx context.Context) {
	removed, err := r.store.Retention.Retain(ctx, r.store.Now(), r.config.Retention)
	own, ownErr := r.store.Retention.RetainTenants(ctx, r.store.Now())
	lines, linesErr := r.store.Events.PruneLines(ctx, r.config.Retention)
	keys, keysErr := r.store.Events.PruneIdempotencyKeys(ctx, r.config.Retention)
	requests, requestsErr := r.store.Requests.PruneRequests(ctx)
	replays, replaysErr := r.store.Replays.PruneReplays(ctx, r.config.Retention)
	secrets, secretsErr := r.store.Endpoints.PruneSecrets(ctx)
	_, statisticsErr := r.store.Statistics.RetainStatistics(ctx, r.store.Now())
	confirmationsErr := r.store.Mails.PruneConfirmations(ctx)
	tenants, tenantsErr := r.store.Tenants.PruneDeletedTenants(ctx) // last, after their rows
	entries, auditErr := r.store.Audit.PruneAuditLog(ctx, r.config.AuditRetention)
	err = errors.Join(err, ownErr, linesErr, keysErr, requestsErr, replaysErr, secretsErr, statisticsErr, confirmationsErr, tenantsErr, auditErr)
	if err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "what is past its retention was not all removed; the next try is in an hour", "error", err)
	}
	if removed.Days > 0 || removed.Rows > 0 || keys+requests > 0 || lines > 0 || replays > 0 || secrets > 0 || tenants > 0 || entries > 0 {
		r.log.InfoContext(ctx, "removed days past their retention",
			"days", removed.Days, "deliveries", removed.Rows, "idempotency_keys", keys+requests, "lines", lines, "replays", replays, "secrets", secrets,
			"tenant_ids", tenants, "audit_entries", entries)
	}
	if err := r.store.Analyze(ctx); err != nil && ctx.Err() == nil { // last, so that no drop of a day waits for it
		r.log.WarnContext(ctx, "the tables were not analyzed; the next try is in an hour", "error", err)
	}
	if own != (retention.TenantRetained{}) {
		r.log.InfoContext(ctx, "removed what is past its tenant's own retention",
			"payloads", own.Payloads, "attempts", own.Attempts, "deliveries", own.Deliveries, "events", own.Events)
	}
}
