package console

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/everpost/everpost/client"
)

const eventTypesTitle = "Event types"

// typePath is the path of a page about an event type of the catalogue.
func typePath(name string, parts ...string) string {
	escaped := []string{Root + "/event-types", url.PathEscape(name)}
	for _, part := range parts {
		escaped = append(escaped, url.PathEscape(part))
	}
	return strings.Join(escaped, "/")
}

// eventTypesView is the catalogue of event types: a page of it, by group.
type eventTypesView struct {
	Filter filter
	Groups []eventTypeRows
	Next   string
}

// eventTypeRows are the types of a group.
type eventTypeRows struct {
	Name  string // "" for those without a group
	Types []eventTypeRow
}

type eventTypeRow struct {
	client.ListedEventType

	Newest int // version; 0: there is none
}

func (r eventTypeRow) Path() string { return typePath(r.Name) }

func listEventTypes(p *page) error {
	typed := p.r.URL.Query()
	v := eventTypesView{Filter: p.readFilter(typed, "group", "state", "prefix")}
	var found client.Page[client.ListedEventType]
	if err := p.api.get(p.r.Context(), &found, v.Filter.page(pageLimit, typed.Get("cursor")), apiPath("event-types")); err != nil {
		if v.Filter, err = v.Filter.refused(err); err != nil {
			return err
		}
	}
	v.Next = found.NextCursor
	for _, t := range slices.SortedFunc(slices.Values(found.Data), byGroup) {
		if n := len(v.Groups); n == 0 || v.Groups[n-1].Name != value(t.Group) {
			v.Groups = append(v.Groups, eventTypeRows{Name: value(t.Group)})
		}
		row := eventTypeRow{ListedEventType: t}
		if n := len(t.Versions); n > 0 {
			row.Newest = t.Versions[n-1]
		}
		g := &v.Groups[len(v.Groups)-1]
		g.Types = append(g.Types, row)
	}
	return p.show(view{
		Template: "event-types", Title: eventTypesTitle, Entry: eventTypesTitle, Status: v.Filter.Form.status(), Data: v,
	})
}

// eventTypeView is the page of an event type.
type eventTypeView struct {
	client.EventType

	Shown []shownVersion // the newest first
}

func (v eventTypeView) To(parts ...string) string { return typePath(v.Name, parts...) }

// ReplacementPath is the path of the type to use instead.
func (v eventTypeView) ReplacementPath() string { return typePath(value(v.ReplacedBy)) }

// shownVersion is a version as its page shows it.
type shownVersion struct {
	Number   int
	Schema   string // "" for none
	Examples []string
	Cut      bool // some of it is not shown
	Newest   bool
}

const (
	maxShownSchema   = 16 << 10 // bytes of a schema or of an example
	maxShownVersions = 80 << 10 // bytes of HTML of all of them: a page has 100 KB
)

// readEventType reads the event type of the path, with its ETag.
func readEventType(p *page) (t client.EventType, etag string, err error) {
	api := p.api
	api.etag = &etag
	err = api.get(p.r.Context(), &t, nil, apiPath("event-types", p.r.PathValue("name")))
	return t, etag, err
}

func showEventType(p *page) error {
	t, _, err := readEventType(p)
	if err != nil {
		return err
	}
	v, room := eventTypeView{EventType: t}, maxShownVersions
	for i, one := range slices.Backward(t.Versions) {
		shown := shownVersion{Number: one.Version, Newest: i == len(t.Versions)-1}
		if len(one.Schema) > 0 && string(one.Schema) != "null" {
			shown.Schema = shown.part(one.Schema, &room)
		}
		for _, example := range one.Examples {
			shown.Examples = append(shown.Examples, shown.part(example, &room))
		}
		v.Shown = append(v.Shown, shown)
	}
	return p.show(view{Template: "event-type", Title: t.Name, Entry: eventTypesTitle, Data: v})
}

// part is a schema or an example, as far as there is room.
func (s *shownVersion) part(text json.RawMessage, room *int) string {
	shown, cut := cutExample(text, maxShownSchema, room)
	s.Cut = s.Cut || cut
	return shown
}

// maxEscape is how many bytes of HTML a byte of text takes at most.
const maxEscape = 5

// cutExample indents JSON and cuts it to a limit, and to the room that a page has left, in bytes of HTML.
func cutExample(text json.RawMessage, limit int, room *int) (shown string, cut bool) {
	indented, _ := pretty(string(text))
	indented = visible(indented)
	shown = clip(indented, max(0, min(*room/maxEscape, limit)))
	*room -= len(html.EscapeString(shown))
	return shown, len(shown) < len(indented)
}

// exportEventTypes answers with the catalogue as a document to keep.
func exportEventTypes(p *page) error {
	if p.live != nil {
		return errNotFound()
	}
	var document []byte
	if err := p.api.get(p.r.Context(), &document, nil, apiPath("event-types-export")); err != nil {
		return err
	}
	done, err := p.startAnswer(len(document))
	if err != nil {
		return err
	}
	defer done()
	h := p.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Disposition", `attachment; filename="event-types.json"`)
	_, _ = p.w.Write(document) // an error: the browser has gone
	return nil
}

// askDeleteEventType asks before an event type is removed. The form has the ETag of what it is about.
func askDeleteEventType(p *page) error { return askAboutEventType(p, "") }

func askAboutEventType(p *page, refusal string) error {
	t, etag, err := readEventType(p)
	if err != nil {
		return err
	}
	return p.ask("Delete the event type", eventTypesTitle, question{
		Question: "Remove " + t.Name + " from the catalogue?",
		Detail: "Its versions, schemas and examples are gone, and its payloads are no longer checked. Its events stay, and endpoints go on getting it. " +
			"To stop offering it and keep what it means, set its state to archived instead.",
		Button: "Delete permanently", Back: typePath(t.Name), Danger: true, Hidden: url.Values{"etag": {etag}}, Problem: refusal,
	})
}

func deleteEventType(p *page) error {
	name := p.r.PathValue("name")
	api := p.api
	api.match = p.typed.Get("etag")
	err := api.send(p.r.Context(), nil, http.MethodDelete, apiPath("event-types", name), nil)
	if isStatus(err, http.StatusPreconditionFailed) {
		return askAboutEventType(p, "It was changed in the meantime, so nothing was deleted. Look at it again first.")
	}
	if err != nil {
		return err
	}
	return p.done(Root+"/event-types", "The event type is removed from the catalogue.")
}
