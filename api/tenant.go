package api

import (
	"net/http"
	"strconv"

	"github.com/everpost/everpost/internal/webhook"
)

// tenantView is a tenant as the API shows it.
type tenantView struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Contact   *string           `json:"contact"`
	Metadata  map[string]string `json:"metadata"`
	Limits    limitsView        `json:"limits"`
	CreatedAt timestamp         `json:"created_at"`
	UpdatedAt timestamp         `json:"updated_at"`
}

const notATenantID = "must be 1 to 64 of A-Z, a-z, 0-9, _ and -"

func showTenant(t webhook.Tenant) tenantView {
	return tenantView{
		ID: t.ID, Name: t.Name, Contact: nullable(t.Contact), Metadata: orEmpty(t.Metadata), Limits: showLimits(t.Limits),
		CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
	}
}

// orEmpty shows an absent map as {}.
func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func (s *Server) putTenant(c call) error {
	now := s.Now().UTC()
	t := webhook.Tenant{ID: c.tenant, Metadata: map[string]string{}, CreatedAt: now, UpdatedAt: now}
	if !webhook.ValidTenantID(t.ID) {
		return webhook.Invalid("id", notATenantID)
	}
	err := c.object(func(d *door, name string) {
		switch name {
		case "name":
			if !d.null() {
				t.Name = readLabel(d, maxName)
			}
		case "contact":
			if !d.null() {
				t.Contact = readPrintable(d, maxName)
			}
		case "metadata":
			if !d.null() {
				t.Metadata = readMetadata(d)
			}
		case "limits":
			if !d.null() {
				t.Limits = readLimits(d)
			}
		default:
			d.unknown()
		}
	})
	if err != nil {
		return err
	}
	stored, created, err := s.Tenants.PutTenant(c.Request().Context(), c.actor(), t)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.json(status, showTenant(stored))
}

func readMetadata(d *door) map[string]string {
	return d.stringMap(webhook.MaxMetadata, func(name, value string) string {
		switch {
		case !printable(name, maxMetaKey):
			return "must have a name of 1 to " + strconv.Itoa(maxMetaKey) + " printable characters"
		case value != "" && !printable(value, maxMetaValue):
			return "must be at most " + strconv.Itoa(maxMetaValue) + " printable characters"
		}
		return ""
	})
}

func (s *Server) getTenant(c call) error {
	t, err := s.Tenants.Tenant(c.Request().Context(), c.tenant)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showTenant(t))
}

func (s *Server) listTenants(c call) error {
	q := c.query("tenants")
	if err := q.problem(); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.Tenant, error) {
		return s.Tenants.ListTenants(c.Request().Context(), limit, after)
	}
	return list(c, q, fetch, func(t webhook.Tenant) string { return t.ID }, showTenant)
}

func (s *Server) deleteTenant(c call) error {
	if err := s.Tenants.DeleteTenant(c.Request().Context(), c.actor(), c.tenant); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
