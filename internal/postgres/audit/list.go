package audit

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// auditSkew is how far the time in an entry's id, by a process's clock, may be from the entry's
// time, by the database's: the clocks differ, and a transaction takes a while.
const auditSkew = time.Hour

// ListAudit lists what was changed, and by whom, newest first. The times in the ids bound what it
// reads, so a list costs as much as the entries of its span of time.
func (s *Audit) ListAudit(ctx context.Context, f webhook.AuditFilter, p webhook.Page) ([]webhook.AuditEntry, error) {
	return postgres.ReadList(ctx, s.core, s.core.AsOperator(), "list audit log", scanAudit, auditList, auditArgs(f, p)...)
}

const auditList = `
	select a.id, a.at, a.key_id, coalesce(nullif(a.actor, ''), k.name, ''), a.request_id, coalesce(a.tenant_id, ''),
		a.action, a.subject, a.detail, a.source_address, coalesce(k.tenant_id = a.tenant_id, false)
	from audit_log a left join api_keys k on k.id = a.key_id
	where a.id >= $8 and a.id < $1
		and ($2 = '' or a.tenant_id = $2)
		and ($3::uuid is null or a.key_id = $3)
		and ($4 = '' or a.action = $4)
		and ($5::timestamptz is null or a.at >= $5)
		and ($6::timestamptz is null or a.at < $6)
	order by a.id desc limit $7`

func auditArgs(f webhook.AuditFilter, p webhook.Page) []any {
	key := pgtype.UUID{Bytes: f.KeyID, Valid: !f.KeyID.IsZero()}
	return []any{auditBefore(f, p), f.TenantID, key, f.Action, postgres.Optional(f.Since), postgres.Optional(f.Until), p.Limit, auditFrom(f)}
}

// auditFrom and auditBefore bound the ids of the entries of a list.
func auditFrom(f webhook.AuditFilter) (from [16]byte) {
	if !f.Since.IsZero() {
		from = postgres.IDsFrom(f.Since.Add(-auditSkew))
	}
	return from
}

func auditBefore(f webhook.AuditFilter, p webhook.Page) [16]byte {
	before := [16]byte(bytes.Repeat([]byte{0xff}, 16))
	if !f.Until.IsZero() {
		before = postgres.IDsFrom(f.Until.Add(auditSkew))
	}
	if p.After != ([16]byte{}) && bytes.Compare(p.After[:], before[:]) < 0 {
		before = p.After
	}
	return before
}

func scanAudit(row pgx.CollectableRow) (webhook.AuditEntry, error) {
	var (
		e      webhook.AuditEntry
		key    pgtype.UUID
		source *netip.Addr
	)
	err := row.Scan((*[16]byte)(&e.ID), &e.At, &key, &e.By.Name, &e.By.RequestID, &e.TenantID, &e.Action, &e.Subject, &e.Detail, &source, &e.ByTenant)
	if err != nil {
		return webhook.AuditEntry{}, fmt.Errorf("read row of audit_log: %w", err)
	}
	e.At, e.By.KeyID = e.At.UTC(), key.Bytes
	if source != nil {
		e.By.Source = *source
	}
	return e, nil
}
