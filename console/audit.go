package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/everpost/everpost/console/query"
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
	Request  string          `json:"request_id"`
	Source   string          `json:"source_address"`
	TenantID string          `json:"tenant_id"`
	Action   string          `json:"action"`
	Subject  string          `json:"subject"`
	Detail   json.RawMessage `json:"detail"`
}

// By is who did it.
func (e auditEntry) By() string {
	if e.KeyID != "" {
		return e.KeyID
	}
	return e.Actor
}

// Said is the detail as text; "" for none.
func (e auditEntry) Said() string {
	if text := string(e.Detail); text != "null" && text != "{}" {
		return text
	}
	return ""
}

// auditView is the page of the audit log.
type auditView struct {
	Entries []auditEntry
	Next    string
	Form    form
}

const auditTitle = "Audit log"

func showAudit(p *page) error {
	typed := p.r.URL.Query()
	f := newForm("tenant", "", "key", "", "action", "", "since", "", "until", "")
	asked := url.Values{"limit": {"50"}, "cursor": {typed.Get("cursor")}}
	for _, name := range f.known {
		value := typed.Get(name)
		f.Values.Set(name, value)
		if at, ok := query.ParseInstant(value, p.console.config.Now()); ok && (name == "since" || name == "until") {
			value = at.UTC().Format(time.RFC3339Nano)
		}
		asked.Set(name, value)
	}
	var found list[auditEntry]
	status := http.StatusOK
	if err := p.api.get(p.r.Context(), &found, asked, apiPath("audit")); err != nil {
		if f, err = f.refused(maps.Clone(f.Values), err); err != nil {
			return err
		}
		status = http.StatusBadRequest
	}
	return p.show(view{Template: "audit", Title: auditTitle, Entry: auditTitle, Status: status, Data: auditView{found.Data, found.NextCursor, f}})
}
