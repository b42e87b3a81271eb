package api

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// workflowURLs are the addresses of workflows in the Temporal Web UI. See Config.WorkflowURL.
type workflowURLs struct {
	url        func(workflowID string) string
	forTenants bool
	kept       func() time.Duration
	now        func() time.Time
}

// of returns the address of a workflow. The Web UI shows all
// tenants' workflows, so only operators get it unless a setting extends it to tenants. For a
// closed workflow (ended is not zero) it is nil when the Web UI shows it no longer.
func (u *workflowURLs) of(c call, workflowID string, ended time.Time) *string {
	if c.key.Scope != webhook.ScopeOperator && !u.forTenants || !c.from.Link.IsZero() {
		return nil
	}
	if kept := u.kept(); kept > 0 && !ended.IsZero() && u.now().Sub(ended) >= kept {
		return nil
	}
	return nullable(u.url(workflowID))
}
