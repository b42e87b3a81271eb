package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/webhook"
)

// Actions of the audit log, named resource.verb.
const (
	actionTenantCreate       = "tenant.create"
	actionTenantUpdate       = "tenant.update"
	actionTenantDelete       = "tenant.delete"
	actionKeyCreate          = "key.create"
	actionKeyRevoke          = "key.revoke"
	actionEndpointCreate     = "endpoint.create"
	actionEndpointUpdate     = "endpoint.update"
	actionEndpointDelete     = "endpoint.delete"
	actionEndpointSecretRead = "endpoint.secret_read"
)

// audit writes what was done in the transaction of the change that it tells of:
// both are there or neither. subject is the id of what was changed, tenantID is ""
// for none, and detail a JSON object, nil for an empty one. It names what changed
// and never holds a secret, a payload, a URL or a header: the log is kept for long
// and read by many.
func audit(ctx context.Context, tx pgx.Tx, by webhook.Actor, tenantID, action, subject string, detail []byte) error {
	if detail == nil {
		detail = []byte("{}")
	}
	_, err := tx.Exec(ctx, `
		insert into audit_log (id, key_id, actor, request_id, tenant_id, action, subject, detail)
		values ($1, $2, $3, $4, nullif($5, ''), $6, $7, $8)`,
		[16]byte(webhook.NewAuditID()), pgtype.UUID{Bytes: by.KeyID, Valid: !by.KeyID.IsZero()}, by.Name, by.RequestID,
		tenantID, action, subject, detail)
	if err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	return nil
}

// PruneAuditLog removes the entries that are older than keep, the oldest first and a batch
// at a time, and says how many. What is younger than 29 days the database keeps, whoever
// asks: an error.
func (s *Store) PruneAuditLog(ctx context.Context, keep time.Duration) (removed int64, err error) {
	for {
		begun := time.Now()
		before := begun.Add(-keep)
		var gone int64
		err := s.asWorker().withConn(ctx, "prune the audit log", func(ctx context.Context, conn querier) error {
			return conn.QueryRow(ctx, `select everpost_prune_audit_log($1, $2, $3)`, before, idAt(before.Add(auditSkew)), deleteBatch).Scan(&gone)
		})
		removed += gone
		if err != nil || gone < deleteBatch {
			return removed, err
		}
		if err := rest(ctx, begun); err != nil {
			return removed, err
		}
	}
}
