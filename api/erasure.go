package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

func showRemoval(r webhook.PayloadRemoval) *client.PayloadRemoval {
	if r.IsZero() {
		return nil
	}
	return &client.PayloadRemoval{At: timestamp(r.At), Reason: r.Reason}
}

// erasureHandler erases payloads.
type erasureHandler struct {
	erasures PayloadErasures
	tenants  tenantReader
	starter  Starter
}

// one erases the payload of one event.
func (h *erasureHandler) one(c call) error {
	id, err := pathID(c, webhook.ParseEventID)
	if err != nil {
		return err
	}
	q := c.parameters("cancel")
	cancel := q.boolean("cancel")
	if err := q.problem(); err != nil {
		return err
	}
	if _, err := h.erase(c, webhook.PayloadErasure{IDs: []webhook.EventID{id}, Cancel: cancel}); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// many erases the payloads of the events that have certain external ids.
func (h *erasureHandler) many(c call) error {
	var e webhook.PayloadErasure
	err := c.object(func(d *jsonDecoder, name string) {
		switch name {
		case "external_ids":
			e.ExternalIDs = readExternalIDs(d)
		case "cancel":
			set(d, &e.Cancel, false, readBoolean)
		default:
			d.unknown()
		}
	}, "external_ids")
	if err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	erased, err := h.erase(c, e)
	if err != nil {
		return err
	}
	view := client.ErasedPayloads{Data: make([]client.ErasedPayload, 0, len(erased))}
	for _, of := range erased {
		view.Data = append(view.Data, client.ErasedPayload{
			ExternalID: of.ExternalID, EventID: nullableText(of.EventID), Removed: showRemoval(of.Removed),
		})
	}
	return c.json(http.StatusOK, view)
}

func readExternalIDs(d *jsonDecoder) (ids []string) {
	seen := map[string]bool{}
	count := d.array(func(i int) {
		if i == webhook.MaxErasures {
			d.noteParent("has more than " + strconv.Itoa(webhook.MaxErasures) + " entries")
		}
		if i >= webhook.MaxErasures {
			d.skip()
			return
		}
		id := readPrintable(d, webhook.MaxExternalID)
		if id != "" && seen[id] {
			d.note("is listed more than once")
		}
		seen[id] = true
		ids = append(ids, id)
	})
	if count == 0 {
		d.note("must name at least one external id")
	}
	return ids
}

// erase erases payloads and signals the deliveries that are cancelled. Their workflows must be signalled
// even if the client has disconnected.
func (h *erasureHandler) erase(c call, e webhook.PayloadErasure) ([]webhook.ErasedPayload, error) {
	ctx := c.Request().Context()
	erased, cancelled, err := h.erasures.ErasePayloads(ctx, c.actor(), c.tenant, e)
	if err != nil {
		return nil, err
	}
	for _, d := range cancelled {
		h.starter.Commanded(context.WithoutCancel(ctx), d.Delivery, d.Command)
	}
	return erased, nil
}
