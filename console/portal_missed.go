package console

import (
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// portalMisses are endpoints that did not get a message.
type portalMisses struct {
	Rows []portalMiss
	Next string // of further endpoints, among which there may be others
	Busy bool   // they cannot be compared now
}

// portalMiss is one of them.
type portalMiss struct{ EndpointID, Name, Why string }

// Shown reports whether there is anything to say.
func (m portalMisses) Shown() bool { return m.Busy || m.Next != "" || len(m.Rows) > 0 }

// readMisses compares endpoints with a message: see readMatches.
func readMisses(p *portalPage, event client.AcceptedEvent, names endpointNames) (portalMisses, error) {
	found, err := readMatches(p.page, event, names)
	v := portalMisses{Next: found.Next, Busy: found.Busy}
	for _, m := range found.Rows {
		if !m.Sent {
			v.Rows = append(v.Rows, portalMiss{m.EndpointID, shortName(names.said[m.EndpointID], m.URL), p.whyMissed(m, event.CreatedAt.Time)})
		}
	}
	return v, err
}

// maxShownWhy bounds what a filter compared, in bytes: there are 25 of them on a page of 100 KB.
const maxShownWhy = 400

// whyMissed says why an endpoint did not get a message, as its present settings tell. Only who may see filters learns what one compared.
func (p *portalPage) whyMissed(m eventMatch, at time.Time) string {
	id, err := webhook.ParseEndpointID(m.EndpointID)
	switch {
	case err == nil && id.Time().After(at):
		return p.say("missed.newer")
	case m.Matched:
		return p.say("missed.changed")
	case m.Why() == "event_type":
		return p.say("filter.why.type")
	case m.Why() == "payload_removed":
		return p.say("missed.removed")
	case m.Failure != nil && portalFilters.sees(p.session):
		return clip(p.texts().FilterWhy(m.Failure), maxShownWhy)
	}
	return p.say("missed.filter")
}
