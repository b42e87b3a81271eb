package api

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

// ErasePayloads implements PayloadErasures.
func (m *memory) ErasePayloads(_ context.Context, by webhook.Actor, tenant string, e webhook.PayloadErasure) (
	erased []webhook.ErasedPayload, cancelled []webhook.CommandedDelivery, err error,
) {
	defer m.lock()()
	m.actors = append(m.actors, by)
	for _, id := range e.IDs {
		erased = append(erased, webhook.ErasedPayload{EventID: id})
	}
	for _, external := range e.ExternalIDs {
		of := webhook.ErasedPayload{ExternalID: external}
		for _, a := range m.accepted {
			if a.Event.TenantID == tenant && a.Event.ExternalID == external {
				of.EventID = a.Event.ID
			}
		}
		erased = append(erased, of)
	}
	for i := range erased {
		of := &erased[i]
		at := -1
		for k := range m.accepted {
			if a := &m.accepted[k]; a.Event.TenantID == tenant && a.Event.ID == of.EventID {
				at = k
			}
		}
		if at < 0 && of.ExternalID == "" {
			return nil, nil, webhook.NotFound("event")
		}
		if at < 0 {
			continue
		}
		for _, d := range m.deliveries {
			if d.EventID != of.EventID || !d.State.Open() {
				continue
			}
			if !e.Cancel {
				return nil, nil, &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: "delivery " + d.DeliveryID.String() + " is open"}
			}
			cancelled = append(cancelled, webhook.CommandedDelivery{Delivery: d, Command: webhook.PendingCommand{Command: webhook.CommandCancel, ID: 1}})
		}
		of.Removed = webhook.PayloadRemoval{At: m.now(), Reason: webhook.PayloadErased}
		m.accepted[at].Event.Removed, m.accepted[at].Event.Tags, m.events[at].Headers = of.Removed, nil, nil
	}
	return erased, cancelled, m.broken
}

// RemovedPayloads implements PayloadErasures.
func (m *memory) RemovedPayloads(_ context.Context, _ string, ids []webhook.EventID) (map[webhook.EventID]webhook.PayloadRemoval, error) {
	defer m.lock()()
	removed := map[webhook.EventID]webhook.PayloadRemoval{}
	for _, id := range ids {
		for _, a := range m.accepted {
			if a.Event.ID == id && !a.Event.Removed.IsZero() {
				removed[id] = a.Event.Removed
			}
		}
	}
	return removed, m.unexplained
}
