package api

import (
	"net/http"

	"github.com/everpost/everpost/internal/webhook"
)

// portalNeed is what a portal link has to permit for an operation.
type portalNeed uint8

const (
	notOfPortals portalNeed = iota
	toLook
	toManage // access "manage"
	toReveal // the capability "secrets"
	toRotate // both
	toFilter // the capability "filters"
	toReplay // the capability "replay"
)

// ofPortal returns what a portal link needs for the operation. A new operation is not open to portals until it is named here.
func (r route) ofPortal() portalNeed {
	switch r.id {
	case "listEndpoints", "listEndpointConditions", "getEndpoint", "getEndpointHealth", "listEndpointAttempts", "getTenantStats",
		"listEvents", "getEvent", "getEventPayload", "listEventAttempts", "listEventMatches", "listDeliveries", "getDelivery", "listAttempts",
		"listEventTypes", "getEventType", "listDeadLetters", "groupDeadLetters", "listReplays", "getReplay":
		return toLook
	case "createEndpoint", "updateEndpoint", "deleteEndpoint", "pauseEndpoint", "resumeEndpoint", "testEndpoint":
		return toManage
	case "getEndpointSecret":
		return toReveal
	case "rotateEndpointSecret":
		return toRotate
	case "testFilter":
		return toFilter
	case "retryDelivery", "replayDelivery", "replayDeadLetter", "previewReplay", "createReplay":
		return toReplay
	}
	return notOfPortals
}

// portalPermits refuses what the caller's portal link does not permit.
func (c Caller) portalPermits(r route) error {
	manage, secrets, replay := !c.ReadOnly, c.Portal.Secrets, c.Portal.Replay
	refuse := func(why string) error { return &webhook.Error{Code: webhook.CodeForbidden, Message: why} }
	switch r.ofPortal() {
	case notOfPortals:
		return refuse("a portal link does not permit this")
	case toLook:
		if r.method != http.MethodGet {
			return refuse("this portal link is read-only")
		}
	case toManage:
		if !manage {
			return refuse("this portal link is read-only")
		}
	case toReveal, toRotate:
		if r.ofPortal() == toRotate && !manage {
			return refuse("this portal link is read-only")
		}
		if !secrets {
			return refuse(`this portal link lacks the capability "secrets"`)
		}
	case toFilter:
		if !c.mayFilter() {
			return refuse(lacksFilters)
		}
	case toReplay:
		if !replay {
			return refuse(`this portal link lacks the capability "replay"`)
		}
	}
	return nil
}

const lacksFilters = `this portal link lacks the capability "filters"`

// mayFilter reports whether the caller may try filters, and set those of the endpoints that it may change.
func (c Caller) mayFilter() bool { return c.Link.IsZero() || c.Portal.Filters }

// refuseFilter refuses the body of an endpoint that names a filter, if the caller may set none. What is wrong with the body is left to others.
func (c Caller) refuseFilter(text []byte) error {
	if c.mayFilter() {
		return nil
	}
	var refused error
	_ = readObject(text, func(d *jsonDecoder, name string) {
		if name == "filter" {
			refused = &webhook.Error{Code: webhook.CodeForbidden, Message: lacksFilters}
		}
		d.skip()
	})
	return refused
}

// hidesSecrets reports whether the caller may not see a secret that its change makes.
func (c Caller) hidesSecrets() bool { return !c.Link.IsZero() && !c.Portal.Secrets }
