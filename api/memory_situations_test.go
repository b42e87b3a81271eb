package api

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// TenantEndpoints implements Situations.
func (m *memory) TenantEndpoints(_ context.Context, tenant string) ([]*webhook.Endpoint, error) {
	defer m.lock()()
	if m.unexplained != nil {
		return nil, m.unexplained
	}
	var all []*webhook.Endpoint
	for _, e := range m.endpoints {
		if e.TenantID == tenant {
			all = append(all, &e)
		}
	}
	slices.SortFunc(all, func(a, b *webhook.Endpoint) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return all, nil
}

func (m *memory) DeletedEndpoints(context.Context, string, int) ([]webhook.DeletedEndpoint, error) {
	defer m.lock()()
	return m.deleted, m.unexplained
}

func (m *memory) Observed(_ context.Context, _ string, ids []webhook.EndpointID) (map[webhook.EndpointID]webhook.Observation, bool, error) {
	defer m.lock()()
	m.observations++
	observed := map[webhook.EndpointID]webhook.Observation{}
	for _, id := range ids {
		if len(m.seen) > 0 {
			observed[id] = webhook.Aggregate(m.seen)
		}
	}
	return observed, m.stale, m.unexplained
}

func (m *memory) WaitsOf(_ context.Context, _ string, ids []webhook.EndpointID) (map[webhook.EndpointID]webhook.Waits, error) {
	defer m.lock()()
	m.waits++
	found := map[webhook.EndpointID]webhook.Waits{}
	for _, id := range ids {
		found[id] = webhook.Waits{Waiting: m.backlog.Waiting(), LastSuccess: testNow().Add(-time.Hour)}
	}
	return found, m.unexplained
}

func (m *memory) Ahead(context.Context, webhook.Delivery) (n int, more bool, err error) {
	defer m.lock()()
	return m.ahead, false, m.unexplained
}

// TemporalDownSince implements Engine.
func (m *memory) TemporalDownSince() time.Time {
	defer m.lock()()
	return m.down
}

func (m *memory) SentAt(*webhook.Delivery) time.Time {
	defer m.lock()()
	return m.sentAt
}

func (m *memory) ReleasesOf(context.Context, string, []webhook.EndpointID) ([]webhook.Release, error) {
	defer m.lock()()
	return slices.Collect(maps.Values(m.releases)), m.unexplained
}

// TroubledTenants implements Attention.
func (m *memory) TroubledTenants(_ context.Context, limit int) ([]webhook.TroubledTenant, error) {
	defer m.lock()()
	return m.troubled[:min(limit, len(m.troubled))], m.unexplained
}

func (m *memory) OpenCounts(_ context.Context, tenantID string) (webhook.OpenCounts, error) {
	defer m.lock()()
	n := webhook.OpenCounts{Waiting: m.backlog.Waiting(), DeadLetters: len(m.troubled)}
	for _, t := range m.troubled {
		if t.TenantID == tenantID {
			n.LastHour = t.DeadLetters
		}
	}
	return n, m.unexplained
}

func (m *memory) UndeliveredOf(_ context.Context, _ string, ids []webhook.EndpointID) (map[webhook.EndpointID]webhook.Undelivered, error) {
	defer m.lock()()
	found := map[webhook.EndpointID]webhook.Undelivered{}
	for _, id := range ids {
		found[id] = webhook.Undelivered{Waiting: 1, Held: 2, GivenUp: 3}
	}
	return found, cmp.Or(m.uncounted, m.unexplained)
}
