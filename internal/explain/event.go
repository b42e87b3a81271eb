package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// maxNamed bounds the endpoints that an event's explanation names.
const maxNamed = 3

// Event explains an event that matched no endpoint. endpoints are the tenant's; deleted are those it
// had, as far as known.
func Event(event webhook.Event, endpoints []*webhook.Endpoint, deleted []webhook.DeletedEndpoint, now time.Time) Explanation {
	// Those that would get such an event now, or would have got this one earlier, are named first. A tenant
	// may have thousands of endpoints, so words are only made for those that are named.
	var near, others []func() string
	var wanting *webhook.Endpoint // gets such an event now, unless its filter does not match
	filtered := false
	for _, e := range endpoints {
		wants := e.Wants(event.Type)
		if wants && wanting == nil {
			wanting = e
		}
		switch {
		case wants && e.Filter != nil && !e.CreatedAt.After(event.CreatedAt):
			filtered = true
			near = append(near, func() string { return named(e) + " subscribes to this type with a filter" })
		case wants && e.CreatedAt.After(event.CreatedAt):
			near = append(near, func() string { return named(e) + " was created later, at " + at(e.CreatedAt, now) })
		case wants:
			near = append(near, func() string { return named(e) + " has subscribed to this type only since a later change" })
		case len(others) < maxNamed:
			others = append(others, func() string { return named(e) + " subscribes to " + filters(e.EventTypes) })
		}
	}
	rest := len(endpoints)
	for i := range deleted {
		d := &deleted[i]
		e := &webhook.Endpoint{ID: d.ID, URL: d.URL, EventTypes: d.EventTypes}
		if !d.DeletedAt.After(event.CreatedAt) && e.Wants(event.Type) {
			near = append(near, func() string { return named(e) + " was deleted before, at " + at(d.DeletedAt, now) })
			rest++
		}
	}
	notes := slices.Concat(near, others)
	notes = notes[:min(len(notes), maxNamed)]
	rest -= len(notes)
	clauses := []string{unmatched(event.Type, filtered), tenantHas(len(endpoints))}
	for _, words := range notes {
		clauses = append(clauses, words())
	}
	if rest > 0 {
		clauses = append(clauses, fmt.Sprintf("%d more did not match", rest))
	}
	e := Explanation{
		Code: NoMatch, Summary: sentence(clauses...), Cause: "An event goes to the endpoints whose event_types and filter match it when it is accepted.",
		Next:   "The event is stored and not sent.",
		Remedy: "Create an endpoint for it, or add " + event.Type + " to the event_types of one. Then send the past events to it.",
	}
	if wanting != nil {
		e.Remedy = "Send the events since then to " + named(wanting) + "."
		if wanting.Filter != nil {
			e.Remedy = "Compare the event with the filter of " + named(wanting) + ". After a change of it, send the events since then again."
		}
		e.Actions = []Action{{Act: SendEventsAgain, TenantID: event.TenantID, Body: map[string]string{
			"source": "events", "endpoint_id": wanting.ID.String(), "event_type": event.Type, "since": event.CreatedAt.UTC().Format(time.RFC3339Nano),
		}}}
	}
	if webhook.IsOperational(event.Type) {
		e.Remedy = "Add " + event.Type + " or " + webhook.OperationalPrefix + "* to the event_types of an endpoint: * does not match operational events."
	}
	return e
}

// named is an endpoint's id and host, and its state if it is not active.
func named(e *webhook.Endpoint) string {
	words := e.ID.String() + " (" + cmp.Or(hostOf(e), "unknown host")
	if e.State != webhook.EndpointActive {
		words += ", " + e.State.String()
	}
	return words + ")"
}

// filters lists the first of an endpoint's event types.
func filters(types []string) string {
	shown := strings.Join(types[:min(len(types), maxNamed)], ", ")
	if rest := len(types) - maxNamed; rest > 0 {
		shown += fmt.Sprintf(" and %d more", rest)
	}
	return shown
}

// unmatched says that an event matched no endpoint: its type, or only some filter.
func unmatched(eventType string, filtered bool) string {
	if filtered {
		return "no endpoint matched the event of the type " + eventType + ", so nothing is sent"
	}
	return "no endpoint matched the type " + eventType + ", so nothing is sent"
}

func tenantHas(endpoints int) string {
	switch endpoints {
	case 0:
		return "the tenant has no endpoint"
	case 1:
		return "the tenant has 1 endpoint"
	default:
		return fmt.Sprintf("the tenant has %d endpoints", endpoints)
	}
}
