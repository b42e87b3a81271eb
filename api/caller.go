package api

import (
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// Caller makes a request: from outside with a key or a portal token, or inside the process, as the console does for its
// sessions. It was authenticated before: see Authenticate and Confirm.
type Caller struct {
	Key webhook.Key

	// Link is the portal link that the caller came by; zero for a key of its own. A portal sees the
	// resources of one tenant and nothing of the operator's. The audit log names the link.
	Link webhook.LinkID
	// ReadOnly refuses every change that the link's capabilities do not permit.
	ReadOnly bool
	// Portal has the capabilities of the link.
	Portal webhook.PortalOptions
}

// PortalCaller is the caller of a portal's session or token. It acts as its link, with the rights of the tenant's
// admin within what a portal may do.
func PortalCaller(s webhook.ConsoleSession) Caller {
	return Caller{
		Key:  webhook.Key{TenantID: s.TenantID, Scope: webhook.ScopeAdmin, Name: "console link"},
		Link: s.LinkID, ReadOnly: s.Access != webhook.AccessManage, Portal: s.Portal,
	}
}

// callerKey is the context key of a Caller. It is unexported, and no part of a request from outside
// sets it.
type callerKey struct{}

// authorise checks the caller against a route. A tenant other than the caller's gets
// the same response as one that does not exist, before the scope is checked.
func (c Caller) authorise(r route, tenant string) error {
	if strings.Contains(r.path, "{tenant}") {
		foreign := c.Key.Scope != webhook.ScopeOperator && c.Key.TenantID != tenant
		unusable := !webhook.ValidTenantID(tenant) && r.id != putTenantID
		if foreign || unusable {
			return webhook.NotFound(r.noun)
		}
	}
	if c.Key.Scope < r.scope {
		return &webhook.Error{Code: webhook.CodeForbidden, Message: "this needs a key with the scope " + r.scope.String()}
	}
	return c.permits(r)
}

// permits refuses what a portal may not do. It comes after the check of the key's scope.
func (c Caller) permits(r route) error {
	if c.Link.IsZero() {
		return nil
	}
	return c.portalPermits(r)
}
