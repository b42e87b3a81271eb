package app

import (
	"context"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/monitor"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/webhook"
)

// situations lets the API explain deliveries, events and endpoints.
type situations struct {
	*monitor.View

	store *stores.DB
}

func (s situations) TenantEndpoints(ctx context.Context, tenantID string) ([]*webhook.Endpoint, error) {
	of, err := s.store.Endpoints.Cache().OfTenant(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	all, _ := of.All()
	return all, nil
}

func (s situations) DeletedEndpoints(ctx context.Context, tenantID string, limit int) ([]webhook.DeletedEndpoint, error) {
	return s.store.Endpoints.DeletedEndpoints(ctx, tenantID, limit)
}

func (s situations) Ahead(ctx context.Context, d webhook.Delivery) (n int, more bool, err error) {
	return s.store.Deliveries.Ahead(ctx, d)
}

func (s situations) WaitsOf(ctx context.Context, tenantID string, ids []webhook.EndpointID) (map[webhook.EndpointID]webhook.Waits, error) {
	return s.store.EndpointHealth.WaitsOf(ctx, tenantID, ids)
}

func (s situations) ReleasesOf(ctx context.Context, tenantID string, ids []webhook.EndpointID) ([]webhook.Release, error) {
	return s.store.Releases.ReleasesOf(ctx, tenantID, ids)
}

// attention lets the API show what needs attention.
type attention struct{ store *stores.DB }

func (a attention) TroubledTenants(ctx context.Context, limit int) ([]webhook.TroubledTenant, error) {
	return a.store.EndpointHealth.TroubledTenants(ctx, limit)
}

func (a attention) UndeliveredOf(ctx context.Context, tenantID string, ids []webhook.EndpointID) (map[webhook.EndpointID]webhook.Undelivered, error) {
	return a.store.EndpointHealth.UndeliveredOf(ctx, tenantID, ids)
}

func (a attention) OpenCounts(ctx context.Context, tenantID string) (webhook.OpenCounts, error) {
	return a.store.Deliveries.OpenCounts(ctx, tenantID)
}

// underWay is the state of Temporal, and of the requests under way in this process.
type underWay struct {
	*engine.Health

	activities *activities.Activities // nil without a worker
}

func (e underWay) SentAt(d *webhook.Delivery) time.Time {
	if e.activities == nil {
		return time.Time{}
	}
	return e.activities.Attempts.SentAt(d)
}
