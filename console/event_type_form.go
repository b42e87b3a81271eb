package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
)

// eventTypeForm is the form of an event type without its versions.
func eventTypeForm(t client.EventType) form {
	return newForm("description", t.Description, "group", value(t.Group), "state", t.State, "replaced_by", value(t.ReplacedBy),
		"validation", t.Validation, "ordering_key", value(t.OrderingKey))
}

// newTypeForm is that of a new one, with its first version.
func newTypeForm() form {
	f := eventTypeForm(client.EventType{State: "active", Validation: "off"})
	f.known = append(f.known, "name", "schema", "examples")
	return f
}

// eventTypeBody are the fields of the form for the API. An emptied field gets its default.
func eventTypeBody(typed url.Values) map[string]any {
	body := map[string]any{
		"description": strings.TrimSpace(strings.ReplaceAll(typed.Get("description"), "\r\n", "\n")),
		"state":       typed.Get("state"), "validation": typed.Get("validation"),
	}
	for _, name := range []string{"group", "replaced_by", "ordering_key"} {
		body[name] = nil
		if text := strings.TrimSpace(typed.Get(name)); text != "" {
			body[name] = text
		}
	}
	return body
}

// eventTypeFormView is the form of an event type, or of one of its versions.
type eventTypeFormView struct {
	Form    form
	Name    string // "" for a new one
	ETag    string // of what the form shows
	Back    string
	Version int  // of the form of a version
	Stored  bool // the version can be removed
}

func showTypeForm(p *page, f form, name, etag string) error {
	v, title := eventTypeFormView{Form: f, Name: name, ETag: etag, Back: Root + "/event-types"}, "Create an event type"
	if name != "" {
		v.Back, title = typePath(name), "Edit "+name
	}
	return p.show(view{Template: "event-type-form", Title: title, Entry: eventTypesTitle, Status: f.status(), Data: v})
}

func newEventType(p *page) error { return showTypeForm(p, newTypeForm(), "", "") }

// createEventType creates an event type. One that exists is refused, because a PUT would replace it, unless somebody else creates it at the same moment.
func createEventType(p *page) error {
	name := strings.TrimSpace(p.typed.Get("name"))
	err := typeIsNew(p, name)
	if err == nil {
		body := eventTypeBody(p.typed)
		var version map[string]any
		if version, err = versionBody(p.typed, 1); err == nil {
			if len(version) > 1 {
				body["versions"] = []any{version}
			}
			err = versionPaths(p.api.send(p.r.Context(), nil, http.MethodPut, apiPath("event-types", name), body), 0)
		}
	}
	if err != nil {
		f, err := newTypeForm().refused(p.typed, err)
		if err != nil {
			return err
		}
		return showTypeForm(p, f, "", "")
	}
	return p.done(typePath(name), "The event type is in the catalogue.")
}

// typeIsNew returns an error if there is such a type.
func typeIsNew(p *page, name string) error {
	if name == "" {
		return wrong("name", "is required")
	}
	switch err := p.api.get(p.r.Context(), nil, nil, apiPath("event-types", name)); {
	case err == nil:
		return wrong("name", "is in the catalogue already")
	case isStatus(err, http.StatusNotFound):
		return nil
	default:
		return err
	}
}

func editEventType(p *page) error {
	t, etag, err := readEventType(p)
	if err != nil {
		return err
	}
	return showTypeForm(p, eventTypeForm(t), t.Name, etag)
}

// updateEventType changes what the form shows, unless another has changed the type since.
func updateEventType(p *page) error {
	t, etag, err := readEventType(p)
	if err != nil {
		return err
	}
	if err := changeType(p, t.Name, eventTypeBody(p.typed), nil); err != nil {
		f, err := eventTypeForm(t).refused(p.typed, err)
		if err != nil {
			return err
		}
		return showTypeForm(p, f, t.Name, f.shows(p.typed, "etag", etag))
	}
	return p.done(typePath(t.Name), "The event type is changed.")
}

// changeType changes an event type if it is as the form showed it.
func changeType(p *page, name string, body map[string]any, into any) error {
	api := p.api
	api.match = p.typed.Get("etag")
	err := api.send(p.r.Context(), into, http.MethodPatch, apiPath("event-types", name), body)
	if isStatus(err, http.StatusPreconditionFailed) {
		return changedByAnother("event type")
	}
	return err
}

// versionForm is the form of a version.
func versionForm(v client.EventTypeVersion) form {
	examples := make([]string, len(v.Examples))
	for i, example := range v.Examples {
		examples[i], _ = pretty(string(example))
	}
	schema := ""
	if string(v.Schema) != "null" {
		schema, _ = pretty(string(v.Schema))
	}
	return newForm("schema", schema, "examples", strings.Join(examples, "\n\n"))
}

