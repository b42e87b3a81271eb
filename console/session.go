package console

import (
	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/webhook"
)

// session is a session with its key, which was valid a moment ago.
type session struct {
	webhook.ConsoleSession

	key   webhook.Key
	token string
}

// signedIn reports whether there is a session.
func (s session) signedIn() bool { return s.token != "" }

// operator reports whether the session may do everything in every tenant.
func (s session) operator() bool {
	return s.Access == webhook.AccessKey && s.key.Scope == webhook.ScopeOperator
}

// share is whose share of the console's places the session takes: its tenant's, or the operators'.
func (s session) share() string {
	if s.TenantID != "" {
		return s.TenantID
	}
	return ofOperators
}

// Shares of the places that are not a tenant's.
const (
	ofOperators = ""
	ofVisitors  = "?" // without a session; no tenant has this id
)

// caller is the session as the API takes it.
func (s session) caller() api.Caller {
	if !s.Access.Portal() {
		return api.Caller{Key: s.key}
	}
	return api.PortalCaller(s.ConsoleSession)
}
