package cli

import (
	"context"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// AuditCommand lists the audit log. It needs an operator's key.
type AuditCommand struct {
	remote `embed:""`
	paging `embed:""`

	ByKey  webhook.KeyID `help:"Only entries of this key." name:"by-key" placeholder:"ID"`
	Action string        `help:"Only this action, such as endpoint.create." placeholder:"NAME"`
	Since  instant       `help:"Only entries since: a time, or a duration ago such as 1h." placeholder:"WHEN"`
	Until  instant       `help:"Only entries before." placeholder:"WHEN"`
}

// Run lists the entries of the tenant, or of all tenants when none is given.
func (c *AuditCommand) Run(ctx context.Context, p Process) error {
	s, err := c.connection.open(p)
	if err != nil {
		return err
	}
	s.tenant = c.Tenant
	defer s.close()
	now, by := time.Now(), ""
	if !c.ByKey.IsZero() {
		by = c.ByKey.String()
	}
	filters := queryOf(map[string]string{
		"tenant": c.Tenant, "key": by, "action": c.Action, "since": c.Since.ago(now), "until": c.Until.ago(now),
	})
	return printList(ctx, s, "entries", request{path: []string{"audit"}, query: filters, ofAll: true}, c.paging, []column[client.AuditEntry]{
		{"AT", func(e client.AuditEntry) string { return optionalTime(e.At) }},
		{"ACTION", func(e client.AuditEntry) string { return e.Action }},
		{"SUBJECT", func(e client.AuditEntry) string { return e.Subject }},
		{"TENANT", func(e client.AuditEntry) string { return text(e.TenantID) }},
		{"KEY", func(e client.AuditEntry) string { return text(e.KeyID) }},
		{"BY", func(e client.AuditEntry) string { return text(e.Actor) }},
		{"FROM", func(e client.AuditEntry) string { return text(e.SourceAddress) }},
		{"REQUEST", func(e client.AuditEntry) string { return text(e.RequestID) }},
	})
}