// versionBody is a version for the API. What is wrong with its JSON is an error of the field.
func versionBody(typed url.Values, number int) (map[string]any, error) {
	body := map[string]any{"version": number}
	if text := strings.TrimSpace(typed.Get("schema")); text != "" {
		if !json.Valid([]byte(text)) {
			return nil, wrong("schema", notJSON)
		}
		body["schema"] = json.RawMessage(text)
	}
	examples, err := jsonValues(typed.Get("examples"))
	if err != nil {
		return nil, wrong("examples", notJSON)
	}
	if len(examples) > 0 {
		body["examples"] = examples
	}
	return body, nil
}

// jsonValues are the JSON values of a text, one after another. Their bytes stay as they are.
func jsonValues(text string) (values []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	for {
		var one json.RawMessage
		switch err := d.Decode(&one); {
		case errors.Is(err, io.EOF):
			return values, nil
		case err != nil:
			return nil, err //nolint:wrapcheck // the caller has its own words
		}
		values = append(values, one)
	}
}

// versionPaths names the fields of the version at a place as the form does.
func versionPaths(err error, place int) error {
	known, ok := errors.AsType[*problem](err)
	if !ok {
		return err
	}
	for i := range known.Errors {
		e := &known.Errors[i]
		rest, found := strings.CutPrefix(e.Field, "versions["+strconv.Itoa(place)+"].")
		if !found {
			continue
		}
		if e.Field = rest; strings.HasPrefix(rest, "examples[") {
			e.Message = strings.TrimPrefix(rest, "examples") + " " + e.Message
		}
	}
	return known
}

// findVersion finds the version of the path: its place among the type's versions. "new" is the place after the last one, with the next number.
func findVersion(p *page, t client.EventType) (place int, v client.EventTypeVersion, err error) {
	number := p.r.PathValue("version")
	if number == "new" {
		v.Version = 1
		if n := len(t.Versions); n > 0 {
			v = client.EventTypeVersion{Version: t.Versions[n-1].Version + 1, Schema: t.Versions[n-1].Schema, Examples: t.Versions[n-1].Examples}
		}
		return len(t.Versions), v, nil
	}
	place = slices.IndexFunc(t.Versions, func(one client.EventTypeVersion) bool { return strconv.Itoa(one.Version) == number })
	if place < 0 {
		return 0, v, errNotFound()
	}
	return place, t.Versions[place], nil
}

func showVersionForm(p *page, f form, t client.EventType, etag string, number int) error {
	stored := p.r.PathValue("version") != "new"
	title := "Add version " + strconv.Itoa(number) + " of " + t.Name
	if stored {
		title = "Edit version " + strconv.Itoa(number) + " of " + t.Name
	}
	return p.show(view{Template: "event-type-version", Title: title, Entry: eventTypesTitle, Status: f.status(), Data: eventTypeFormView{
		Form: f, Name: t.Name, ETag: etag, Back: typePath(t.Name), Version: number, Stored: stored,
	}})
}

// editVersion shows the form of a version; a new one begins as the newest one is.
func editVersion(p *page) error {
	t, etag, err := readEventType(p)
	if err != nil {
		return err
	}
	_, v, err := findVersion(p, t)
	if err != nil {
		return err
	}
	return showVersionForm(p, versionForm(v), t, etag, v.Version)
}

// savedTypeView says what a new or changed schema takes away and asks for.
type savedTypeView struct {
	Changes []client.SchemaChange
	Back    string
}

// saveVersion adds, changes or removes a version, unless another has changed the type since.
func saveVersion(p *page) error {
	t, etag, err := readEventType(p)
	if err != nil {
		return err
	}
	place, v, err := findVersion(p, t)
	if err != nil {
		return err
	}
	saved, err := changeVersions(p, t, place, v.Version)
	if err != nil {
		f, err := versionForm(v).refused(p.typed, err)
		if err != nil {
			return err
		}
		return showVersionForm(p, f, t, f.shows(p.typed, "etag", etag), v.Version)
	}
	if len(saved.Changes) > 0 {
		return p.show(view{
			Template: "event-type-saved", Title: "The version is saved", Entry: eventTypesTitle, Data: savedTypeView{saved.Changes, typePath(t.Name)},
		})
	}
	return p.done(typePath(t.Name), "The versions are changed.")
}

// changeVersions sends the versions of a type with one of them as it was typed.
func changeVersions(p *page, t client.EventType, place, number int) (saved client.ChangedEventType, err error) {
	versions := make([]any, len(t.Versions))
	for i, one := range t.Versions {
		versions[i] = map[string]any{"version": one.Version, "schema": one.Schema, "examples": one.Examples}
	}
	if p.typed.Get("remove") == "yes" && place < len(versions) {
		versions = slices.Delete(versions, place, place+1)
	} else {
		typed, err := versionBody(p.typed, number)
		if err != nil {
			return saved, err
		}
		versions = append(versions[:place:place], append([]any{typed}, versions[min(place+1, len(versions)):]...)...)
	}
	err = versionPaths(changeType(p, t.Name, map[string]any{"versions": versions}, &saved), place)
	return saved, err
}
