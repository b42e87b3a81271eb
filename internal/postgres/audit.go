package postgres

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/webhook"
)

// Actions of the audit log, named resource.verb. docs/operations.md lists them all.
const (
	actionTenantCreate       = "tenant.create"
	actionTenantReplace      = "tenant.replace"
	actionTenantUpdate       = "tenant.update"
	actionTenantDelete       = "tenant.delete"
	actionKeyCreate          = "key.create"
	actionKeyRevoke          = "key.revoke"
	actionEndpointCreate     = "endpoint.create"
	actionEndpointUpdate     = "endpoint.update"
	actionEndpointPause      = "endpoint.pause"
	actionEndpointResume     = "endpoint.resume"
	actionEndpointDisable    = "endpoint.disable"
	actionEndpointDelete     = "endpoint.delete"
	actionEndpointReadSecret = "endpoint.read_secret" //nolint:gosec // the name of an action
)

// Audit reads and prunes the audit log.
type Audit struct{ *core }

// audit writes the log entry of a change in the change's transaction:
// both are stored or neither. subject is the id of what was changed, tenantID is ""
// for none, and detail a JSON object, nil for an empty one. It names what changed
// and never holds a secret, a payload, a URL or a header: the log is kept for long
// and read by many.
func audit(ctx context.Context, tx pgx.Tx, by webhook.Actor, tenantID, action, subject string, detail []byte) error {
	if detail == nil {
		detail = []byte("{}")
	}
	_, err := tx.Exec(ctx, `
		insert into audit_log (id, key_id, actor, request_id, tenant_id, action, subject, detail, source_address)
		values ($1, $2, $3, $4, nullif($5, ''), $6, $7, $8, $9)`,
		[16]byte(webhook.NewAuditID()), pgtype.UUID{Bytes: by.KeyID, Valid: !by.KeyID.IsZero()}, by.Name, by.RequestID,
		tenantID, action, subject, detail, optionalAddr(by.Source))
	if err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	return nil
}

// optionalAddr is null for the zero Addr. A zone means nothing elsewhere, and inet has none.
func optionalAddr(a netip.Addr) *netip.Addr {
	if !a.IsValid() {
		return nil
	}
	a = a.WithZone("")
	return &a
}

// PruneAuditLog removes the entries that are older than keep, the oldest first and a batch
// at a time, and returns their number. The database refuses to remove what is younger than
// 29 days: an error.
func (s *Audit) PruneAuditLog(ctx context.Context, keep time.Duration) (removed int64, err error) {
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
