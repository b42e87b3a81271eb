package api

import (
	"net/http"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// route is one operation. The router is built from routes(), and a test compares the OpenAPI
// document with them.
type route struct {
	method string
	path   string        // in OpenAPI syntax: /v1/tenants/{tenant}
	scope  webhook.Scope // the smallest scope that suffices; 0: no key needed
	id     string        // the operationId
	noun   string        // the resource that a 404 names
	handle func(*Server, call) error
}

// scopeNone makes a route public: no key is needed.
const scopeNone = webhook.Scope(0)

func routes() []route { //nolint:funlen // a table
	const (
		tenant     = "/v1/tenants/{tenant}"
		key        = tenant + "/keys/{id}"
		endpoint   = tenant + "/endpoints/{id}"
		event      = tenant + "/events/{id}"
		delivery   = tenant + "/deliveries/{id}"
		deadLetter = tenant + "/dead-letters/{id}"
		replay     = tenant + "/replays/{id}"
		policies   = "/v1/retry-policies"

		get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
		ingest, admin, operator    = webhook.ScopeIngest, webhook.ScopeAdmin, webhook.ScopeOperator
	)
	return []route{
		{get, "/openapi.yaml", scopeNone, "getOpenAPI", "document", (*Server).getOpenAPI},
		{get, "/docs", scopeNone, "getDocs", "document", (*Server).getDocs},
		{get, "/v1/audit", operator, "listAudit", "entry", (*Server).listAudit},
		{get, "/v1/stats", operator, "getStats", "statistics", (*Server).getStats},
		{get, tenant + "/stats", admin, "getTenantStats", "tenant", (*Server).getTenantStats},

		{get, "/v1/tenants", operator, "listTenants", "tenant", (*Server).listTenants},
		{put, tenant, operator, putTenantID, "tenant", (*Server).putTenant},
		{patch, tenant, operator, "updateTenant", "tenant", (*Server).updateTenant},
		{get, tenant, admin, "getTenant", "tenant", (*Server).getTenant},
		{del, tenant, operator, "deleteTenant", "tenant", (*Server).deleteTenant},
		{get, tenant + "/export", admin, "exportTenant", "tenant", (*Server).exportTenant},

		{post, tenant + "/keys", admin, "createKey", "tenant", (*Server).createKey},
		{get, tenant + "/keys", admin, "listKeys", "tenant", (*Server).listKeys},
		{del, key, admin, "revokeKey", "key", (*Server).revokeKey},

		{post, tenant + "/endpoints", admin, "createEndpoint", "tenant", (*Server).createEndpoint},
		{post, endpoint + "/pause", admin, "pauseEndpoint", "endpoint", (*Server).pauseEndpoint},
		{post, endpoint + "/resume", admin, "resumeEndpoint", "endpoint", (*Server).resumeEndpoint},
		{get, endpoint + "/release", admin, "getRelease", "endpoint", (*Server).getRelease},
		{patch, endpoint + "/release", admin, "updateRelease", "endpoint", (*Server).updateRelease},
		{post, endpoint + "/close-circuit", admin, "closeEndpointCircuit", "endpoint", (*Server).closeCircuit},
		{get, tenant + "/endpoints", admin, "listEndpoints", "tenant", (*Server).listEndpoints},
		{get, tenant + "/endpoint-conditions", admin, "listEndpointConditions", "tenant", (*Server).listEndpointConditions},
		{get, endpoint, admin, "getEndpoint", "endpoint", (*Server).getEndpoint},
		{patch, endpoint, admin, "updateEndpoint", "endpoint", (*Server).updateEndpoint},
		{del, endpoint, admin, "deleteEndpoint", "endpoint", (*Server).deleteEndpoint},
		{get, endpoint + "/health", admin, "getEndpointHealth", "endpoint", (*Server).getEndpointHealth},
		{post, endpoint + "/test", admin, "testEndpoint", "endpoint", (*Server).testEndpoint},
		{get, endpoint + "/secret", admin, "getEndpointSecret", "endpoint", (*Server).getEndpointSecret},
		{post, endpoint + "/rotate-secret", admin, "rotateEndpointSecret", "endpoint", (*Server).rotateEndpointSecret},

		{post, tenant + "/events", ingest, "postEvent", "tenant", (*Server).postEvent},
		{post, tenant + "/events/batch", ingest, "postEventBatch", "tenant", (*Server).postEventBatch},
		{get, tenant + "/events", ingest, "listEvents", "tenant", (*Server).listEvents},
		{get, event, ingest, "getEvent", "event", (*Server).getEvent},
		{get, event + "/payload", ingest, "getEventPayload", "event", (*Server).getEventPayload},
		{del, event + "/payload", admin, "eraseEventPayload", "event", (*Server).erasePayload},
		{post, tenant + "/events/erase-payloads", admin, "eraseEventPayloads", "tenant", (*Server).erasePayloads},

		{get, tenant + "/deliveries", ingest, "listDeliveries", "tenant", (*Server).listDeliveries},
		{get, delivery, ingest, "getDelivery", "delivery", (*Server).getDelivery},
		{get, delivery + "/attempts", ingest, "listAttempts", "delivery", (*Server).listAttempts},
		{post, delivery + "/cancel", admin, "cancelDelivery", "delivery", command(webhook.CommandCancel, withReason)},
		{post, delivery + "/retry", admin, "retryDelivery", "delivery", command(webhook.CommandRetry, withoutReason)},
		{post, delivery + "/reschedule", admin, "rescheduleDelivery", "delivery", (*Server).reschedule},
		{post, delivery + "/replay", admin, "replayDelivery", "delivery", command(webhook.CommandReplay, withReason)},

		{get, tenant + "/dead-letters", ingest, "listDeadLetters", "tenant", (*Server).listDeadLetters},
		{get, tenant + "/dead-letters/groups", ingest, "groupDeadLetters", "tenant", (*Server).groupDeadLetters},
		{post, deadLetter + "/replay", admin, "replayDeadLetter", "dead letter", (*Server).replayDeadLetter},
		{post, deadLetter + "/discard", admin, "discardDeadLetter", "dead letter", command(webhook.CommandDiscard, withReason)},

		{post, tenant + "/replays", admin, "createReplay", "tenant", (*Server).createReplay},
		{post, tenant + "/replays/preview", admin, "previewReplay", "tenant", (*Server).previewReplay},
		{get, tenant + "/replays", ingest, "listReplays", "tenant", (*Server).listReplays},
		{get, replay, ingest, "getReplay", "replay", (*Server).getReplay},
		{patch, replay, admin, "updateReplay", "replay", (*Server).updateReplay},
		{post, replay + "/pause", admin, "pauseReplay", "replay", commandReplay(webhook.ReplayPause)},
		{post, replay + "/resume", admin, "resumeReplay", "replay", commandReplay(webhook.ReplayResume)},
		{post, replay + "/cancel", admin, "cancelReplay", "replay", commandReplay(webhook.ReplayCancel)},

		{post, "/v1/console-links", operator, "createLogInLink", "console link", (*Server).createLogInLink},
		{post, tenant + "/console-links", admin, "createConsoleLink", "tenant", (*Server).createConsoleLink},

		{get, policies, ingest, "listRetryPolicies", "retry policy", (*Server).listRetryPolicies},
		{post, policies + "/preview", ingest, "previewRetryPolicy", "retry policy", (*Server).previewRetryPolicy},
	}
}

// putTenantID is the only operation on a path that need not exist.
const putTenantID = "putTenant"

// postsEvents reports whether the operation takes events in.
func (r route) postsEvents() bool { return r.id == "postEvent" || r.id == "postEventBatch" }

// echoPath is the path in Echo syntax: /v1/tenants/:tenant.
func (r route) echoPath() string {
	return strings.NewReplacer("{", ":", "}", "").Replace(r.path)
}
