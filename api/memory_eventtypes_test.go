package api

import (
	"context"
	"slices"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

func (m *memory) EventType(_ context.Context, name string) (webhook.EventType, error) {
	defer m.lock()()
	t, ok := m.types[name]
	if !ok {
		return t, webhook.NotFound("event type")
	}
	return t, m.broken
}

func (m *memory) ListEventTypes(_ context.Context, f webhook.EventTypeFilter, limit int, after string) ([]webhook.EventType, error) {
	defer m.lock()()
	var all []webhook.EventType
	for _, t := range m.types {
		if t.Name > after && strings.HasPrefix(t.Name, f.Prefix) && (f.Group == "" || f.Group == t.Group) && (f.State == nil || *f.State == t.State) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b webhook.EventType) int { return strings.Compare(a.Name, b.Name) })
	return all[:min(limit, len(all))], m.broken
}

func (m *memory) NewestSchemas(_ context.Context, types []string, most int) (texts [][]byte, err error) {
	defer m.lock()()
	size := 0
	for _, name := range types {
		t := m.types[name]
		if len(t.Versions) == 0 || t.Versions[len(t.Versions)-1].Schema == nil {
			return nil, m.broken
		}
		texts = append(texts, t.Versions[len(t.Versions)-1].Schema)
		size += len(texts[len(texts)-1])
	}
	if size > most {
		texts = nil
	}
	return texts, m.broken
}

func (m *memory) PutEventType(_ context.Context, by webhook.Actor, t webhook.EventType, match webhook.RevisionMatch) (
	stored, before webhook.EventType, err error,
) {
	defer m.lock()()
	before = m.types[t.Name]
	if err := match.Check(before.Revision, "event type"); err != nil {
		return stored, before, err
	}
	t.Revision, t.CreatedAt, t.UpdatedAt = before.Revision+1, m.now(), m.now()
	m.types[t.Name] = t
	m.actors = append(m.actors, by)
	return t, before, m.broken
}

func (m *memory) UpdateEventType(ctx context.Context, by webhook.Actor, name string, match webhook.RevisionMatch,
	change func(*webhook.EventType) error,
) (stored, before webhook.EventType, err error) {
	before, err = m.EventType(ctx, name)
	if err != nil {
		return stored, before, err
	}
	t := before
	if err := change(&t); err != nil {
		return stored, before, err
	}
	return m.PutEventType(ctx, by, t, match)
}

func (m *memory) DeleteEventType(_ context.Context, _ webhook.Actor, name string, match webhook.RevisionMatch) error {
	defer m.lock()()
	t, ok := m.types[name]
	if !ok {
		return webhook.NotFound("event type")
	}
	if err := match.Check(t.Revision, "event type"); err != nil {
		return err
	}
	delete(m.types, name)
	return m.broken
}

func (m *memory) ImportEventTypes(_ context.Context, by webhook.Actor, in webhook.TypeImport) (changes []webhook.ImportedChange, err error) {
	defer m.lock()()
	m.actors = append(m.actors, by)
	m.imported = append(m.imported, in)
	for _, t := range in.Types {
		changes = append(changes, webhook.ImportedChange{
			Name: t.Name, Change: webhook.ImportCreated, Version: 2, Schema: t.Schema,
			Before: &webhook.EventTypeVersion{Version: 1, Schema: []byte(`{"properties":{"gone":{}}}`)},
		})
	}
	return changes, m.broken
}

func (m *memory) AllEventTypes(context.Context, int) (all []webhook.EventType, err error) {
	defer m.lock()()
	for _, t := range m.types {
		all = append(all, t)
	}
	return all, m.broken
}
