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
	toReplay // the capability "replay"
)

// ofPortal returns what a portal link needs for the operation. A new operation is not open to portals until it is named here.
func (r route) ofPortal() portalNeed {
	switch r.id {
	case "listEndpoints", "listEndpointConditions", "getEndpoint", "getEndpointHealth", "listEndpointAttempts", "getTenantStats",
		"listEvents", "getEvent", "getEventPayload", "listEventAttempts", "listDeliveries", "getDelivery", "listAttempts",
		"listEventTypes", "getEventType", "listDeadLetters", "groupDeadLetters", "listReplays", "getReplay":
		return toLook
	case "createEndpoint", "updateEndpoint", "deleteEndpoint", "pauseEndpoint", "resumeEndpoint", "testEndpoint":
		return toManage
	case "getEndpointSecret":
		return toReveal
	case "rotateEndpointSecret":
		return toRotate
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
	case toReplay:
		if !replay {
			return refuse(`this portal link lacks the capability "replay"`)
		}
	}
	return nil
}

// hidesSecrets reports whether the caller may not see a secret that its change makes.
func (c Caller) hidesSecrets() bool { return !c.Link.IsZero() && !c.Portal.Secrets }
