// Package audit stores the audit log: one entry for each change, written in its transaction.
package audit

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/requests"
	"github.com/everpost/everpost/internal/webhook"
)

// Actions of the audit log, named resource.verb. docs/privacy.md lists them all.
const (
	TenantCreate       = "tenant.create"
	TenantReplace      = "tenant.replace"
	TenantUpdate       = "tenant.update"
	TenantDelete       = "tenant.delete"
	TenantExport       = "tenant.export"
	KeyCreate          = "key.create"
	KeyRevoke          = "key.revoke"
	EndpointCreate     = "endpoint.create"
	EndpointUpdate     = "endpoint.update"
	EndpointPause      = "endpoint.pause"
	EndpointResume     = "endpoint.resume"
	EndpointDisable    = "endpoint.disable"
	EndpointRelease    = "endpoint.release"
	EndpointDelete     = "endpoint.delete"
	EndpointReadSecret = "endpoint.read_secret" //nolint:gosec // the name of an action
	EventErasePayload  = "event.erase_payload"
	EventCancel        = "event.cancel"
	WorkflowRefuse     = "workflow.refuse_signal"
	ConsoleLinkCreate  = "console_link.create"
	ConsoleLogIn       = "console.log_in"

	EventTypeCreate  = "event_type.create"
	EventTypeReplace = "event_type.replace"
	EventTypeUpdate  = "event_type.update"
	EventTypeDelete  = "event_type.delete"
	EventTypeImport  = "event_type.import"

	NotificationsUpdate      = "notifications.update"
	NotificationsConfirm     = "notifications.confirm"
	NotificationsUnsubscribe = "notifications.unsubscribe"
)

// Audit reads and prunes the audit log.
type Audit struct{ core *postgres.Core }

// New makes an Audit.
func New(s *postgres.Core) *Audit { return &Audit{s} }

// Write writes the log entry of a change, and the row of the actor's Idempotency-Key if it has one, in the transaction of the change: all are
// stored or none; see requests.Write for the conflict. subject is the id of what was changed, tenantID is "" for none,
// and detail is a JSON object, nil for an empty one. It names what changed and never
// holds a secret, a payload, a URL or a header: the log is kept for long and read by
// many.
func Write(ctx context.Context, tx pgx.Tx, by webhook.Actor, tenantID, action, subject string, detail []byte) error {
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
	return requests.Write(ctx, tx, by.Request, subject)
}

// optionalAddr is null for the zero Addr. It drops the zone, which has a meaning only on its host and which inet lacks.
func optionalAddr(a netip.Addr) *netip.Addr {
	if !a.IsValid() {
		return nil
	}
	a = a.WithZone("")
	return &a
}

// PruneAuditLog removes the entries that are older than keep, the oldest first and a batch
// at a time, and returns their number. The database returns an error for a keep below 29 days.
func (s *Audit) PruneAuditLog(ctx context.Context, keep time.Duration) (removed int64, err error) {
	err = postgres.InBatches(ctx, func() (bool, error) {
		before := time.Now().Add(-keep)
		var gone int64
		err := s.core.AsWorker().WithConn(ctx, "prune the audit log", func(ctx context.Context, conn postgres.Querier) error {
			return conn.QueryRow(ctx, `select everpost_prune_audit_log($1, $2, $3)`, before, postgres.IDsFrom(before.Add(auditSkew)), postgres.DeleteBatch).
				Scan(&gone)
		})
		removed += gone
		return gone >= postgres.DeleteBatch, err
	})
	return removed, err
}

// System is the actor of changes that Everpost makes by itself.
func System() webhook.Actor { return webhook.Actor{Name: "everpost"} }
