package api

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/everpost/everpost/internal/webhook"
)

// BeginExport implements Exports.
func (m *memory) BeginExport(ctx context.Context, by webhook.Actor, id string) (webhook.Tenant, error) {
	t, err := m.Tenant(ctx, id)
	defer m.lock()()
	m.actors = append(m.actors, by)
	return t, err
}

// Contents implements Exports.
func (m *memory) Contents(_ context.Context, tenant string, ids []webhook.EventID) (map[webhook.EventID]webhook.Content, error) {
	defer m.lock()()
	if m.exportRead != nil {
		if err := m.exportRead(); err != nil {
			return nil, err
		}
	}
	contents := map[webhook.EventID]webhook.Content{}
	for i, a := range m.accepted {
		if a.Event.TenantID == tenant && slices.Contains(ids, a.Event.ID) && a.Event.Removed.IsZero() {
			contents[a.Event.ID] = webhook.Content{Payload: m.events[i].Payload, Headers: m.events[i].Headers}
		}
	}
	return contents, m.broken
}

// AttemptsOf implements Exports.
func (m *memory) AttemptsOf(_ context.Context, _ string, ids []webhook.DeliveryID, limit int, after webhook.DeliveryAttempt) (
	found []webhook.DeliveryAttempt, err error,
) {
	defer m.lock()()
	order := func(a, b webhook.DeliveryAttempt) int {
		return cmp.Or(bytes.Compare(a.DeliveryID[:], b.DeliveryID[:]), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Number, b.Number))
	}
	for _, id := range ids {
		for _, a := range m.attempts[id] {
			if one := (webhook.DeliveryAttempt{Attempt: a, DeliveryID: id}); order(one, after) > 0 {
				found = append(found, one)
			}
		}
	}
	slices.SortFunc(found, order)
	return found[:min(len(found), limit)], m.broken
}

// BeginDeletion implements TenantDeletions.
func (m *memory) BeginDeletion(_ context.Context, by webhook.Actor, id string) (webhook.TenantDeletion, error) {
	defer m.lock()()
	if _, ok := m.tenants[id]; !ok {
		return webhook.TenantDeletion{}, webhook.NotFound("tenant")
	}
	delete(m.tenants, id)
	m.actors = append(m.actors, by)
	m.deletions[id] = webhook.TenantDeletion{Since: m.now()}
	return m.deletions[id], m.broken
}

// Deletion implements TenantDeletions.
func (m *memory) Deletion(_ context.Context, id string) (webhook.TenantDeletion, error) {
	defer m.lock()()
	d, ok := m.deletions[id]
	if !ok {
		return d, webhook.NotFound("tenant")
	}
	return d, m.broken
}
