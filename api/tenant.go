package api

import (
	"net/http"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// showDeletion shows a tenant that is being deleted. All that is left of it is its id.
func showDeletion(id string, d webhook.TenantDeletion) client.Tenant {
	view := showTenant(webhook.Tenant{ID: id})
	view.State, view.Deletion = "deleting", &client.Deletion{Since: timestamp(d.Since), Table: nullable(d.Table), Rows: d.Rows}
	return view
}

const notATenantID = "must be 1 to 64 of A-Z, a-z, 0-9, _ and -"

func showTenant(t webhook.Tenant) client.Tenant {
	view := client.Tenant{
		ID: t.ID, Name: t.Name, Contact: nullable(t.Contact), Metadata: orEmpty(t.Metadata), Limits: showLimits(t.Limits),
		Retention: showRetention(t.Retention), State: "active", CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
	}
	if !t.RetryPolicy.IsZero() {
		view.RetryPolicy = new(showPolicy(t.RetryPolicy))
	}
	return view
}

// tenantHandler makes, shows, changes and deletes tenants.
type tenantHandler struct {
	tenants   Tenants
	updates   TenantUpdates
	deletions TenantDeletions
	retention time.Duration // the installation's, which bounds the tenant's
	now       func() time.Time
}

func (h *tenantHandler) put(c call) error {
	now := h.now().UTC()
	t := webhook.Tenant{ID: c.tenant, Metadata: map[string]string{}, CreatedAt: now, UpdatedAt: now}
	if !webhook.ValidTenantID(t.ID) {
		return webhook.Invalid("id", notATenantID)
	}
	err := c.object(func(d *jsonDecoder, name string) { h.readField(d, &t, name) })
	if err != nil {
		return err
	}
	stored, created, err := h.tenants.PutTenant(c.Request().Context(), c.actor(), t)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.json(status, showTenant(stored))
}

// readField reads the named field into t; null sets its default.
func (h *tenantHandler) readField(d *jsonDecoder, t *webhook.Tenant, name string) {
	switch name {
	case "name":
		set(d, &t.Name, "", func(d *jsonDecoder) string { return readLabel(d, maxName) })
	case "contact":
		set(d, &t.Contact, "", func(d *jsonDecoder) string { return readPrintable(d, maxName) })
	case "metadata":
		set(d, &t.Metadata, map[string]string{}, readMetadata)
	case "limits":
		set(d, &t.Limits, webhook.Limits{}, func(d *jsonDecoder) webhook.Limits { return readLimits(d, t.Limits) })
	case "retention":
		set(d, &t.Retention, webhook.Retention{}, func(d *jsonDecoder) webhook.Retention { return readRetention(d, t.Retention, h.retention) })
	case "retry_policy":
		set(d, &t.RetryPolicy, retry.Policy{}, readRetryPolicy)
	default:
		d.unknown()
	}
}

// update is PATCH: an absent field is unchanged, null sets the default. As with an endpoint,
// the body is first read into a scratch tenant, before any lock is taken.
func (h *tenantHandler) update(c call) error {
	text, err := c.body()
	if err != nil {
		return err
	}
	change := func(t *webhook.Tenant) error {
		return readObject(text, func(d *jsonDecoder, name string) { h.readField(d, t, name) })
	}
	if err := change(&webhook.Tenant{}); err != nil {
		return err
	}
	stored, err := h.updates.UpdateTenant(c.Request().Context(), c.actor(), c.tenant, change)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showTenant(stored))
}

func (h *tenantHandler) get(c call) error {
	t, err := h.tenants.Tenant(c.Request().Context(), c.tenant)
	if webhook.CodeOf(err) == webhook.CodeNotFound && c.key.Scope == webhook.ScopeOperator {
		d, err := h.deletions.Deletion(c.Request().Context(), c.tenant)
		if err != nil {
			return err
		}
		return c.json(http.StatusOK, showDeletion(c.tenant, d))
	}
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showTenant(t))
}

func (h *tenantHandler) list(c call) error {
	q := c.query("tenants", "prefix")
	prefix := q.text("prefix", webhook.ValidTenantID, "must be the beginning of an id: letters, digits, _ and -")
	if err := q.problem(); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.Tenant, error) {
		return h.tenants.ListTenants(c.Request().Context(), prefix, limit, after)
	}
	return list(c, q, fetch, func(t webhook.Tenant) string { return t.ID }, showTenant)
}

func (h *tenantHandler) delete(c call) error {
	q := c.parameters("everything")
	everything := q.boolean("everything")
	if err := q.problem(); err != nil {
		return err
	}
	if everything {
		d, err := h.deletions.BeginDeletion(c.Request().Context(), c.actor(), c.tenant)
		if err != nil {
			return err
		}
		return c.json(http.StatusAccepted, showDeletion(c.tenant, d))
	}
	if err := h.tenants.DeleteTenant(c.Request().Context(), c.actor(), c.tenant); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
