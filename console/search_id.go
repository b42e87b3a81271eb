package console

import (
	"net/http"
	"net/url"
	"slices"

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
		v.Missing = q.ID
		return showFound(p, v)
	}
	others, err := tenantIDs(p)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(id string) bool { return id == p.tenant })
	for _, tenant := range append([]string{p.tenant}, others...) {
		v.Searched++
		switch found, err := tenantHas(p, tenant, resource, q.ID); {
		case err != nil:
			return err
		case found && resource == "keys":
			p.redirect(pagePath(tenant, resource))
			return nil
		case found:
			p.redirect(pagePath(tenant, resource, q.ID))
			return nil
		}
	}
	v.Missing = q.ID
	return showFound(p, v)
}

// tenantIDs are the ids of the newest tenants, for operators; none for others.
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
func tenantHas(p *page, tenant, resource, id string) (bool, error) {
	if resource == "keys" { // the API only lists them
		var keys client.Page[client.Key]
		err := p.api.get(p.r.Context(), &keys, url.Values{"limit": {"250"}}, apiPath("tenants", tenant, "keys"))
		if isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusForbidden) {
			return false, nil
		}
		return slices.ContainsFunc(keys.Data, func(k client.Key) bool { return k.ID == id }), err
	}
	err := p.api.get(p.r.Context(), nil, nil, apiPath("tenants", tenant, resource, id))
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
