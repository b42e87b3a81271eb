package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/query"
	"github.com/everpost/everpost/internal/webhook"
)

// foundEverywhere is the page of a search over all tenants.
type foundEverywhere struct {
	Text      string
	Problems  []searchProblem // why it cannot be looked for
	Looked    int             // tenants
	All       bool            // they are all that there are
	Full      bool            // there may be more than is shown
	Events    []eventOfTenant
	Endpoints []client.EndpointCondition
}

// eventOfTenant is an event with the tenant that it is of.
type eventOfTenant struct {
	client.ListedEvent

	TenantID string
}

// Nothing reports whether a search found nothing.
func (v *foundEverywhere) Nothing() bool {
	return v.Text != "" && len(v.Problems) == 0 && len(v.Events)+len(v.Endpoints) == 0
}

const (
	shownOfTenant = 5 // results of a kind that are read of one tenant
	// maxSearched is the number of tenants that are searched. It is less than maxLookedInto, because all endpoints of a tenant are looked at.
	maxSearched = 100
)

// searchAll finds an id, an external id or an endpoint, whichever tenant it is of. An id leads to its page; with tenant: the search is that tenant's.
func searchAll(p *page) error {
	v := foundEverywhere{Text: strings.TrimSpace(p.r.URL.Query().Get("q"))}
	q, problems := query.Parse(v.Text, p.console.config.Now())
	part, external := q.URL, q.ExternalID
	if q.Text != "" {
		part, external = q.Text, q.Text
	}
	switch {
	case v.Text == "":
	case webhook.ValidTenantID(q.Tenant):
		p.redirect(pagePath(q.Tenant, "search") + "?" + url.Values{"q": {v.Text}}.Encode())
		return nil
	case q.Tenant != "":
		v.Problems = []searchProblem{otherTenant(q.Tenant)}
	case len(problems) > 0:
		for _, wrong := range problems {
			v.Problems = append(v.Problems, searchProblem{wrong.Cut(v.Text), wrong.Message})
		}
	case q.ID != "":
		return goTo(p, searchView{Text: v.Text}, q)
	case narrows(q) || q.Type != "" || !q.Since.IsZero() || !q.Until.IsZero():
		v.Problems = []searchProblem{{"", "Filters are for one tenant: add tenant: with its id."}}
	default:
		var err error
		if v.Looked, v.All, err = lookInTenants(p, maxSearched, v.looker(p, part, external)); err != nil {
			if v.Problems, err = searchRefused(v.Text, err); err != nil {
				return err
			}
		}
	}
	return p.show(view{Template: "search-all", Title: "Search all tenants", Entry: searchTitle, Data: &v})
}

// looker returns what looks into one tenant for endpoints with a part of their URL, description or id, and events with an external id.
func (v *foundEverywhere) looker(p *page, part, external string) func(ctx context.Context, tenant string) (done bool, err error) {
	limit := strconv.Itoa(shownOfTenant)
	return func(ctx context.Context, tenant string) (done bool, err error) {
		var events client.Page[client.ListedEvent]
		var endpoints client.Page[client.EndpointCondition]
		if external != "" {
			err = p.api.get(ctx, &events, url.Values{"external_id": {external}, "limit": {limit}}, apiPath("tenants", tenant, "events"))
		}
		if part != "" {
			read := p.api.get(ctx, &endpoints, url.Values{"text": {part}, "limit": {limit}}, apiPath("tenants", tenant, "endpoint-conditions"))
			err = errors.Join(err, read)
		}
		if isStatus(err, http.StatusNotFound) { // deleted a moment ago
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, e := range events.Data {
			v.Events = append(v.Events, eventOfTenant{e, tenant})
		}
		v.Endpoints = append(v.Endpoints, endpoints.Data...)
		v.Full = v.Full || events.NextCursor != "" || endpoints.NextCursor != "" || len(v.Events)+len(v.Endpoints) >= shownFound
		return len(v.Events)+len(v.Endpoints) >= shownFound, nil
	}
}
