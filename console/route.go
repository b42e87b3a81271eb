package console

import (
	"slices"
	"strings"
)

// access is who may open a page.
type access uint8

const (
	signedIn  access = iota // every session; a path with a tenant must be of the session's
	public                  // also without a session
	keysOnly                // sessions by a key, not portals
	operators               // sessions by an operator's key
)

// route is a page or a form's target. Patterns are those of http.ServeMux, below /console; {tenant} is
// the tenant that the page shows.
type route struct {
	pattern string
	access  access
	handle  func(*page) error
	big     bool // the form may be large: it has a payload
	slow    bool // the answer waits for a receiver
}

// routes returns all routes.
func routes() []route {
	return slices.Concat(
		logInRoutes(), linkRoutes(),
		overviewRoutes(), endpointRoutes(), endpointFormRoutes(), eventRoutes(), deliveryRoutes(),
		searchRoutes(), deadLetterRoutes(), replayRoutes(), policyRoutes(), tenantRoutes(), keyRoutes(), auditRoutes(), doctorRoutes(),
	)
}

// entry is an entry of the navigation.
type entry struct {
	Label  string
	path   string // of the pattern
	access access
}

// navigation returns the entries whose pages exist, in their order.
func navigation(known []route) []entry {
	all := []entry{
		{"Overview", "/t/{tenant}/{$}", signedIn},
		{"Search", "/t/{tenant}/search", signedIn},
		{"Endpoints", "/t/{tenant}/endpoints", signedIn},
		{"Events", "/t/{tenant}/events", signedIn},
		{"Deliveries", "/t/{tenant}/deliveries", signedIn},
		{"Dead letters", "/t/{tenant}/dead-letters", signedIn},
		{"Replays", "/t/{tenant}/replays", signedIn},
		{"Retry policies", "/t/{tenant}/retry-policies", signedIn},
		{"Keys", "/t/{tenant}/keys", keysOnly},
		{"Tenants", "/tenants", operators},
		{"Audit log", "/audit", operators},
		{"Doctor", "/doctor", operators},
	}
	return slices.DeleteFunc(all, func(e entry) bool {
		return !slices.ContainsFunc(known, func(r route) bool { return r.pattern == "GET "+e.path })
	})
}

// ofTenant reports whether the entry is of a page about one tenant.
func (e entry) ofTenant() bool { return strings.Contains(e.path, "{tenant}") }

// sees reports whether a session may open pages of this access.
func (a access) sees(s session) bool {
	switch a {
	case public:
		return true
	case signedIn:
		return s.signedIn()
	case keysOnly:
		return s.signedIn() && !s.Access.Portal()
	case operators:
		return s.operator()
	}
	return false
}
