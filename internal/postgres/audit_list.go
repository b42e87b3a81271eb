package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/webhook"
)

// ListAudit lists what was changed, and by whom, newest first.
func (s *Store) ListAudit(ctx context.Context, f webhook.AuditFilter, p webhook.Page) ([]webhook.AuditEntry, error) {
	return queryAll(ctx, s.asOperator(), "list audit log", scanAudit, `
		select a.id, a.at, a.key_id, coalesce(nullif(a.actor, ''), k.name, ''), a.request_id, coalesce(a.tenant_id, ''),
			a.action, a.subject, a.detail
		from audit_log a left join api_keys k on k.id = a.key_id
		where ($1::uuid = '00000000-0000-0000-0000-000000000000' or a.id < $1)
			and ($2 = '' or a.tenant_id = $2)
			and ($3::uuid is null or a.key_id = $3)
			and ($4 = '' or a.action = $4)
			and ($5::timestamptz is null or a.at >= $5)
			and ($6::timestamptz is null or a.at < $6)
		order by a.id desc limit $7`,
		p.After, f.TenantID, pgtype.UUID{Bytes: f.KeyID, Valid: !f.KeyID.IsZero()}, f.Action, optional(f.Since), optional(f.Until), p.Limit)
}

func scanAudit(row pgx.CollectableRow) (webhook.AuditEntry, error) {
	var (
		e   webhook.AuditEntry
		key pgtype.UUID
	)
	err := row.Scan((*[16]byte)(&e.ID), &e.At, &key, &e.By.Name, &e.By.RequestID, &e.TenantID, &e.Action, &e.Subject, &e.Detail)
	if err != nil {
		return webhook.AuditEntry{}, fmt.Errorf("read row of audit_log: %w", err)
	}
	e.At, e.By.KeyID = e.At.UTC(), key.Bytes
	return e, nil
}
