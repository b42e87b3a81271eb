package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/query"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	searchTitle = "Search"

	shownFound = 20             // results of a kind
	wordSpan   = 24 * time.Hour // in which deliveries are looked for by a word that may be their type
)

// searchView is the page of a search.
type searchView struct {
	Text     string
	Problems []searchProblem
	Missing  string // the id that names nothing
	Kind     string
	Searched int  // tenants in which it was looked for
	All      bool // they are all that there are

	Deliveries *foundDeliveries
	Events     *foundEvents
	Endpoints  *foundEndpoints
}

// searchProblem is a part of a search that cannot be used.
type searchProblem struct{ Part, Message string }

// foundDeliveries are deliveries or dead letters that match.
type foundDeliveries struct {
	Data    []client.Delivery
	All     string // the path of the list of all of them
	Letters bool
}

// foundEvents are events that match.
type foundEvents struct {
	Data []client.AcceptedEvent
	All  string
}

// foundEndpoints are endpoints with a part of their URL, description or id.
type foundEndpoints struct {
	Data []client.EndpointCondition
	More bool // not all that match are shown
}

// Nothing reports whether a search found nothing.
func (v searchView) Nothing() bool {
	none := v.Text != "" && len(v.Problems) == 0 && v.Missing == ""
	return none && (v.Deliveries == nil || len(v.Deliveries.Data) == 0) && (v.Events == nil || len(v.Events.Data) == 0) &&
		(v.Endpoints == nil || len(v.Endpoints.Data) == 0)
}

// showSearch finds what the text asks for. An id leads to its page.
func showSearch(p *page) error {
	v := searchView{Text: strings.TrimSpace(p.r.URL.Query().Get("q"))}
	if v.Text == "" {
		return showFound(p, v)
	}
	q, problems := query.Parse(v.Text, p.console.config.Now())
	for _, wrong := range problems {
		v.Problems = append(v.Problems, searchProblem{wrong.Cut(v.Text), wrong.Message})
	}
	if q.Tenant != "" && q.Tenant != p.tenant {
		if p.session.TenantID == "" && webhook.ValidTenantID(q.Tenant) {
			p.redirect(pagePath(q.Tenant, "search") + "?" + url.Values{"q": {v.Text}}.Encode())
			return nil
		}
		v.Problems = append(v.Problems, otherTenant(q.Tenant))
	}
	if len(v.Problems) > 0 {
		return showFound(p, v)
	}
	if q.ID != "" {
		return goTo(p, v, q)
	}
	if err := findAll(p, &v, q); err != nil {
		if v.Problems, err = searchRefused(v.Text, err); err != nil {
			return err
		}
	}
	return showFound(p, v)
}

// searchRefused is what a page shows of an error of a search; an error that is that of the whole page is returned.
func searchRefused(text string, err error) ([]searchProblem, error) {
	known := problemOf(err)
	if known.Status >= http.StatusInternalServerError && known.Status != http.StatusServiceUnavailable || known.Status == http.StatusUnauthorized ||
		known.Status == http.StatusNotFound {
		return nil, err
	}
	problems := []searchProblem{{text, known.Detail}}
	for _, f := range known.Errors {
		problems = append(problems, searchProblem{f.Field, f.Message})
	}
	return problems, nil
}

// otherTenant is the problem of a search in a tenant that there cannot be, or that is another's.
func otherTenant(id string) searchProblem {
	return searchProblem{"tenant:" + id, "is not a tenant that you can see"}
}

func showFound(p *page, v searchView) error {
	return p.show(view{Template: "search", Title: searchTitle, Entry: searchTitle, Data: v})
}

// findAll makes the searches that a query stands for.
func findAll(p *page, v *searchView, q query.Query) error {
	if part := cmp.Or(q.URL, q.Text); part != "" {
		if err := findEndpoints(p, v, part); err != nil {
			return err
		}
	}
	if external := cmp.Or(q.ExternalID, q.Text); external != "" || q.Type != "" && !narrows(q) {
		if err := findEvents(p, v, q, external); err != nil {
			return err
		}
	}
	if narrows(q) && !resolve(v, &q) {
		return nil
	}
	if q.Type == "" && strings.ContainsAny(q.Text, ".:/") && webhook.ValidFilter(q.Text) { // the word may be an event type
		q.Type = q.Text
		if q.Since.IsZero() { // if it is none, all deliveries would be looked at
			q.Since = p.console.config.Now().Add(-wordSpan)
		}
	}
	if narrows(q) || q.Type != "" || q.Text+q.ExternalID+q.URL == "" {
		return findDeliveries(p, v, q)
	}
	return nil
}

