package console

import (
	"net/url"

	"github.com/everpost/everpost/client"
)

// shownMatches is how many endpoints the page of an event compares with it at a time.
const shownMatches = "25"

// matchesView says of endpoints whether an event matches them.
type matchesView struct {
	Rows []eventMatch
	Next string
	Busy bool // they cannot be compared now
	Open bool // they are the question
}

// eventMatch is an endpoint with its name.
type eventMatch struct {
	client.EventMatch

	Name string
}

// Why is the reason for which it does not match; "" for none.
func (m eventMatch) Why() string { return value(m.Reason) }

// readMatches compares the endpoints with an event, the newest first. They are shown at once if it has matched none.
func readMatches(p *page, event client.AcceptedEvent, names endpointNames) (v matchesView, err error) {
	v.Open = event.Matched == 0
	cursor := p.r.URL.Query().Get("matches")
	var found client.Page[client.EventMatch]
	if err := p.get(&found, url.Values{"limit": {shownMatches}, "cursor": {cursor}}, "events", event.ID, "matches"); err != nil {
		v.Busy = true
		return v, unlessBusy(err)
	}
	v.Next, v.Open = found.NextCursor, v.Open || cursor != ""
	for _, m := range found.Data {
		name := names.said[m.EndpointID]
		if name == "" {
			name = m.URL
		}
		v.Rows = append(v.Rows, eventMatch{m, name})
	}
	return v, nil
}
