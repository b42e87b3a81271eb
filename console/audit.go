package console

import (
	"cmp"

	"github.com/everpost/everpost/client"
)

// auditEntry is an entry of the audit log as the API shows it.
type auditEntry struct{ client.AuditEntry }

// Caller is what made the change: a key, a link or Everpost itself.
func (e auditEntry) Caller() string { return cmp.Or(value(e.KeyID), value(e.Actor)) }

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
	var found client.Page[auditEntry]
	if err := p.api.get(p.r.Context(), &found, f.page(pageLimit, typed.Get("cursor")), apiPath("audit")); err != nil {
		if f, err = f.refused(err); err != nil {
			return err
		}
	}
	return p.show(view{
		Template: "audit", Title: auditTitle, Entry: auditTitle, Status: f.Form.status(), Data: auditView{found.Data, found.NextCursor, f},
	})
}
