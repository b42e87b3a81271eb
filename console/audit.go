package console

import (
	"cmp"
	"encoding/json"
	"time"
)

func auditRoutes() []route {
	return []route{{pattern: "GET /audit", access: operators, handle: showAudit}}
}

// auditEntry is an entry of the audit log as the API shows it.
type auditEntry struct {
	ID       string          `json:"id"`
	At       time.Time       `json:"at"`
	KeyID    string          `json:"key_id"`
	Actor    string          `json:"actor"`
	Source   string          `json:"source_address"`
	TenantID string          `json:"tenant_id"`
	Action   string          `json:"action"`
	Subject  string          `json:"subject"`
	Detail   json.RawMessage `json:"detail"`
}

// Caller is what made the change: a key, a link or Everpost itself.
func (e auditEntry) Caller() string { return cmp.Or(e.KeyID, e.Actor) }

// DetailText is the detail as text; "" for none.
func (e auditEntry) DetailText() string {
	if text := string(e.Detail); text != "null" && text != "{}" {
		return text
	}
	return ""
}

// auditView is the page of the audit log.
type auditView struct {
	Entries []auditEntry
	Next    string
	Filter  filter
}

const auditTitle = "Audit log"

func showAudit(p *page) error {
	typed := p.r.URL.Query()
	f := p.readFilter(typed, "tenant", "key", "action", "since", "until")
	var found list[auditEntry]
	if err := p.api.get(p.r.Context(), &found, f.page(pageLimit, typed.Get("cursor")), apiPath("audit")); err != nil {
		if f, err = f.refused(err); err != nil {
			return err
		}
	}
	return p.show(view{
		Template: "audit", Title: auditTitle, Entry: auditTitle, Status: f.Form.status(), Data: auditView{found.Data, found.NextCursor, f},
	})
}
