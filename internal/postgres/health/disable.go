package health

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// lookedAt bounds how many of an endpoint's newest deliveries are searched for a success
	// before an endpoint is disabled; lookedAtAgain bounds the second search, for newer
	// ones, during which all changes of the tenant's endpoints wait.
	lookedAt      = 10_000
	lookedAtAgain = 1000
)

// reader is a connection or a transaction.
type reader interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// DisableFailing disables an endpoint that has enough failures on record, and returns why.
// It returns "" and leaves the endpoint as it is if it was changed, if a delivery succeeded
// since the first failure (the failures are then removed), or if a new series of failures began
// meanwhile (the caller then calls it again).
func (s *EndpointHealth) DisableFailing(ctx context.Context, tenantID string, id webhook.EndpointID) (why string, err error) {
	seen, delivered, err := s.readFailures(ctx, id)
	if err != nil || seen == nil {
		return "", err
	}
	if delivered.IsZero() {
		why, delivered, err = s.disable(ctx, tenantID, seen)
	}
	if err != nil {
		return "", err
	}
	if !delivered.IsZero() {
		_, err = s.CountFailures(ctx, []webhook.EndpointFailures{{EndpointID: id, Succeeded: delivered}})
	}
	return why, err
}

// readFailures reads, without a lock, the failures of an endpoint, nil when they are not
// enough, and the time of the last success since.
func (s *EndpointHealth) readFailures(ctx context.Context, id webhook.EndpointID) (seen *failureScan, delivered time.Time, err error) {
	err = s.core.AsWorker().ByIndex().WithConn(ctx, "look at a failing endpoint", func(ctx context.Context, conn postgres.Querier) error {
		row, reason, err := enoughFailures(ctx, conn, id, "", s.core.Now())
		if err != nil || reason == "" {
			return err
		}
		seen = row
		if row.gone.IsZero() {
			delivered, err = deliveredSince(ctx, conn, id, row.Since, lookedAt)
		}
		return err
	})
	return seen, delivered, err
}

// disable disables an endpoint with the failures seen, unless they have changed.
func (s *EndpointHealth) disable(ctx context.Context, tenantID string, seen *failureScan) (why string, delivered time.Time, err error) {
	_, err = s.endpoints.UpdateSealed(ctx, s.core.AsWorker(), audit.System(), tenantID, seen.id, func(
		ctx context.Context, tx pgx.Tx, e *webhook.Endpoint,
	) error {
		if e.State != webhook.EndpointActive {
			return nil
		}
		row, reason, err := enoughFailures(ctx, tx, seen.id, "for update of t", s.core.Now())
		if err != nil || reason == "" {
			return err
		}
		if row.gone.IsZero() {
			if !row.Since.Equal(seen.Since) { // no success since then was searched for
				return nil
			}
			if delivered, err = deliveredSince(ctx, tx, seen.id, row.Since, lookedAtAgain); err != nil || !delivered.IsZero() {
				return err
			}
		}
		why, e.State, e.StateReason = reason, webhook.EndpointDisabled, reason
		return nil
	}, 0)
	return why, delivered, err
}

// enoughFailures reads the failures on record of an endpoint, and why it is to be disabled;
// "" if they are not enough or there are none.
func enoughFailures(ctx context.Context, db reader, id webhook.EndpointID, lock string, now time.Time) (row *failureScan, why string, err error) {
	rows, err := db.Query(ctx, `
		select `+failureColumns+` from endpoint_trouble t join endpoints e on e.id = t.endpoint_id where t.endpoint_id = $1 `+lock, id)
	if err != nil {
		return nil, "", err
	}
	row, err = pgx.CollectExactlyOneRow(rows, scanFailures)
	if postgres.IsNoRows(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	why = row.why(row.settings, now)
	return row, why, nil
}

// deliveredSince returns the time of the last success at an endpoint since then, among its newest
// deliveries; zero if there is none.
//
// Processes remove the failures on record after a success. This search covers a process that was
// killed before it did.
func deliveredSince(ctx context.Context, db reader, id webhook.EndpointID, since time.Time, newest int) (time.Time, error) {
	var at *time.Time
	err := db.QueryRow(ctx, `
		select max(completed_at) from (
			select state, completed_at from deliveries where endpoint_id = $1 and id >= $2 order by id desc limit $3) d
		where state = `+postgres.Delivered+` and completed_at > $4`,
		pgtype.UUID{Bytes: id, Valid: true}, postgres.IDsFrom(since), newest, since).Scan(&at)
	return postgres.OrZero(at), err
}
