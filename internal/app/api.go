package app

import (
	"context"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/api"
)

// startAPI serves the API and, unless it is switched off, the console.
func (a *App) startAPI() {
	tests := activities.NewTests(a.sender)
	tests.Now = a.store.Now
	server := api.New(api.Config{
		Tenants: a.store.Tenants, TenantUpdates: a.store.Tenants, TenantDeletions: tenantDeletions{a.store.Tenants, a.engine.TenantDeletions},
		Limits: a.store.Tenants, Keys: a.store.Keys, Audit: a.store.Audit,
		Endpoints: a.store.Endpoints, EndpointSecrets: a.store.Endpoints, EndpointSwitch: a.store.Endpoints,
		Events: observedEvents{a.store.Events, a.metrics, a.statistics}, Erasures: a.store.Events,
		Exports:    exports{a.store.Tenants, a.store.Events, a.store.Deliveries},
		Deliveries: a.store.Deliveries, RequestKeys: a.store.Requests, Notifications: a.store.Notifications, SendsMail: a.options.Config.AnySMTP(),
		EventTypes: a.store.EventTypes, EventTypeChanges: a.store.EventTypes, EventTypeImports: a.store.EventTypes,
		Replays: a.store.Replays, Statistics: a.store.Statistics,
		ReplayCounts: a.store.Replays, DeadLetterGroups: a.store.Deliveries,
		Releases: a.store.Releases, Health: a.health, Circuits: a.health, Tests: endpointTests{a.store, a.health, tests},
		Starter: takeOver{a.intake, a.engine.Commands, a.engine.Replays},
		URLs:    urls{a.guard}, Logger: a.log, Metrics: a.metrics, Tracer: a.tracer,
		WorkflowURL: a.workflows.url, WorkflowURLForTenants: a.options.Config.WorkflowURLForTenants, WorkflowsKept: a.workflows.kept,
		MaxPayload:     int(a.options.Config.MaxPayload),
		TrustedProxies: a.options.Config.TrustedProxies, Version: a.options.Version, OperatorKey: a.options.Config.OperatorKey,
		RetryPolicy: a.options.Config.RetryPolicy.Policy, Now: a.store.Now,
		Attention:  attention{a.store},
		Situations: situations{a.health, a.store}, Engine: underWay{a.engine.Health, a.activities},
		Retention: a.options.Config.Retention, DeadLettersKept: a.options.Config.DeadLetterRetention,
		PortalOrigins: a.options.Config.PortalOrigins,
		ConsoleLinks:  a.consoleLinks(), ConsoleURL: a.options.Config.ConsoleURL, Accent: a.options.Config.ConsoleColor,
	})
	a.server = server
	a.metrics.Gauge("everpost_api_body_bytes", "Bytes that the bodies of the API's requests under way hold.",
		func() float64 { return float64(server.BodyBytes()) })
	a.metrics.Gauge("everpost_api_answer_bytes", "Bytes that answers of the API hold while they are made and written.",
		func() float64 { return float64(server.AnswerBytes()) })
	a.metrics.Gauge("everpost_api_requests_in_flight", "Requests to the API that are being answered.",
		func() float64 { return float64(server.InFlight()) })
	a.push(phaseAPI, func(context.Context) { server.Close() })
	handler, end := a.withConsole(server)
	handler = a.withMailPages(handler)
	s := server.HTTPServer(handler)
	s.RegisterOnShutdown(end)
	a.serve(phaseAPI, s, a.apiListener, 5*time.Second)
}
