package app

import (
	"context"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/monitor"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/webhook"
)

// endpointTests lets the API send test requests to endpoints.
type endpointTests struct {
	store  *stores.DB
	health *monitor.View
	tests  *activities.Tests
}

// TestEndpoint sends one request. The endpoint is read from the database, so that the test uses settings that any
// process has just changed.
func (t endpointTests) TestEndpoint(
	ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, eventType string, payload []byte,
) (webhook.Attempt, error) {
	target, err := t.store.Endpoints.TargetOf(ctx, tenantID, id)
	if err != nil {
		return webhook.Attempt{}, err
	}
	release, err := t.tests.Acquire(tenantID, id)
	if err != nil {
		return webhook.Attempt{}, err
	}
	defer release()
	if err := t.store.EndpointHealth.NoteTest(ctx, by, tenantID, id); err != nil {
		return webhook.Attempt{}, err
	}
	target.Timeout = t.health.Timeout(&target.Endpoint)
	return t.tests.Send(ctx, &target, eventType, payload)
}
