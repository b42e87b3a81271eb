package api

import (
	"net/http"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

func showKey(k webhook.Key) client.Key {
	return client.Key{
		ID: k.ID.String(), Scope: client.Scope(k.Scope.String()), Name: k.Name, CreatedAt: timestamp(k.CreatedAt),
		ExpiresAt: timestamp(k.ExpiresAt), LastUsedAt: timestamp(k.LastUsedAt),
	}
}

// keyHandler makes, lists and revokes API keys.
type keyHandler struct {
	keys    Keys
	tenants tenantReader
	now     func() time.Time
}

func (h *keyHandler) create(c call) error {
	k := webhook.Key{ID: webhook.NewKeyID(), TenantID: c.tenant, CreatedAt: h.now().UTC().Truncate(time.Microsecond)}
	err := c.object(func(d *jsonDecoder, name string) {
		switch name {
		case "scope":
			switch scope, ok := d.str(); {
			case !ok:
			case scope == webhook.ScopeIngest.String():
				k.Scope = webhook.ScopeIngest
			case scope == webhook.ScopeAdmin.String():
				k.Scope = webhook.ScopeAdmin
			default:
				d.note(`must be "ingest" or "admin"`)
			}
		case "name":
			if !d.null() {
				k.Name = readLabel(d, maxName)
			}
		case "expires_at":
			if d.null() {
				return
			}
			if t, ok := d.instant(); ok {
				if k.ExpiresAt = t; !t.After(k.CreatedAt) {
					d.note("must be in the future")
				}
			}
		default:
			d.unknown()
		}
	}, "scope")
	if err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	if own := c.key.ExpiresAt; !own.IsZero() && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(own)) {
		k.ExpiresAt = own // it ends with the key that makes it
	}
	text, sum := NewKey(k.ID)
	k.SHA256 = sum
	if err := h.keys.CreateKey(c.Request().Context(), c.actor(), k); err != nil {
		return err
	}
	view := showKey(k)
	view.Key = text
	return c.json(http.StatusCreated, view)
}

func (h *keyHandler) list(c call) error {
	q := c.query("keys")
	if err := q.problem(); err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.Key, error) {
		return h.keys.ListKeys(c.Request().Context(), c.tenant, pageOf(limit, after))
	}
	return list(c, q, fetch, func(k webhook.Key) string { return idPosition(k.ID) }, showKey)
}

func (h *keyHandler) revoke(c call) error {
	id, err := pathID(c, webhook.ParseKeyID)
	if err != nil {
		return err
	}
	if err := h.keys.RevokeKey(c.Request().Context(), c.actor(), c.tenant, id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
