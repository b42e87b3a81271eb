package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/everpost/everpost/client"
)

// importKinds are what can be imported.
const (
	importOpenAPI = "OpenAPI document"
	importSchemas = "JSON Schemas by event type"
)

// importView is the form of an import, and what it would do.
type importView struct {
	Form    form
	Checked *checkedImport // nil: nothing was checked yet
}

// checkedImport is the answer to a dry run, as far as a page shows it.
type checkedImport struct {
	Types     []client.ImportedEventType // that are changed
	More      int                        // others
	Unchanged int
	Warnings  []client.FieldError
}

const (
	shownImported = 100 // types
	shownPointers = 10  // of each list of changes
)

// Nothing reports whether the import changes nothing.
func (c *checkedImport) Nothing() bool { return len(c.Types) == 0 }

func importForm() form {
	return newForm("kind", importOpenAPI, "document", "", "replace_all", "")
}

func showImport(p *page, f form, checked *checkedImport) error {
	return p.show(view{
		Template: "event-types-import", Title: "Import event types", Entry: eventTypesTitle, Status: f.status(), Data: importView{f, checked},
	})
}

func askImport(p *page) error { return showImport(p, importForm(), nil) }

// importEventTypes makes a dry run of an import, or carries out one whose dry run was shown.
func importEventTypes(p *page) error {
	step := p.typed.Get("step")
	if step == "edit" {
		return showImport(p, importForm().kept(p.typed), nil)
	}
	var made client.EventTypeImport
	body, err := importBody(p, step != "import")
	if err == nil {
		err = p.api.send(p.r.Context(), &made, http.MethodPost, apiPath("event-types", "import"), body)
	}
	if err != nil {
		f, err := importForm().refused(p.typed, importPaths(err))
		if err != nil {
			return err
		}
		return showImport(p, f, nil)
	}
	if step == "import" {
		changed := 0
		for _, t := range made.Types {
			if t.Change != "unchanged" {
				changed++
			}
		}
		return p.done(Root+"/event-types", "The import is done: "+count(int64(changed))+" event types were changed.")
	}
	return showImport(p, importForm().kept(p.typed), summarize(made))
}

// importBody is the body of an import. The document's bytes stay as they are.
func importBody(p *page, dry bool) (json.RawMessage, error) {
	document := strings.TrimSpace(p.typed.Get("document"))
	if !json.Valid([]byte(document)) {
		return nil, wrong("document", notJSON)
	}
	in := map[string]any{"dry_run": dry, "replace_all": p.typed.Get("replace_all") == "yes"}
	name := "openapi"
	if p.typed.Get("kind") == importSchemas {
		name = "schemas"
	}
	return withJSON(in, name, []byte(document))
}

// importPaths names the document as the form does; where in it something is wrong is part of the message.
func importPaths(err error) error {
	known, ok := errors.AsType[*problem](err)
	if !ok {
		return err
	}
	for i := range known.Errors {
		e := &known.Errors[i]
		if e.Field != "document" {
			e.Field, e.Message = "document", e.Field+" "+e.Message
		}
	}
	return known
}

// summarize is what a page shows of a dry run.
func summarize(made client.EventTypeImport) *checkedImport {
	c := &checkedImport{Warnings: made.Warnings}
	for _, t := range made.Types {
		switch {
		case t.Change == "unchanged":
			c.Unchanged++
		case len(c.Types) == shownImported:
			c.More++
		default:
			c.Types = append(c.Types, t)
		}
	}
	return c
}

// pointersView is a list of places in a payload, as far as it is shown.
type pointersView struct {
	Shown []string
	More  int
}

func pointers(all []string) pointersView {
	n := min(len(all), shownPointers)
	return pointersView{all[:n], len(all) - n}
}
