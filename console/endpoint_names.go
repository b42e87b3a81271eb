package console

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/everpost/everpost/client"
)

// endpointNames are the endpoints of a tenant, for choices and for names in lists.
type endpointNames struct {
	ids  []string // in the order of the API, the newest first
	urls map[string]string
	More bool // there are others
}

// readEndpointNames reads the tenant's newest endpoints, one page of the API.
func readEndpointNames(p *page) (endpointNames, error) {
	var found client.Page[client.EndpointCondition]
	if err := p.get(&found, url.Values{"limit": {"250"}}, "endpoint-conditions"); err != nil {
		return endpointNames{}, err
	}
	names := endpointNames{urls: map[string]string{}, More: found.NextCursor != ""}
	for _, e := range found.Data {
		names.ids = append(names.ids, e.EndpointID)
		names.urls[e.EndpointID] = e.URL
	}
	return names, nil
}

// readEndpointName is the name of one endpoint; none if it is deleted.
func readEndpointName(p *page, id string) (endpointNames, error) {
	var e client.Endpoint
	err := p.get(&e, nil, "endpoints", id)
	if isStatus(err, http.StatusNotFound) {
		return endpointNames{}, nil
	}
	return endpointNames{urls: map[string]string{id: e.URL}}, err
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
