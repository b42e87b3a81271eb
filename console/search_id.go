package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/query"
)

// goTo leads to the page of an id. Tenants' keys see their tenant; an operator may not know whose the id is, so it is looked
// for in other tenants, too.
func goTo(p *page, v searchView, q query.Query) error {
	v.Kind = q.Kind
	resource := resourceOf(q.Kind)
	if resource == "" { // an audit entry, which has no page of its own
		if p.session.operator() {
			p.redirect(Root + "/audit")
			return nil
		}
		v.Missing, v.All = q.ID, true
		return showFound(p, v)
	}
	there := ""
	look := func(ctx context.Context, tenant string) (done bool, err error) {
		if done, err = tenantHas(ctx, p, tenant, resource, q.ID); done {
			there = tenant
		}
		return done, err
	}
	var err error
	if v.Searched, v.All, err = lookInTenants(p, maxLookedInto, look); err != nil {
		return err
	}
	switch {
	case there != "" && resource == "keys":
		p.redirect(pagePath(there, resource))
	case there != "":
		p.redirect(pagePath(there, resource, q.ID))
	default:
		v.Missing = q.ID
		return showFound(p, v)
	}
	return nil
}

// Bounds of a look into tenants, one after another.
const (
	maxLookedInto = 1000
	lookTime      = 2 * time.Second
)

// lookInTenants looks into the page's tenant and, for operators, into the others, by their ids, until it is done, has looked into the most tenants, or
// its time is over. It reports into how many it has looked, without one whose look was cut off, and whether those were all.
func lookInTenants(p *page, most int, look func(ctx context.Context, tenant string) (done bool, err error)) (looked int, all bool, err error) {
	ctx, cancel := context.WithTimeout(p.r.Context(), lookTime)
	defer cancel()
	into := func(tenant string) (over bool, err error) {
		if looked == most {
			return true, nil
		}
		done, err := look(ctx, tenant)
		if err != nil && ctx.Err() != nil {
			return true, nil //nolint:nilerr // its time is over, which is no error
		}
		looked++
		return done, err
	}
	if p.tenant != "" {
		if over, err := into(p.tenant); over || err != nil {
			return looked, false, err
		}
	}
	for cursor, more := "", p.session.operator(); more; {
		var tenants client.Page[client.Tenant]
		if err := p.api.get(ctx, &tenants, url.Values{"limit": {"100"}, "cursor": {cursor}}, apiPath("tenants")); err != nil {
			if ctx.Err() != nil {
				return looked, false, nil
			}
			return looked, false, err
		}
		for _, t := range tenants.Data {
			if t.ID == p.tenant {
				continue
			}
			if over, err := into(t.ID); over || err != nil {
				return looked, false, err
			}
		}
		cursor, more = tenants.NextCursor, tenants.NextCursor != ""
	}
	return looked, true, nil
}

// tenantIDs are the first ids of tenants, for operators; none for others.
func tenantIDs(p *page) (ids []string, err error) {
	if !p.session.operator() {
		return nil, nil
	}
	var all client.Page[client.Tenant]
	err = p.api.get(p.r.Context(), &all, url.Values{"limit": {"100"}}, apiPath("tenants"))
	for _, t := range all.Data {
		ids = append(ids, t.ID)
	}
	return ids, err
}

// tenantHas reports whether a tenant has what the id names.
func tenantHas(ctx context.Context, p *page, tenant, resource, id string) (bool, error) {
	if resource == "keys" { // the API only lists them
		var keys client.Page[client.Key]
		err := p.api.get(ctx, &keys, url.Values{"limit": {"250"}}, apiPath("tenants", tenant, "keys"))
		if isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusForbidden) {
			return false, nil
		}
		return slices.ContainsFunc(keys.Data, func(k client.Key) bool { return k.ID == id }), err
	}
	err := p.api.get(ctx, nil, nil, apiPath("tenants", tenant, resource, id))
	if isStatus(err, http.StatusNotFound) {
		return false, nil
	}
	return err == nil, err
}

// resourceOf is the name of a kind of id in paths of the API and of the console; "" if there is no such path.
func resourceOf(kind string) string {
	switch kind {
	case "event":
		return "events"
	case "delivery":
		return "deliveries"
	case "endpoint":
		return "endpoints"
	case "replay":
		return "replays"
	case "key":
		return "keys"
	}
	return ""
}
