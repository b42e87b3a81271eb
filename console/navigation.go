package console

import "strings"

// entry is an entry of the navigation.
type entry struct {
	Label  string
	path   string // of the pattern
	access access
}

// ofTenant reports whether the entry is of a page about one tenant.
func (e entry) ofTenant() bool { return strings.Contains(e.path, "{tenant}") }

// navigation returns the entries, in their order.
func navigation() []entry {
	return []entry{
		{"Overview", "/t/{tenant}/{$}", signedIn},
		{"Search", "/t/{tenant}/search", signedIn},
		{"Endpoints", "/t/{tenant}/endpoints", signedIn},
		{"Events", "/t/{tenant}/events", signedIn},
		{"Deliveries", "/t/{tenant}/deliveries", signedIn},
		{"Dead letters", "/t/{tenant}/dead-letters", signedIn},
		{"Replays", "/t/{tenant}/replays", signedIn},
		{"Retry policies", "/t/{tenant}/retry-policies", signedIn},
		{"Keys", "/t/{tenant}/keys", signedIn},
		{"Tenants", "/tenants", operators},
		{"Audit log", "/audit", operators},
		{"Doctor", "/doctor", operators},
	}
}
