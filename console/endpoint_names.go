package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/everpost/everpost/client"
)

// endpointNames are the endpoints of a tenant, for choices and for names in lists.
type endpointNames struct {
	ids  []string // in the order of the API, the newest first
	urls map[string]string
	said map[string]string // their descriptions
	More bool              // there are others
}

// readEndpointNames reads the tenant's newest endpoints, one page of the API.
func readEndpointNames(p *page) (endpointNames, error) {
	var found client.Page[client.EndpointCondition]
	if err := p.get(&found, url.Values{"limit": {"250"}}, "endpoint-conditions"); err != nil {
		return endpointNames{}, err
	}
	names := endpointNames{urls: map[string]string{}, said: map[string]string{}, More: found.NextCursor != ""}
	for _, e := range found.Data {
		names.ids = append(names.ids, e.EndpointID)
		names.urls[e.EndpointID], names.said[e.EndpointID] = e.URL, e.Description
	}
	return names, nil
}

// maxNamesRead bounds the endpoints of a list that are read one by one, because they are not among the newest: the others are shown by their ids.
const maxNamesRead = 20

// readNamesOf reads the names of the endpoints of a list's rows, and of the tenant's newest ones.
func readNamesOf[T any](p *page, rows []T, endpoint func(T) string) (endpointNames, error) {
	names, err := readEndpointNames(p)
	if err != nil || !names.More {
		return names, err
	}
	read := 0
	for _, row := range rows {
		id := endpoint(row)
		if _, known := names.urls[id]; known || read == maxNamesRead {
			continue
		}
		read++
		names.urls[id] = ""
		var e client.Endpoint
		if p.get(&e, nil, "endpoints", id) == nil { // an error: it is deleted, cannot be decrypted or cannot be read now, and is shown by its id
			names.urls[id], names.said[id] = e.URL, e.Description
		}
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
	return endpointNames{urls: map[string]string{id: e.URL}, said: map[string]string{id: e.Description}}, err
}

// Name is an endpoint's URL, or its id if that is not known.
func (n endpointNames) Name(id string) string {
	if address := n.urls[id]; address != "" {
		return address
	}
	return id
}

// Short is what people call an endpoint, or its id if neither its description nor its URL is known.
func (n endpointNames) Short(id string) string {
	return cmp.Or(called(n.said[id], n.urls[id]), id)
}

// called is what people call an endpoint: the first line of its description, or its URL without the scheme.
func called(description, address string) string {
	if line, _, _ := strings.Cut(description, "\n"); strings.TrimSpace(line) != "" {
		return line
	}
	if _, rest, found := strings.Cut(address, "://"); found {
		return rest
	}
	return address
}

// Choice is an endpoint's name for a choice: with its host and path where people have given it a name, which may not be unique.
func (n endpointNames) Choice(id string) string {
	name, address := n.Short(id), n.urls[id]
	if _, rest, found := strings.Cut(address, "://"); found && rest != name {
		return name + " (" + rest + ")"
	}
	return name
}

// Cut reports whether there are endpoints that cannot be chosen.
func (n endpointNames) Cut() bool { return n.More || len(n.ids) > maxChoices }

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
