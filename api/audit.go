package api

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/everpost/everpost/internal/webhook"
)

// Audit reads the audit log.
type Audit interface {
	ListAudit(ctx context.Context, f webhook.AuditFilter, p webhook.Page) ([]webhook.AuditEntry, error)
}

// auditView is the API's view of an entry of the audit log.
type auditView struct {
	ID        webhook.AuditID `json:"id"`
	At        timestamp       `json:"at"`
	KeyID     *webhook.KeyID  `json:"key_id"`
	Actor     *string         `json:"actor"`
	RequestID *string         `json:"request_id"`
	Source    *netip.Addr     `json:"source_address"`
	TenantID  *string         `json:"tenant_id"`
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`
	Detail    json.RawMessage `json:"detail"`
}

func showAudit(e webhook.AuditEntry) auditView {
	return auditView{
		ID: e.ID, At: timestamp(e.At), KeyID: nullable(e.By.KeyID), Actor: nullable(e.By.Name), RequestID: nullable(e.By.RequestID),
		Source:   nullable(e.By.Source),
		TenantID: nullable(e.TenantID), Action: e.Action, Subject: e.Subject, Detail: e.Detail,
	}
}

func (s *Server) listAudit(c call) error {
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
		return s.config.Audit.ListAudit(c.Request().Context(), f, pageOf(limit, after))
	}
	return list(c, q, fetch, func(e webhook.AuditEntry) string { return idPosition(e.ID) }, showAudit)
}
