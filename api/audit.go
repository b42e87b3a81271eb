package api

import (
	"context"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// Audit reads the audit log.
type Audit interface {
	ListAudit(ctx context.Context, f webhook.AuditFilter, p webhook.Page) ([]webhook.AuditEntry, error)
}

func showAudit(e webhook.AuditEntry) client.AuditEntry {
	return client.AuditEntry{
		ID: e.ID.String(), At: timestamp(e.At), KeyID: nullableText(e.By.KeyID), Actor: nullable(e.By.Name), RequestID: nullable(e.By.RequestID),
		SourceAddress: nullableText(e.By.Source), TenantID: nullable(e.TenantID), Action: e.Action, Subject: e.Subject, Detail: e.Detail,
	}
}

// auditHandler lists the audit log.
type auditHandler struct{ audit Audit }

func (h *auditHandler) list(c call) error {
	q := c.query("audit", "tenant", "key", "action", "since", "until")
	f := webhook.AuditFilter{
		TenantID: q.text("tenant", webhook.ValidTenantID, notATenantID),
		KeyID:    queryID(q, "key", webhook.ParseKeyID),
		Action:   q.text("action", webhook.ValidType, "must be the name of an action, such as endpoint.create"),
		Since:    q.instant("since"),
		Until:    q.instant("until"),
	}
	if err := q.problem(); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.AuditEntry, error) {
		return h.audit.ListAudit(c.Request().Context(), f, pageOf(limit, after))
	}
	return list(c, q, fetch, func(e webhook.AuditEntry) string { return idPosition(e.ID) }, showAudit)
}
