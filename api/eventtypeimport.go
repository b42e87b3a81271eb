package api

import (
	"bytes"
	"context"
	"net/http"
	"unicode/utf8"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/catalogue"
	"github.com/everpost/everpost/internal/webhook"
)

// maxExport bounds the schemas and examples of an export, in bytes.
const maxExport = 4 << 20

// EventTypeImports imports and exports the catalogue of event types.
type EventTypeImports interface {
	// ImportEventTypes adds types in one transaction. CodeInvalid: one has too many versions; CodeQuota: there would be too many types.
	ImportEventTypes(ctx context.Context, by webhook.Actor, in webhook.TypeImport) ([]webhook.ImportedChange, error)
	// AllEventTypes returns all types that are not archived, each with its newest version. CodeTooLarge: they are larger than that.
	AllEventTypes(ctx context.Context, most int) ([]webhook.EventType, error)
}

// eventTypeImportHandler imports and exports the catalogue.
type eventTypeImportHandler struct{ imports EventTypeImports }

// typeImport is the body of an import while it is read.
type typeImport struct {
	webhook.TypeImport

	given    []string
	problems []webhook.FieldError
	warnings []webhook.FieldError
}

func (h *eventTypeImportHandler) importAll(c call) error {
	text, err := c.body()
	if err != nil {
		return err
	}
	var in typeImport
	if err := readObject(text, in.read); err != nil {
		return err
	}
	if err := in.check(c.Request().Context()); err != nil {
		return err
	}
	if len(in.given) != 1 {
		in.problems = append(in.problems, webhook.FieldError{Field: "body", Message: "must have either openapi or schemas"})
	}
	if len(in.problems) > 0 {
		return &webhook.Error{Code: webhook.CodeInvalid, Message: invalidRequest, Fields: in.problems[:min(len(in.problems), maxFieldErrors)]}
	}
	changes, err := h.imports.ImportEventTypes(c.Request().Context(), c.actor(), in.TypeImport)
	if err != nil {
		return err
	}
	view := client.EventTypeImport{DryRun: in.DryRun, Types: make([]client.ImportedEventType, len(changes)), Warnings: showFields(in.warnings)}
	for i := range changes {
		view.Types[i] = showImported(&changes[i])
	}
	return c.json(http.StatusOK, view)
}

func showImported(c *webhook.ImportedChange) client.ImportedEventType {
	view := client.ImportedEventType{Name: c.Name, Change: c.Change, Changes: []client.SchemaChange{}}
	if c.Version != 0 {
		view.Version = &c.Version
	}
	if c.Before != nil {
		if found := catalogue.Compare(c.Before.Schema, c.Schema); !found.IsZero() {
			view.Changes = append(view.Changes, showChange(c.Version, c.Before.Version, found))
		}
	}
	return view
}

// read reads a field of the body. A document and schemas may hold any JSON: what is wrong with them is said by the catalogue.
func (in *typeImport) read(d *jsonDecoder, name string) {
	switch name {
	case "openapi":
		if !d.null() {
			in.given = append(in.given, name)
			in.readDocument(d.payload())
		}
	case "schemas":
		if !d.null() {
			in.given = append(in.given, name)
			in.readSchemas(d)
		}
	case "dry_run":
		set(d, &in.DryRun, false, readBoolean)
	case "replace_all":
		set(d, &in.ReplaceAll, false, readBoolean)
	default:
		d.unknown()
	}
}

func (in *typeImport) readDocument(text []byte) {
	if text == nil {
		return // noted by the decoder
	}
	types, warnings, problems := catalogue.FromOpenAPI(text)
	in.Types = types
	for _, w := range warnings {
		in.warnings = append(in.warnings, webhook.FieldError{Field: "openapi." + w.Path, Message: w.Message})
	}
	for _, p := range problems {
		in.problems = append(in.problems, webhook.FieldError{Field: "openapi." + p.Path, Message: p.Message})
	}
}

func (in *typeImport) readSchemas(d *jsonDecoder) {
	d.object(func(name []byte) {
		if len(in.Types) == webhook.MaxCatalogueTypes {
			d.noteParent("has more than 1,000 entries")
		}
		schema := d.payload()
		if len(in.Types) < webhook.MaxCatalogueTypes+1 {
			in.Types = append(in.Types, webhook.ImportedType{Name: string(name), Schema: bytes.Clone(schema)})
		}
	})
	if len(in.Types) == 0 {
		d.note("must have at least one")
	}
}

// check checks names, schemas and examples, until the request ends. Examples that do not match their schema are left out.
func (in *typeImport) check(ctx context.Context) error {
	for i := range in.Types {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &in.Types[i]
		at := "types." + string(appendName(nil, []byte(t.Name)))
		refuse := func(message string) {
			in.problems = append(in.problems, webhook.FieldError{Field: at, Message: message})
		}
		switch {
		case !utf8.ValidString(t.Name) || !webhook.ValidType(t.Name):
			refuse(notAType)
		case webhook.ReservedType(t.Name):
			refuse(reservedTypes)
		}
		if t.Group != "" && !printable(t.Group, webhook.MaxEventTypeGroup) {
			in.warn(at, "has a tag that cannot be a group: it is left out")
			t.Group = ""
		}
		if utf8.RuneCountInString(t.Description) > webhook.MaxEventTypeDescription {
			in.warn(at, "has a description of more than 2,000 characters: it is cut")
			t.Description = string([]rune(t.Description)[:webhook.MaxEventTypeDescription])
		}
		if t.Schema != nil && len(in.problems) < maxFieldErrors {
			in.checkSchema(ctx, t, at)
		}
	}
	return nil
}

func (in *typeImport) warn(at, message string) {
	if len(in.warnings) < maxFieldErrors {
		in.warnings = append(in.warnings, webhook.FieldError{Field: at, Message: message})
	}
}

func (in *typeImport) checkSchema(ctx context.Context, t *webhook.ImportedType, at string) {
	schema, err := catalogue.Compile(t.Schema)
	if err != nil {
		in.problems = append(in.problems, webhook.FieldError{Field: at, Message: err.Error()})
		return
	}
	var fit [][]byte
	for _, example := range t.Examples {
		if found, err := schema.Validate(ctx, example); err == nil && len(found) > 0 {
			in.warn(at, "has an example that does not match its schema, which is left out: "+found[0].String())
			continue
		}
		fit = append(fit, example)
	}
	t.Examples = fit
}

func (h *eventTypeImportHandler) export(c call) error {
	if err := c.answer.reserve(2 * maxExport); err != nil {
		return err
	}
	types, err := h.imports.AllEventTypes(c.Request().Context(), maxExport)
	if err != nil {
		return err
	}
	text, err := catalogue.ToOpenAPI(types)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, text)
}
