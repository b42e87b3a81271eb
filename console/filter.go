package console

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/everpost/everpost/console/query"
)

const pageLimit = "50" // rows of a list

// filter is the filter of a list: as it was typed, and as the API takes it.
type filter struct {
	Form  form
	query url.Values
}

// readFilter reads the filters of these names, which are the API's. A time may be given as in the search box: 2h, 7d, a day.
func (p *page) readFilter(typed url.Values, names ...string) filter {
	f := filter{Form: form{Values: url.Values{}, known: names}, query: url.Values{}}
	for _, name := range names {
		values := nonEmpty(url.Values{name: typed[name]})[name]
		if len(values) == 0 {
			continue
		}
		f.Form.Values[name] = values
		if strings.HasSuffix(name, "since") || strings.HasSuffix(name, "until") {
			if at, ok := query.ParseInstant(strings.TrimSpace(values[0]), p.console.config.Now()); ok {
				values = []string{at.UTC().Format(time.RFC3339Nano)}
				p.ages[name] = values
			}
		}
		f.query[name] = values
	}
	return f
}

// Any reports whether anything is filtered.
func (f filter) Any() bool { return len(f.query) > 0 }

// Encode is the filter as a query: as it was typed, so that a link with 2h goes on meaning the last two hours.
func (f filter) Encode() string { return f.Form.Values.Encode() }

// page is the query for a page of what the filter finds.
func (f filter) page(limit, cursor string) url.Values {
	asked := url.Values{"limit": {limit}, "cursor": {cursor}}
	maps.Copy(asked, f.query)
	return asked
}

// refused is the filter with what the API has against it, or that its list takes too long; other errors are returned.
func (f filter) refused(err error) (filter, error) {
	if !isStatus(err, http.StatusBadRequest) && !isStatus(err, http.StatusServiceUnavailable) {
		return f, err
	}
	f.Form, err = f.Form.refused(f.Form.Values, err)
	return f, err
}

// letterFields are the filters of dead letters, by their names in the API.
func letterFields() []string {
	return []string{"endpoint_id", "event_type", "reason", "status", "since", "until", "ended_since", "ended_until"}
}

// deliveryFields are the filters of deliveries, by their names in the API.
func deliveryFields() []string {
	return []string{"state", "endpoint_id", "event_id", "external_id", "event_type", "status", "since", "until", "ended_since", "ended_until"}
}
