package api

import (
	"net/http"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// route is one operation, without its handler. See the table in routes.go.
type route struct {
	method string
	path   string        // in OpenAPI syntax: /v1/tenants/{tenant}
	scope  webhook.Scope // the smallest scope that suffices; 0: no key needed
	id     string        // the operationId
	noun   string        // the resource that a 404 names
}

// scopeNone makes a route public: no key is needed.
const scopeNone = webhook.Scope(0)

// putTenantID is the operationId of the only operation on a path that need not exist.
const putTenantID = "putTenant"

// postsEvents reports whether the operation takes events in.
func (r route) postsEvents() bool { return r.id == "postEvent" || r.id == "postEventBatch" }

// echoPath is the path in Echo syntax: /v1/tenants/:tenant.
func (r route) echoPath() string {
	return strings.NewReplacer("{", ":", "}", "").Replace(r.path)
}

// takesLargeBody reports whether the operation takes schemas and examples.
func (r route) takesLargeBody() bool {
	return r.id == "putEventType" || r.id == "updateEventType" || r.id == "importEventTypes"
}

// takesParameters reports whether the operation has query parameters. Its handler reads them with
// call.query or call.parameters, which refuse all others.
func (r route) takesParameters() bool {
	switch r.id {
	case "listAudit", "listTenants", "listKeys", "listEndpoints", "listEndpointConditions", "listEvents", "listDeliveries", "listAttempts",
		"listEndpointAttempts", "listEventAttempts", "listEventMatches",
		"listDeadLetters", "groupDeadLetters", "listReplays", "getStats", "getTenantStats", "eraseEventPayload", "deleteTenant",
		"getDocsPage", "listEventTypes":
		return true
	}
	return false
}

// keying is what an operation does with an Idempotency-Key.
type keying uint8

const (
	keyRefused keying = iota // it changes nothing, is the same when repeated, or is not to be repeated
	keyKept                  // the request is carried out once, and its answer kept
	keyOfEvent               // the same, as a part of storing the events
)

// keying returns what the operation does with an Idempotency-Key.
func (r route) keying() keying {
	switch {
	case r.method != http.MethodPost:
		return keyRefused
	case r.postsEvents():
		return keyOfEvent
	}
	switch r.id {
	case "testEndpoint", "previewReplay", "previewRetryPolicy", "testFilter":
		return keyRefused
	}
	return keyKept
}

// whyKeyRefused is why the operation takes no Idempotency-Key.
func (r route) whyKeyRefused() string {
	switch {
	case r.method == http.MethodGet || r.id == "previewReplay" || r.id == "previewRetryPolicy" || r.id == "testFilter":
		return "the request changes nothing"
	case r.id == "testEndpoint":
		return "each test is a request to the endpoint"
	}
	return r.method + " has the same effect when it is repeated"
}

// answersSecret reports whether an answer of the operation holds a secret.
func (r route) answersSecret() bool {
	switch r.id {
	case "createKey", "createEndpoint", "rotateEndpointSecret", "createConsoleLink", "createLogInLink":
		return true
	}
	return false
}
