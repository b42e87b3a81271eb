package api

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

// CreateLink implements ConsoleLinks.
func (m *memory) CreateLink(_ context.Context, by webhook.Actor, l webhook.ConsoleLink) error {
	defer m.lock()()
	if _, there := m.tenants[l.TenantID]; l.TenantID != "" && !there {
		return webhook.NotFound("tenant")
	}
	m.actors, m.links = append(m.actors, by), append(m.links, l)
	return m.broken
}
