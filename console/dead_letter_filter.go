package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/everpost/everpost/console/query"
	"github.com/everpost/everpost/internal/webhook"
)

// letterFields are the filters of dead letters, by their names in the API.
func letterFields() []string {
	return []string{"endpoint_id", "event_type", "reason", "status", "since", "until"}
}

// letterFilter is a filter of dead letters: as it was typed, and as the API takes it.
type letterFilter struct {
	Form  form
	query url.Values
}

// readLetterFilter reads the filters of a page or of a form. A time may be given as in the search box: 2h, 7d, a day.
func (p *page) readLetterFilter(typed url.Values) letterFilter {
	f := letterFilter{Form: newForm(), query: url.Values{}}
	f.Form.known = letterFields()
	for _, name := range letterFields() {
		value := typed.Get(name)
		if value == "" {
			continue
		}
		f.Form.Values.Set(name, value)
		if name == "since" || name == "until" {
			if at, ok := query.ParseInstant(value, p.console.config.Now()); ok {
				value = at.UTC().Format(time.RFC3339Nano)
			}
		}
		f.query.Set(name, value)
	}
	return f
}

// Any reports whether anything is filtered.
func (f letterFilter) Any() bool { return len(f.query) > 0 }

// Encode is the filter as a query: as it was typed, so that a link with 2h goes on meaning the last two hours.
func (f letterFilter) Encode() string { return f.Form.Values.Encode() }

// replay is the body of a replay of what the filter finds.
func (f letterFilter) replay() map[string]any {
	body := map[string]any{"source": webhook.ReplayDeadLetters.String()}
	for name := range f.query {
		body[name] = f.query.Get(name)
	}
	if status := wholeNumber(f.query.Get("status")); status != nil {
		body["status"] = status
	}
	return body
}

// endpointNames are the endpoints of a tenant, for choices and for names in lists.
type endpointNames struct {
	ids  []string // in the order of the API, the newest first
	urls map[string]string
	More bool // there are others
}

// foundEndpoint is what these pages show of an endpoint.
type foundEndpoint struct {
	ID          string   `json:"id"`
	URL         string   `json:"url"`
	State       string   `json:"state"`
	Description string   `json:"description"`
	EventTypes  []string `json:"event_types"`
}

// endpointNames reads the tenant's newest endpoints, one page of the API.
func (p *page) endpointNames() (endpointNames, error) {
	var found list[foundEndpoint]
	if err := p.get(&found, url.Values{"limit": {"250"}}, "endpoints"); err != nil {
		return endpointNames{}, err
	}
	names := endpointNames{urls: map[string]string{}, More: found.NextCursor != ""}
	for _, e := range found.Data {
		names.ids = append(names.ids, e.ID)
		names.urls[e.ID] = e.URL
	}
	return names, nil
}

// Name is an endpoint's URL, or its id if that is not known.
func (n endpointNames) Name(id string) string {
	if address := n.urls[id]; address != "" {
		return address
	}
	return id
}

// maxChoices bounds the endpoints of a choice: a page has 100 KB.
const maxChoices = 100

// Choices are the ids that can be chosen, the chosen one among them.
func (n endpointNames) Choices(chosen string) []string {
	ids := n.ids[:min(len(n.ids), maxChoices)]
	if chosen != "" && !slices.Contains(ids, chosen) {
		return append([]string{chosen}, ids...)
	}
	return ids
}

// wholeNumber is the number that a text says, or the text itself for the API to refuse; nil for no text.
func wholeNumber(text string) any {
	if text == "" {
		return nil
	}
	n := 0
	for _, digit := range text {
		if digit < '0' || digit > '9' || n > 1e12 {
			return text
		}
		n = n*10 + int(digit-'0')
	}
	return n
}

// refused is the filter with what the API has against it; other errors are returned.
func (f letterFilter) refused(err error) (letterFilter, error) {
	if !isStatus(err, http.StatusBadRequest) {
		return f, err
	}
	f.Form, err = f.Form.refused(maps.Clone(f.Form.Values), err)
	return f, err
}
