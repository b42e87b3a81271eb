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

// navigation returns the entries, in their order: those about a tenant, then those about the installation.
func navigation() []entry {
	return []entry{
		{"Overview", "/t/{tenant}/{$}", signedIn},
		{"Search", "/t/{tenant}/search", signedIn},
		{endpointsTitle, "/t/{tenant}/endpoints", signedIn},
		{"Events", "/t/{tenant}/events", signedIn},
		{"Deliveries", "/t/{tenant}/deliveries", signedIn},
		{deadLettersTitle, "/t/{tenant}/dead-letters", signedIn},
		{"Replays", "/t/{tenant}/replays", signedIn},
		{"Retry policies", "/t/{tenant}/retry-policies", signedIn},
		{notificationsTitle, "/t/{tenant}/notifications", signedIn},
		{"Keys", "/t/{tenant}/keys", signedIn},
		{homeTitle, "/{$}", operators},
		{tenantsTitle, "/tenants", operators},
		{eventTypesTitle, "/event-types", operators},
		{operatorsNotifiedTitle, "/notifications", operators},
		{"Audit log", "/audit", operators},
		{"Doctor", "/doctor", operators},
	}
}

// navGroup is a part of the menu.
type navGroup struct {
	Label   string
	Entries []navEntry
}

// navEntry is an entry of the menu as it is shown.
type navEntry struct {
	Label, Path string
	Current     bool
	Count       string // of what needs attention there; "" for nothing
	Counted     string // what else is to be said of those that are counted; "" if they are all that the entry names
}

// menu is the navigation of a page about a tenant, or about none, with how much needs attention.
func (p *page) menu(tenant, current string) []navGroup {
	groups := []navGroup{{Label: tenant}, {Label: "Installation"}}
	counts := attentionIn(p, tenant)
	for _, e := range navigation() {
		if !e.access.sees(p.session) || e.ofTenant() && tenant == "" {
			continue
		}
		path, of := Root+strings.TrimSuffix(e.path, "{$}"), &groups[1]
		if e.ofTenant() {
			path, of = pagePath(tenant)+strings.TrimSuffix(e.path[len("/t/{tenant}/"):], "{$}"), &groups[0]
		}
		of.Entries = append(of.Entries, navEntry{e.Label, path, e.Label == current, counts[e.Label], countedIn(e.Label)})
	}
	shown := groups[:0]
	for _, g := range groups {
		if len(g.Entries) > 0 {
			shown = append(shown, g)
		}
	}
	return shown
}

// countedIn says which of the things that an entry of the menu names are counted beside it; "" for all.
func countedIn(label string) string {
	if label == endpointsTitle {
		return "in need of attention"
	}
	return ""
}
