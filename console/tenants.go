package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
)

const tenantsTitle = "Tenants"

// tenantsView is the list of tenants with the form of a new one.
type tenantsView struct {
	Filter  form
	Tenants []client.Tenant
	Next    string
	Form    form
}

func newTenantForm() form { return newForm("id", "", "name", "", "contact", "") }

func listTenants(p *page) error { return showTenants(p, newTenantForm()) }

func showTenants(p *page, f form) error {
	var found client.Page[client.Tenant]
	given := p.r.URL.Query()
	filter := newForm("prefix", given.Get("prefix"))
	query := url.Values{"limit": {"50"}, "cursor": {given.Get("cursor")}}
	if prefix := strings.TrimSpace(given.Get("prefix")); prefix != "" {
		query.Set("prefix", prefix)
	}
	if err := p.api.get(p.r.Context(), &found, query, apiPath("tenants")); err != nil {
		if filter, err = filter.refused(given, err); err != nil {
			return err
		}
	}
	return p.show(view{
		Template: "tenants", Title: tenantsTitle, Entry: tenantsTitle, Status: max(f.status(), filter.status()),
		Data: tenantsView{filter, found.Data, found.NextCursor, f},
	})
}

// createTenant creates a tenant. One that exists is refused: the API's PUT would replace it.
func createTenant(p *page) error {
	id := strings.TrimSpace(p.typed.Get("id"))
	err := tenantIsNew(p, id)
	if err == nil {
		body := map[string]any{"name": p.typed.Get("name")}
		if contact := p.typed.Get("contact"); contact != "" {
			body["contact"] = contact
		}
		if body["name"] == "" {
			body["name"] = id
		}
		err = p.api.send(p.r.Context(), nil, http.MethodPut, apiPath("tenants", id), body)
	}
	if err != nil {
		f, other := newTenantForm().refused(p.typed, err)
		if other != nil {
			return other
		}
		return showTenants(p, f)
	}
	return p.done(Root+"/tenants/"+url.PathEscape(id), "The tenant has been created. Give it a key next.")
}

// tenantIsNew returns an error if there is such a tenant.
func tenantIsNew(p *page, id string) error {
	if id == "" {
		return wrong("id", "is required")
	}
	switch err := p.api.get(p.r.Context(), nil, nil, apiPath("tenants", id)); {
	case err == nil:
		return wrong("id", "is taken by another tenant")
	case isStatus(err, http.StatusNotFound):
		return nil
	default:
		return err
	}
}

// tenantView is one tenant with its form.
type tenantView struct {
	client.Tenant

	Form form
}

func tenantForm(t *client.Tenant) form {
	l := t.Limits
	f := newForm("name", t.Name, "contact", value(t.Contact), "requests_per_second", floatText(l.RequestsPerSecond), "burst", intText(l.Burst),
		"endpoints", intText(l.Endpoints), "pending_deliveries", intText(l.PendingDeliveries), "endpoints_per_event", intText(l.EndpointsPerEvent),
		"running_replays", intText(l.RunningReplays),
		"payloads", value(t.Retention.Payloads), "attempts", value(t.Retention.Attempts), "deliveries", value(t.Retention.Deliveries))
	for path, text := range tenantPolicy(t) {
		f.Values.Set(path, text)
	}
	f.known = append(f.known, policyGroup().paths()...)
	return f
}

// tenantPolicy is what the fields of the tenant's retry policy hold.
func tenantPolicy(t *client.Tenant) map[string]string {
	values := map[string]string{}
	policyValues(values, t.RetryPolicy)
	return values
}

func intText(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func floatText(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

func showTenant(p *page) error {
	v := tenantView{}
	if err := p.get(&v.Tenant, nil); err != nil {
		return err
	}
	v.Form = tenantForm(&v.Tenant)
	return p.show(view{Template: "tenant", Title: "Tenant " + v.ID, Entry: tenantsTitle, Data: v})
}

// changeTenant changes what the form shows of a tenant, unless another has changed it since.
func changeTenant(p *page) error {
	v := tenantView{}
	if err := p.get(&v.Tenant, nil); err != nil {
		return err
	}
	err := changedMeanwhile("tenant", p.typed.Get("seen"), v.UpdatedAt)
	if err == nil {
		err = p.send(nil, http.MethodPatch, tenantBody(p.typed, &v.Tenant))
	}
	if err == nil {
		return p.done(Root+"/tenants/"+url.PathEscape(p.tenant), "The tenant has been changed.")
	}
	if v.Form, err = tenantForm(&v.Tenant).refused(p.typed, limitPaths(err)); err != nil {
		return err
	}
	return p.show(view{Template: "tenant", Title: "Tenant " + v.ID, Entry: tenantsTitle, Status: http.StatusBadRequest, Data: v})
}

func tenantBody(typed url.Values, before *client.Tenant) map[string]any {
	limits := map[string]any{}
	for _, name := range []string{"requests_per_second", "burst", "endpoints", "pending_deliveries", "endpoints_per_event", "running_replays"} {
		limits[name] = number(typed.Get(name))
	}
	retention := map[string]any{"payloads": nil, "attempts": nil, "deliveries": nil}
	for name := range retention {
		if kept := strings.TrimSpace(typed.Get(name)); kept != "" {
			retention[name] = kept
		}
	}
	body := map[string]any{
		"name": typed.Get("name"), "contact": nil, "limits": limits, "retention": retention,
	}
	policyGroup().addTo(body, typed, tenantPolicy(before))
	if contact := typed.Get("contact"); contact != "" {
		body["contact"] = contact
	}
	return body
}

// limitPaths names the fields of limits and retention as the form does.
func limitPaths(err error) error {
	known, ok := errors.AsType[*problem](err)
	if !ok {
		return err
	}
	for i := range known.Errors {
		known.Errors[i].Field = strings.TrimPrefix(strings.TrimPrefix(known.Errors[i].Field, "limits."), "retention.")
	}
	return known
}

func askDeleteTenant(p *page) error { return askAboutDeletion(p, "") }

// askAboutDeletion asks before a tenant is deleted, and says why it was not.
func askAboutDeletion(p *page, refusal string) error {
	var t client.Tenant
	if err := p.get(&t, nil); err != nil {
		return err
	}
	return p.ask("Tenant "+t.ID, tenantsTitle, question{
		Question: "Delete the tenant " + t.ID + "?",
		Detail:   "Its keys stop working at once. A tenant that still has endpoints cannot be deleted: delete them first. This cannot be undone.",
		Button:   "Delete the tenant", Back: Root + "/tenants/" + url.PathEscape(t.ID), Danger: true, Problem: refusal,
	})
}

func deleteTenant(p *page) error {
	err := p.send(nil, http.MethodDelete, nil)
	if isStatus(err, http.StatusConflict) {
		return askAboutDeletion(p, sentence(problemOf(err).Detail))
	}
	if err != nil {
		return err
	}
	return p.done(Root+"/tenants", "The tenant has been deleted.")
}
