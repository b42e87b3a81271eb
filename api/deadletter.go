package api

import (
	"net/http"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

func (h *deliveryHandler) deadLetters(c call) error {
	q := c.query("dead-letters", deadLetterFilters()...)
	return h.listByFilter(c, q, deadLetterFilter(q))
}

// deadLetterFilters are the filters of dead letters.
func deadLetterFilters() []string {
	return append([]string{"reason"}, deliveryFilters()...)
}

func deadLetterFilter(q *query) webhook.DeliveryFilter {
	f := deliveryFilter(q)
	f.States = []webhook.State{webhook.StateDeadLettered}
	f.Reason = q.text("reason", func(v string) bool { return printable(v, maxReason) }, notPrintable(maxReason))
	return f
}

func (h *deliveryHandler) deadLetterGroups(c call) error {
	q := c.parameters(deadLetterFilters()...)
	f := deadLetterFilter(q)
	if err := q.problem(); err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	found, err := h.groups.GroupDeadLetters(c.Request().Context(), c.tenant, f)
	if err != nil {
		return err
	}
	view := client.DeadLetterGroups{Groups: make([]client.DeadLetterGroup, 0, len(found.Groups)), Counted: found.Counted, More: found.More}
	for _, g := range found.Groups {
		view.Groups = append(view.Groups, client.DeadLetterGroup{
			EndpointID: g.EndpointID.String(), Reason: g.Reason, Status: nullable(g.Status), Count: g.Count,
			OldestAt: timestamp(g.Oldest), NewestAt: timestamp(g.Newest), ExampleID: g.Example.String(),
		})
	}
	return c.json(http.StatusOK, view)
}