// resolve replaces a part of a URL and an external id, which narrow deliveries, by the ids of what was found. It reports
// whether there is one of each.
func resolve(v *searchView, q *query.Query) bool {
	if q.URL != "" && q.EndpointID.IsZero() {
		if len(v.Endpoints.Data) != 1 {
			v.Problems = append(v.Problems, searchProblem{"url:" + q.URL, "does not name one endpoint; choose one below and write endpoint: with its id"})
			return false
		}
		q.EndpointID, _ = webhook.ParseEndpointID(v.Endpoints.Data[0].EndpointID)
	}
	if q.ExternalID != "" && q.EventID.IsZero() {
		if len(v.Events.Data) != 1 {
			return false
		}
		q.EventID, _ = webhook.ParseEventID(v.Events.Data[0].ID)
	}
	return true
}

// narrows reports whether the query has a filter that only deliveries have.
func narrows(q query.Query) bool {
	return len(q.States) > 0 || q.DeadLettersOnly() || !q.EndpointID.IsZero() || !q.EventID.IsZero()
}

// findDeliveries lists deliveries; dead letters if the filters are theirs.
func findDeliveries(p *page, v *searchView, q query.Query) error {
	asked, resource := url.Values{"event_type": {q.Type}}, "deliveries"
	if !q.EndpointID.IsZero() {
		asked.Set("endpoint_id", q.EndpointID.String())
	}
	addTimes(asked, q)
	letters := slices.Equal(q.States, []webhook.State{webhook.StateDeadLettered}) && q.EventID.IsZero()
	if letters || q.DeadLettersOnly() {
		resource = "dead-letters"
		asked.Set("reason", q.Reason)
		if q.Status != 0 {
			asked.Set("status", strconv.Itoa(q.Status))
		}
	} else {
		for _, s := range q.States {
			asked.Add("state", s.String())
		}
		if !q.EventID.IsZero() {
			asked.Set("event_id", q.EventID.String())
		}
	}
	asked = nonEmpty(asked)
	v.Deliveries = &foundDeliveries{Letters: resource == "dead-letters", All: p.to(resource) + "?" + asked.Encode()}
	asked.Set("limit", strconv.Itoa(shownFound))
	var found client.Page[client.Delivery]
	err := p.get(&found, asked, resource)
	if v.Deliveries.Data = found.Data; found.NextCursor == "" {
		v.Deliveries.All = ""
	}
	return err
}

func addTimes(asked url.Values, q query.Query) {
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			asked.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
}

// findEvents lists events with an external id, or of a type.
func findEvents(p *page, v *searchView, q query.Query, external string) error {
	asked := url.Values{"external_id": {external}, "type": {q.Type}}
	addTimes(asked, q)
	asked = nonEmpty(asked)
	v.Events = &foundEvents{All: p.to("events") + "?" + asked.Encode()}
	asked.Set("limit", strconv.Itoa(shownFound))
	var found client.Page[client.AcceptedEvent]
	err := p.get(&found, asked, "events")
	if v.Events.Data = found.Data; found.NextCursor == "" {
		v.Events.All = ""
	}
	return err
}

// findEndpoints finds endpoints by a part of their URL, description or id.
func findEndpoints(p *page, v *searchView, part string) error {
	var found client.Page[client.EndpointCondition]
	err := p.get(&found, url.Values{"text": {part}, "limit": {strconv.Itoa(shownFound)}}, "endpoint-conditions")
	v.Endpoints = &foundEndpoints{found.Data, found.NextCursor != ""}
	return err
}

// suggest answers the script with completions of what is being typed.
func suggest(p *page) error {
	vocabulary := query.Vocabulary{}
	var endpoints client.Page[client.EndpointCondition]
	if err := p.get(&endpoints, url.Values{"limit": {"100"}}, "endpoint-conditions"); err != nil {
		return err
	}
	for _, e := range endpoints.Data {
		for _, filter := range e.EventTypes {
			vocabulary.Types = addNew(vocabulary.Types, filter)
		}
		if u, err := url.Parse(e.URL); err == nil {
			vocabulary.Hosts = addNew(vocabulary.Hosts, u.Hostname())
		}
	}
	var err error
	if vocabulary.Tenants, err = tenantIDs(p); err != nil {
		return err
	}
	return answerSuggestions(p, query.Suggest(p.r.URL.Query().Get("q"), vocabulary))
}

func addNew(all []string, one string) []string {
	if one == "" || one == "*" || slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}
