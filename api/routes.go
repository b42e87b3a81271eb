package api

import (
	"net/http"

	"github.com/everpost/everpost/internal/webhook"
)

// handledRoute is a route with its handler.
type handledRoute struct {
	route

	handle func(call) error
}

// table has all operations. The router is built from it, and a test compares the OpenAPI
// document with it.
func (h *handlers) table() []handledRoute { //nolint:funlen // a table
	const (
		tenant     = "/v1/tenants/{tenant}"
		key        = tenant + "/keys/{id}"
		endpoint   = tenant + "/endpoints/{id}"
		event      = tenant + "/events/{id}"
		delivery   = tenant + "/deliveries/{id}"
		deadLetter = tenant + "/dead-letters/{id}"
		replay     = tenant + "/replays/{id}"
		policies   = "/v1/retry-policies"
		eventType  = "/v1/event-types/{name}"

		get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
		ingest, admin, operator    = webhook.ScopeIngest, webhook.ScopeAdmin, webhook.ScopeOperator
	)
	return []handledRoute{
		{route{get, "/openapi.yaml", scopeNone, "getOpenAPI", "document"}, h.documents.get},
		{route{get, "/docs", scopeNone, "getDocs", "document"}, h.documents.getPage},
		{route{get, "/docs/{page}", scopeNone, "getDocsPage", "page"}, h.documents.getPage},
		{route{get, "/v1/audit", operator, "listAudit", "entry"}, h.audit.list},
		{route{get, "/v1/stats", operator, "getStats", "statistics"}, h.statistics.get},
		{route{get, tenant + "/stats", admin, "getTenantStats", "tenant"}, h.statistics.getOfTenant},
		{route{get, "/v1/attention", operator, "getAttention", "attention"}, h.attention.get},
		{route{get, tenant + "/attention", admin, "getTenantAttention", "tenant"}, h.attention.getOfTenant},

		{route{get, "/v1/tenants", operator, "listTenants", "tenant"}, h.tenants.list},
		{route{put, tenant, operator, putTenantID, "tenant"}, h.tenants.put},
		{route{patch, tenant, operator, "updateTenant", "tenant"}, h.tenants.update},
		{route{get, tenant, admin, "getTenant", "tenant"}, h.tenants.get},
		{route{del, tenant, operator, "deleteTenant", "tenant"}, h.tenants.delete},
		{route{get, tenant + "/export", admin, "exportTenant", "tenant"}, h.exports.export},

		{route{get, tenant + "/notifications", admin, "getNotifications", "tenant"}, h.notifications.get},
		{route{put, tenant + "/notifications", admin, "putNotifications", "tenant"}, h.notifications.put},
		{route{get, "/v1/notifications", operator, "getInstallationNotifications", "notifications"}, h.notifications.get},
		{route{put, "/v1/notifications", operator, "putInstallationNotifications", "notifications"}, h.notifications.put},

		{route{post, tenant + "/keys", admin, "createKey", "tenant"}, h.keys.create},
		{route{get, tenant + "/keys", admin, "listKeys", "tenant"}, h.keys.list},
		{route{del, key, admin, "revokeKey", "key"}, h.keys.revoke},

		{route{post, tenant + "/endpoints", admin, "createEndpoint", "tenant"}, h.endpoints.create},
		{route{post, endpoint + "/pause", admin, "pauseEndpoint", "endpoint"}, h.switches.pause},
		{route{post, endpoint + "/resume", admin, "resumeEndpoint", "endpoint"}, h.switches.resume},
		{route{get, endpoint + "/release", admin, "getRelease", "endpoint"}, h.releases.get},
		{route{patch, endpoint + "/release", admin, "updateRelease", "endpoint"}, h.releases.update},
		{route{post, endpoint + "/close-circuit", admin, "closeEndpointCircuit", "endpoint"}, h.circuits.close},
		{route{get, tenant + "/endpoints", admin, "listEndpoints", "tenant"}, h.endpoints.list},
		{route{get, tenant + "/endpoint-conditions", admin, "listEndpointConditions", "tenant"}, h.conditions.list},
		{route{get, endpoint, admin, "getEndpoint", "endpoint"}, h.endpoints.get},
		{route{patch, endpoint, admin, "updateEndpoint", "endpoint"}, h.endpoints.update},
		{route{del, endpoint, admin, "deleteEndpoint", "endpoint"}, h.endpoints.delete},
		{route{get, endpoint + "/attempts", admin, "listEndpointAttempts", "endpoint"}, h.deliveries.ofEndpoint},
		{route{get, endpoint + "/health", admin, "getEndpointHealth", "endpoint"}, h.health.get},
		{route{post, endpoint + "/test", admin, "testEndpoint", "endpoint"}, h.tests.send},
		{route{get, endpoint + "/secret", admin, "getEndpointSecret", "endpoint"}, h.secrets.get},
		{route{post, endpoint + "/rotate-secret", admin, "rotateEndpointSecret", "endpoint"}, h.secrets.rotate},

		{route{post, tenant + "/events", ingest, "postEvent", "tenant"}, h.events.post},
		{route{post, tenant + "/events/batch", ingest, "postEventBatch", "tenant"}, h.events.postBatch},
		{route{get, tenant + "/events", ingest, "listEvents", "tenant"}, h.events.list},
		{route{get, event, ingest, "getEvent", "event"}, h.events.get},
		{route{get, event + "/payload", ingest, "getEventPayload", "event"}, h.events.payload},
		{route{get, event + "/matches", admin, "listEventMatches", "event"}, h.filters.matches},
		{route{post, tenant + "/filters/test", admin, "testFilter", "tenant"}, h.filters.test},
		{route{get, event + "/attempts", ingest, "listEventAttempts", "event"}, h.deliveries.ofEvent},
		{route{post, event + "/cancel", admin, "cancelEvent", "event"}, h.commands.cancelEvent},
		{route{del, event + "/payload", admin, "eraseEventPayload", "event"}, h.erasures.one},
		{route{post, tenant + "/events/erase-payloads", admin, "eraseEventPayloads", "tenant"}, h.erasures.many},

		{route{get, tenant + "/deliveries", ingest, "listDeliveries", "tenant"}, h.deliveries.list},
		{route{get, delivery, ingest, "getDelivery", "delivery"}, h.deliveries.get},
		{route{get, delivery + "/attempts", ingest, "listAttempts", "delivery"}, h.deliveries.attempts},
		{route{post, delivery + "/cancel", admin, "cancelDelivery", "delivery"}, h.commands.command(webhook.CommandCancel, withReason)},
		{route{post, delivery + "/retry", admin, "retryDelivery", "delivery"}, h.commands.command(webhook.CommandRetry, withoutReason)},
		{route{post, delivery + "/reschedule", admin, "rescheduleDelivery", "delivery"}, h.commands.reschedule},
		{route{post, delivery + "/replay", admin, "replayDelivery", "delivery"}, h.commands.command(webhook.CommandReplay, withReason)},

		{route{get, tenant + "/dead-letters", ingest, "listDeadLetters", "tenant"}, h.deliveries.deadLetters},
		{route{get, tenant + "/dead-letters/groups", ingest, "groupDeadLetters", "tenant"}, h.deliveries.deadLetterGroups},
		{route{post, deadLetter + "/replay", admin, "replayDeadLetter", "dead letter"}, h.commands.replayDeadLetter},
		{route{post, deadLetter + "/discard", admin, "discardDeadLetter", "dead letter"}, h.commands.command(webhook.CommandDiscard, withReason)},

		{route{post, tenant + "/replays", admin, "createReplay", "tenant"}, h.replays.create},
		{route{post, tenant + "/replays/preview", admin, "previewReplay", "tenant"}, h.replays.preview},
		{route{get, tenant + "/replays", ingest, "listReplays", "tenant"}, h.replays.list},
		{route{get, replay, ingest, "getReplay", "replay"}, h.replays.get},
		{route{patch, replay, admin, "updateReplay", "replay"}, h.replays.update},
		{route{post, replay + "/pause", admin, "pauseReplay", "replay"}, h.replays.command(webhook.ReplayPause)},
		{route{post, replay + "/resume", admin, "resumeReplay", "replay"}, h.replays.command(webhook.ReplayResume)},
		{route{post, replay + "/cancel", admin, "cancelReplay", "replay"}, h.replays.command(webhook.ReplayCancel)},

		{route{post, "/v1/console-links", operator, "createLogInLink", "console link"}, h.links.createLogIn},
		{route{post, tenant + "/console-links", admin, "createConsoleLink", "tenant"}, h.links.create},

		{route{get, "/v1/event-types", ingest, "listEventTypes", "event type"}, h.types.list},
		{route{post, "/v1/event-types/import", operator, "importEventTypes", "event types"}, h.imports.importAll},
		{route{get, "/v1/event-types-export", ingest, "exportEventTypes", "event types"}, h.imports.export},
		{route{put, eventType, operator, "putEventType", "event type"}, h.types.put},
		{route{patch, eventType, operator, "updateEventType", "event type"}, h.types.update},
		{route{get, eventType, ingest, "getEventType", "event type"}, h.types.get},
		{route{del, eventType, operator, "deleteEventType", "event type"}, h.types.delete},

		{route{get, policies, ingest, "listRetryPolicies", "retry policy"}, h.policies.list},
		{route{post, policies + "/preview", ingest, "previewRetryPolicy", "retry policy"}, h.policies.preview},
	}
}

// routes are the routes of the table.
func routes() []route {
	table := new(handlers).table()
	all := make([]route, 0, len(table))
	for _, r := range table {
		all = append(all, r.route)
	}
	return all
}
