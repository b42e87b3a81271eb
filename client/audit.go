package client

import (
	"encoding/json"
	"time"
)

// AuditEntry is an entry of the audit log: who did what, and when.
type AuditEntry struct {
	ID            string          `json:"id"`
	At            Time            `json:"at"`
	KeyID         *string         `json:"key_id"` // nil for the command line and for Everpost itself
	Actor         *string         `json:"actor"`  // the name of the key, or of the actor without a key, such as "everpost"
	RequestID     *string         `json:"request_id"`
	SourceAddress *string         `json:"source_address"` // the IP address that the request came from
	TenantID      *string         `json:"tenant_id"`
	Action        string          `json:"action"`  // such as "endpoint.create"
	Subject       string          `json:"subject"` // the id of what was changed
	Detail        json.RawMessage `json:"detail"`  // an object; never secrets
}

// AuditFilter selects entries of the audit log. What is zero is not compared.
type AuditFilter struct {
	Tenant       string
	Key          string // the id of the key that was used
	Action       string
	Since, Until time.Time
}

// Audit lists the audit log. It needs an operator's key.
func (c *Client) Audit(f AuditFilter) List[AuditEntry] {
	return List[AuditEntry]{scope{c, []string{"audit"}}, parameters(
		"tenant", f.Tenant, "key", f.Key, "action", f.Action, "since", instant(f.Since), "until", instant(f.Until))}
}
