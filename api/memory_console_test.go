package api

import (
	"context"
	"crypto/sha256"

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

// CreateToken implements ConsoleLinks.
func (m *memory) CreateToken(ctx context.Context, by webhook.Actor, l webhook.ConsoleLink) error {
	return m.CreateLink(ctx, by, l)
}

// Session implements ConsoleLinks. Each link is the session of its token.
func (m *memory) Session(_ context.Context, sum [sha256.Size]byte, _ bool) (webhook.ConsoleSession, error) {
	defer m.lock()()
	m.tokenReads++
	for _, l := range m.links {
		if _, there := m.tenants[l.TenantID]; l.SHA256 == sum && there && m.now().Before(l.ExpiresAt) {
			return l.Session(), nil
		}
	}
	return webhook.ConsoleSession{}, webhook.NotFound("session")
}
