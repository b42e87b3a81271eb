package console

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	homeTitle      = "Home"
	endpointsTitle = "Endpoints"
)

// homeView is what operators see first: what needs attention over all tenants.
type homeView struct {
	client.Attention

	Stats *charts
	Sort  string
	Text  string
	Any   bool // there is a tenant
}

// home shows what needs attention over all tenants; a session of one tenant goes to the overview of that.
func home(p *page) error {
	if p.session.TenantID != "" {
		p.redirect(pagePath(p.session.TenantID))
		return nil
	}
	given := p.r.URL.Query()
	v := homeView{Sort: given.Get("sort"), Text: strings.TrimSpace(given.Get("text"))}
	if err := p.api.get(p.r.Context(), &v.Attention, nil, apiPath("attention")); err != nil {
		return err
	}
	v.narrow()
	var err error
	if v.Stats, err = statsOf(p, apiPath("stats"), "", rangeOf(p, "1h")); err != nil {
		return err
	}
	var tenants client.Page[client.Tenant]
	if err := p.api.get(p.r.Context(), &tenants, url.Values{"limit": {"1"}}, apiPath("tenants")); err != nil {
		return err
	}
	v.Any = len(tenants.Data) > 0
	return p.show(view{Template: "home", Title: homeTitle, Entry: homeTitle, Live: true, Data: v})
}

// narrow leaves out what does not contain the text, and sorts the tenants.
func (v *homeView) narrow() {
	without := func(texts ...string) bool {
		return !strings.Contains(strings.ToLower(strings.Join(texts, "\n")), strings.ToLower(v.Text))
	}
	v.Endpoints = slices.DeleteFunc(v.Endpoints, func(e client.TroubledEndpoint) bool {
		return without(e.TenantID, e.URL, e.Description, e.EndpointID, e.Condition, value(e.Cause))
	})
	v.Tenants = slices.DeleteFunc(v.Tenants, func(t client.TroubledTenant) bool { return without(t.TenantID, t.Name) })
	slices.SortStableFunc(v.Tenants, func(a, b client.TroubledTenant) int {
		switch v.Sort {
		case "tenant":
			return strings.Compare(a.TenantID, b.TenantID)
		case "waiting":
			return cmp.Compare(b.Waiting, a.Waiting)
		case "dead_letters":
			return cmp.Compare(b.DeadLetters, a.DeadLetters)
		case "last_hour":
			return cmp.Compare(b.DeadLettersLastHour, a.DeadLettersLastHour)
		}
		return cmp.Compare(b.Endpoints, a.Endpoints)
	})
}

// attentionIn is how much needs attention at a tenant, by the entry of the menu. It is empty if that cannot be read: the menu is shown all the same.
func attentionIn(p *page, tenant string) map[string]string {
	counts := map[string]string{}
	if tenant == "" || p.live != nil {
		return counts
	}
	var found client.TenantAttention
	if p.api.get(p.r.Context(), &found, nil, apiPath("tenants", tenant, "attention")) != nil {
		return counts
	}
	for label, n := range map[string]int{endpointsTitle: found.Endpoints, deadLettersTitle: found.DeadLetters} {
		if n > 0 {
			counts[label] = upTo(n)
		}
	}
	return counts
}

// upTo is a count that goes no further than webhook.MaxAttention.
func upTo(n int) string {
	if n >= webhook.MaxAttention {
		return count(webhook.MaxAttention) + "+"
	}
	return count(int64(n))
}

// switchTenant goes to the overview of the tenant that was typed, or to those whose ids begin with it.
func switchTenant(p *page) error {
	id := strings.TrimSpace(p.r.URL.Query().Get("tenant"))
	switch err := p.api.get(p.r.Context(), nil, nil, apiPath("tenants", id)); {
	case err == nil && id != "":
		p.redirect(pagePath(id))
	case err == nil || isStatus(err, http.StatusNotFound):
		p.redirect(Root + "/tenants?" + url.Values{"prefix": {id}}.Encode())
	default:
		return err
	}
	return nil
}

// suggestTenants answers with the ids that begin with what was typed.
func suggestTenants(p *page) error {
	query, ids := url.Values{"limit": {"20"}}, []string{}
	if prefix := strings.TrimSpace(p.r.URL.Query().Get("q")); webhook.ValidTenantID(prefix) {
		query.Set("prefix", prefix)
	}
	var found client.Page[client.Tenant]
	if err := p.api.get(p.r.Context(), &found, query, apiPath("tenants")); err != nil {
		return err
	}
	for _, t := range found.Data {
		ids = append(ids, t.ID)
	}
	return answerSuggestions(p, ids)
}

// answerSuggestions answers a box with what could be typed into it.
func answerSuggestions(p *page, texts []string) error {
	encoded, err := json.Marshal(texts)
	if err != nil {
		return err //nolint:wrapcheck // strings can always be encoded
	}
	p.w.Header().Set("Content-Type", "application/json")
	_, _ = p.w.Write(encoded) // an error: the browser has gone
	return nil
}
