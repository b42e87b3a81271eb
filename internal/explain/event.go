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
func Event(event webhook.Event, endpoints []webhook.Endpoint, deleted []webhook.DeletedEndpoint, now time.Time) Explanation {
	type note struct {
		words string
		near  bool // it would get such an event now, or would have got this one earlier
	}
	var notes []note
	for i := range endpoints {
		e := &endpoints[i]
		switch wants := e.Wants(event.Type); {
		case wants && e.CreatedAt.After(event.CreatedAt):
			notes = append(notes, note{named(e) + " was created later, at " + at(e.CreatedAt, now), true})
		case wants:
			notes = append(notes, note{named(e) + " has wanted this type only since it was changed later", true})
		default:
			notes = append(notes, note{named(e) + " wants " + filters(e.EventTypes), false})
		}
	}
	for i := range deleted {
		d := &deleted[i]
		e := &webhook.Endpoint{ID: d.ID, URL: d.URL, EventTypes: d.EventTypes}
		if !d.DeletedAt.After(event.CreatedAt) && e.Wants(event.Type) {
			notes = append(notes, note{named(e) + " was deleted before, at " + at(d.DeletedAt, now), true})
		}
	}
	slices.SortStableFunc(notes, func(a, b note) int { return cmp.Compare(rank(a.near), rank(b.near)) })
	clauses := []string{"no endpoint matched the type " + event.Type + ", so nothing is sent"}
	switch len(endpoints) {
	case 0:
		clauses = append(clauses, "the tenant has no endpoint")
	case 1:
		clauses = append(clauses, "the tenant has 1 endpoint")
	default:
		clauses = append(clauses, fmt.Sprintf("the tenant has %d endpoints", len(endpoints)))
	}
	for i := range min(len(notes), maxNamed) {
		clauses = append(clauses, notes[i].words)
	}
	if rest := len(notes) - maxNamed; rest > 0 {
		clauses = append(clauses, fmt.Sprintf("%d more did not match", rest))
	}
	e := Explanation{
		Code: NoMatch, Summary: sentence(clauses...), Cause: "An event goes to the endpoints whose event_types match its type when it is accepted.",
		Next: "The event is stored and goes nowhere.",
		Remedy: "Create an endpoint for it, or add " + event.Type + " to the event_types of one. " +
			"Then send the past events again: everpost replays create --source events.",
	}
	if webhook.IsOperational(event.Type) {
		e.Remedy = "Add " + event.Type + " or " + webhook.OperationalPrefix + "* to the event_types of an endpoint: * does not match operational events."
	}
	return e
}

func rank(near bool) int {
	if near {
		return 0
	}
	return 1
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
