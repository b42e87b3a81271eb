package webhook

import (
	"encoding/json"
	"time"
)

// AuditEntry records one change: the actor, the action and its subject.
type AuditEntry struct {
	ID       AuditID
	At       time.Time
	By       Actor  // Name is the key's name if the key has one and still exists, else ""
	ByTenant bool   // By.KeyID is a key of the tenant
	TenantID string // "" for a subject that belongs to no tenant
	Action   string // resource.verb: endpoint.create
	Subject  string // the id of the changed resource
	Detail   json.RawMessage
}

// AuditFilter narrows a list of audit entries. A zero field does not narrow it.
type AuditFilter struct {
	TenantID     string
	KeyID        KeyID
	Action       string
	Since, Until time.Time // Since <= at < Until
}

// RefusedSignals are signals that were sent to a workflow by hand and ignored.
type RefusedSignals struct {
	TenantID   string `json:"tenant_id"` // "" if the workflow's deliveries are of several tenants
	Subject    string `json:"subject"`   // the id of the delivery or replay, else of the workflow
	WorkflowID string `json:"workflow_id"`
	// DeliveryID is one of the deliveries of a shared workflow.
	DeliveryID DeliveryID      `json:"delivery_id,omitzero"`
	Signals    []RefusedSignal `json:"signals"`
}

// RefusedSignal is a signal and why it was ignored.
type RefusedSignal struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}
