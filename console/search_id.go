package console

import (
	"net/http"
	"net/url"

	"github.com/everpost/everpost/console/query"
)

// maxTenantsLooked bounds the tenants in which an operator's search looks for an id.
const maxTenantsLooked = 100

// goTo leads to the page of an id. Tenants' keys see their tenant; an operator may not know whose the id is, so it is looked
// for in other tenants, too.
func (p *page) goTo(v searchView, q query.Query) error {
	v.Kind = q.Kind.String()
	if q.Kind == query.KindAudit {
		if p.session.operator() {
			p.redirect(Root + "/audit")
			return nil
		}
		v.Missing = q.ID
		return p.showFound(v)
	}
	tenants, err := p.searchedTenants()
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		v.Looked++
		switch found, err := p.has(tenant, q); {
		case err != nil:
			return err
		case found:
			p.redirect(pageOfID(tenant, q))
			return nil
		}
	}
	v.Missing = q.ID
	return p.showFound(v)
}

// searchedTenants are the tenant of the page, and for an operator the others.
func (p *page) searchedTenants() ([]string, error) {
	tenants := []string{p.tenant}
	if !p.session.operator() {
		return tenants, nil
	}
	var all list[tenantDetails]
	if err := p.api.get(p.r.Context(), &all, url.Values{"limit": {"100"}}, apiPath("tenants")); err != nil {
		return nil, err
	}
	for _, t := range all.Data {
		if t.ID != p.tenant && len(tenants) < maxTenantsLooked {
			tenants = append(tenants, t.ID)
		}
	}
	return tenants, nil
}

// has reports whether a tenant has what the id names.
func (p *page) has(tenant string, q query.Query) (bool, error) {
	if q.Kind == query.KindKey {
		var keys list[apiKey]
		err := p.api.get(p.r.Context(), &keys, url.Values{"limit": {"250"}}, apiPath("tenants", tenant, "keys"))
		if isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusForbidden) {
			return false, nil
		}
		for _, k := range keys.Data {
			if k.ID == q.ID {
				return true, nil
			}
		}
		return false, err
	}
	err := p.api.get(p.r.Context(), nil, nil, apiPath("tenants", tenant, resourceOf(q.Kind), q.ID))
	if isStatus(err, http.StatusNotFound) {
		return false, nil
	}
	return err == nil, err
}

// resourceOf is the name of a kind in paths of the API and of the console.
func resourceOf(kind query.Kind) string {
	switch kind {
	case query.KindEvent:
		return "events"
	case query.KindDelivery:
		return "deliveries"
	case query.KindEndpoint:
		return "endpoints"
	case query.KindReplay:
		return "replays"
	case query.KindKey:
		return "keys"
	case query.KindAudit, query.KindNone:
	}
	return ""
}

// pageOfID is the path of the page about an id.
func pageOfID(tenant string, q query.Query) string {
	if q.Kind == query.KindKey {
		return pagePath(tenant, "keys")
	}
	return pagePath(tenant, resourceOf(q.Kind), q.ID)
}
