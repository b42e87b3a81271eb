package query

import (
	"slices"

	"github.com/everpost/everpost/internal/webhook"
)

// contradictions places ids and notes terms that exclude each other.
func (p *parser) contradictions() {
	for i, id := range p.ids {
		p.place(i, id)
	}
	q := &p.query
	if !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until) {
		p.problem(p.named("until"), "must be later than since")
	}
	if q.DeadLettersOnly() && len(q.States) > 0 && !slices.Equal(q.States, []webhook.State{webhook.StateDeadLettered}) {
		name := "reason"
		if q.Reason == "" {
			name = "status"
		}
		p.problem(p.named(name), "finds dead letters only: leave the state out, or write state:dead_lettered")
	}
}

// place makes an id the whole search, or a filter if there are other terms: deliveries can be narrowed by
// their event and their endpoint.
func (p *parser) place(i int, id identified) {
	q := &p.query
	alone := len(p.ids) == 1 && !p.narrowed()
	switch {
	case alone:
		q.ID, q.Kind = id.value, id.kind
	case id.kind == "event" && q.EventID.IsZero():
		q.EventID, _ = webhook.ParseEventID(id.value)
	case id.kind == "endpoint" && q.EndpointID.IsZero():
		q.EndpointID, _ = webhook.ParseEndpointID(id.value)
	case i > 0 || id.kind == "event" || id.kind == "endpoint":
		p.problem(id.term, "is a second id; look for one at a time")
	default:
		p.problem(id.term, "already identifies one "+id.kind+"; remove the other terms")
	}
}

// narrowed reports whether there is any term but ids and the tenant.
func (p *parser) narrowed() bool {
	q := p.query
	q.ID, q.Kind = "", ""
	return !q.Empty()
}

// named is the last term of a name.
func (p *parser) named(name string) term {
	for _, t := range slices.Backward(p.filters) {
		if t.name == name {
			return t
		}
	}
	return term{}
}
