package webhook

import (
	"encoding/json"
	"time"
)

// AuditEntry tells of one change: who made it, and what of.
type AuditEntry struct {
	ID       AuditID
	At       time.Time
	By       Actor  // Name is the key's where there is one, "" when that has none or is gone with its tenant
	TenantID string // "" for what belongs to no tenant
	Action   string // resource.verb: endpoint.create
	Subject  string // the id of what was changed
	Detail   json.RawMessage
}

// AuditFilter narrows a list of audit entries. Zero fields do not narrow.
type AuditFilter struct {
	TenantID     string
	KeyID        KeyID
	Action       string
	Since, Until time.Time // at in [Since, Until)
}
