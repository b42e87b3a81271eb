package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
)

// EventTypesCommand shows and changes the catalogue of event types. Changes need an operator's key.
type EventTypesCommand struct {
	List   EventTypesListCommand   `cmd:"" help:"List event types."`
	Show   EventTypesShowCommand   `aliases:"get" cmd:"" help:"Show an event type with its schemas and examples."`
	Put    EventTypesPutCommand    `cmd:"" help:"Create an event type, or replace it."`
	Update EventTypesUpdateCommand `aliases:"change" cmd:"" help:"Change the given settings of an event type."`
	Delete EventTypesDeleteCommand `cmd:"" help:"Remove an event type from the catalogue; its events stay."`
	Import EventTypesImportCommand `cmd:"" help:"Add the event types of an OpenAPI document, or of JSON Schemas."`
	Export EventTypesExportCommand `cmd:"" help:"Print the catalogue as an OpenAPI 3.1 document."`
}

// EventTypesListCommand lists event types.
type EventTypesListCommand struct {
	connection `embed:""`
	paging     `embed:""`

	Group  string `help:"Only those of the group." placeholder:"TEXT"`
	State  string `help:"Only those in the state: active, deprecated or archived." placeholder:"STATE"`
	Prefix string `help:"Only those whose name begins with it." placeholder:"TEXT"`
}

// Run lists them.
func (c *EventTypesListCommand) Run(ctx context.Context, p Process) error {
	query := queryOf(map[string]string{"group": c.Group, "state": c.State, "prefix": c.Prefix})
	r := request{path: []string{"event-types"}, query: query, ofAll: true}
	return listOf(ctx, p, c, "event types", r, c.paging, []column[client.ListedEventType]{
		{"NAME", func(t client.ListedEventType) string { return t.Name }},
		{"GROUP", func(t client.ListedEventType) string { return text(t.Group) }},
		{"STATE", func(t client.ListedEventType) string { return t.State }},
		{"VALIDATION", func(t client.ListedEventType) string { return t.Validation }},
		{"VERSIONS", func(t client.ListedEventType) string {
			numbers := make([]string, len(t.Versions))
			for i, n := range t.Versions {
				numbers[i] = strconv.Itoa(n)
			}
			return printable.OrDash(strings.Join(numbers, ","))
		}},
		{"DESCRIPTION", func(t client.ListedEventType) string { return printable.OrDash(t.Description) }},
	})
}

// oneEventType holds the arguments of a command for one event type.
type oneEventType struct {
	connection `embed:""`

	Name string `arg:"" help:"The event type, such as order.paid."`
}

// request is a request about the event type.
func (c *oneEventType) request(method string, body []byte, header map[string]string) request {
	return request{method: method, path: []string{"event-types", c.Name}, ofAll: true, body: body, header: header}
}

// shown carries out a request about the event type, and prints how it is then.
func (c *oneEventType) shown(ctx context.Context, p Process, method string, body []byte, header map[string]string) error {
	if c.Name == "" {
		return usage("<name>: is empty; it is the event type")
	}
	return with(p, c, func(s *session) error {
		a, err := s.do(ctx, c.request(method, body, header))
		switch {
		case err != nil:
			return err
		case s.json:
			return s.show(a)
		}
		t, err := decode[client.ChangedEventType](a)
		if err != nil {
			return err
		}
		return printEventType(s, &t)
	})
}

// EventTypesShowCommand shows an event type.
type EventTypesShowCommand struct {
	oneEventType `embed:""`
}

// Run shows it.
func (c *EventTypesShowCommand) Run(ctx context.Context, p Process) error {
	return c.shown(ctx, p, http.MethodGet, nil, nil)
}

// printEventType prints an event type, with the schemas and examples as JSON of several lines, and what a change of schemas does.
func printEventType(s *session, t *client.ChangedEventType) error {
	err := printable.Table(s.Stdout, [][]string{
		{"name", t.Name}, {"description", printable.OrDash(t.Description)}, {"group", text(t.Group)}, {"state", t.State},
		{"replaced_by", text(t.ReplacedBy)}, {"validation", t.Validation}, {"ordering_key", text(t.OrderingKey)},
	})
	lines := []string{}
	for _, c := range t.Changes {
		lines = append(lines, changeWords(&c))
	}
	for _, v := range t.Versions {
		lines = append(lines, "", "version "+strconv.Itoa(v.Version)+", schema:")
		lines = append(lines, indented(v.Schema)...)
		for i, example := range v.Examples {
			lines = append(append(lines, "example "+strconv.Itoa(i+1)+":"), indented(example)...)
		}
	}
	for _, line := range lines {
		if err == nil {
			err = s.line(printable.Text(line))
		}
	}
	return err
}

// changeWords say what a new or changed schema takes away from receivers and asks of senders.
func changeWords(c *client.SchemaChange) string {
	words := []string{}
	for _, of := range []struct {
		name     string
		pointers []string
	}{{"removed", c.Removed}, {"required", c.Required}, {"retyped", c.Retyped}} {
		if len(of.pointers) > 0 {
			words = append(words, of.name+" "+strings.Join(of.pointers, ", "))
		}
	}
	return fmt.Sprintf("version %d, compared with %d: %s", c.Version, c.Against, strings.Join(words, "; "))
}

// indented are the lines of a JSON text.
func indented(text json.RawMessage) []string {
	var b bytes.Buffer
	if json.Indent(&b, text, "  ", "  ") != nil {
		return nil
	}
	return strings.Split("  "+b.String(), "\n")
}

// eventTypeFields are the settings of an event type.
type eventTypeFields struct {
	Description *string `help:"What the event means, for people." placeholder:"TEXT"`
	Group       *string `help:"A group of event types, for people." placeholder:"TEXT"`
	State       *string `help:"active, deprecated or archived." placeholder:"STATE"`
	ReplacedBy  *string `help:"The event type to use instead." placeholder:"NAME"`
	Validation  *string `help:"Of payloads by the schema: off, warn or enforce." placeholder:"KIND"`
	OrderingKey *string `help:"A JSON pointer to the ordering key in the payload, for events that are sent without one." placeholder:"POINTER"`
	Data        source  `help:"Any settings as the API takes them, such as versions with schemas and examples: a JSON object, @file, or - for standard input. Flags override its fields." placeholder:"JSON"` //nolint:lll // a struct tag cannot be wrapped
	IfMatch     string  `help:"The ETag that was read: the change is refused if the event type was changed since." name:"if-match" placeholder:"ETAG"`
}

func (f *eventTypeFields) body(p Process) ([]byte, error) {
	fields, err := f.Data.object(p, "--data")
	if err != nil {
		return nil, err
	}
	for name, given := range map[string]*string{
		"description": f.Description, "group": f.Group, "state": f.State, "replaced_by": f.ReplacedBy, "validation": f.Validation,
		"ordering_key": f.OrderingKey,
	} {
		set(fields, name, given)
	}
	return marshal(fields), nil
}

// ifMatch is the header of a conditional change; nil without one.
func ifMatch(etag string) map[string]string {
	if etag == "" {
		return nil
	}
	return map[string]string{"If-Match": etag}
}

// EventTypesPutCommand creates or replaces an event type.
type EventTypesPutCommand struct {
	oneEventType    `embed:""`
	eventTypeFields `embed:""`

	IfAbsent bool `help:"Create only: the change is refused if the event type exists." name:"if-absent"`
}

// Run puts it.
func (c *EventTypesPutCommand) Run(ctx context.Context, p Process) error {
	body, err := c.body(p)
	if err != nil {
		return err
	}
	header := ifMatch(c.IfMatch)
	if c.IfAbsent {
		if header != nil {
			return usage("--if-absent: cannot be given together with --if-match")
		}
		header = map[string]string{"If-None-Match": "*"}
	}
	return c.shown(ctx, p, http.MethodPut, body, header)
}

// EventTypesUpdateCommand changes an event type.
type EventTypesUpdateCommand struct {
	oneEventType    `embed:""`
	eventTypeFields `embed:""`
}

// Run changes it.
func (c *EventTypesUpdateCommand) Run(ctx context.Context, p Process) error {
	body, err := c.body(p)
	if err != nil {
		return err
	}
	return c.shown(ctx, p, http.MethodPatch, body, ifMatch(c.IfMatch))
}

// EventTypesDeleteCommand deletes an event type.
type EventTypesDeleteCommand struct {
	oneEventType `embed:""`

	IfMatch string `help:"The ETag that was read." name:"if-match" placeholder:"ETAG"`
}

// Run deletes it.
func (c *EventTypesDeleteCommand) Run(ctx context.Context, p Process) error {
	if c.Name == "" {
		return usage("<name>: is empty; it is the event type")
	}
	return removed(ctx, p, c, c.request(http.MethodDelete, nil, ifMatch(c.IfMatch)), printable.Text(c.Name))
}

// EventTypesImportCommand imports event types.
type EventTypesImportCommand struct {
	connection `embed:""`

	OpenAPI    source `help:"An OpenAPI 3.1 document with webhooks, as JSON: @file, or - for standard input." name:"openapi" placeholder:"JSON"`
	Schemas    source `help:"JSON Schemas by event type: a JSON object, @file, or - for standard input." placeholder:"JSON"`
	DryRun     bool   `help:"Change nothing; print what would be done." name:"dry-run"`
	ReplaceAll bool   `help:"Archive the event types that are not in it." name:"replace-all"`
}

// Run imports them.
func (c *EventTypesImportCommand) Run(ctx context.Context, p Process) error {
	if (c.OpenAPI == "") == (c.Schemas == "") {
		return usage("event-types import: give either --openapi or --schemas")
	}
	fields := map[string]json.RawMessage{"dry_run": marshal(c.DryRun), "replace_all": marshal(c.ReplaceAll)}
	name, given := "openapi", c.OpenAPI
	if given == "" {
		name, given = "schemas", c.Schemas
	}
	document, err := given.object(p, "--"+name)
	if err != nil {
		return err
	}
	fields[name] = marshal(document)
	return with(p, c, func(s *session) error {
		a, err := s.do(ctx, request{method: http.MethodPost, path: []string{"event-types", "import"}, ofAll: true, body: marshal(fields)})
		switch {
		case err != nil:
			return err
		case s.json:
			return s.show(a)
		}
		return printImport(s, a)
	})
}

// printImport prints a line for each event type, with what a new version takes away or asks for.
func printImport(s *session, a client.Answer) error {
	shown, err := decode[client.EventTypeImport](a)
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "CHANGE", "VERSION", "REMOVED", "REQUIRED", "RETYPED"}}
	for _, t := range shown.Types {
		version, changes := "-", [3]string{"-", "-", "-"}
		if t.Version != nil {
			version = strconv.Itoa(*t.Version)
		}
		for _, c := range t.Changes {
			for i, pointers := range [][]string{c.Removed, c.Required, c.Retyped} {
				changes[i] = printable.OrDash(strings.Join(pointers, ","))
			}
		}
		rows = append(rows, append([]string{t.Name, t.Change, version}, changes[:]...))
	}
	if err := printable.Table(s.Stdout, rows); err != nil {
		return err
	}
	for _, w := range shown.Warnings {
		if err := s.line(printable.Text(w.Place() + ": " + w.Message)); err != nil {
			return err
		}
	}
	if shown.DryRun {
		return s.line("nothing was changed")
	}
	return nil
}

// EventTypesExportCommand exports the catalogue.
type EventTypesExportCommand struct {
	access `embed:""`
}

// open is connection.open.
func (c *EventTypesExportCommand) open(p Process) (*session, error) {
	return (&connection{access: c.access, JSON: true}).open(p)
}

// Run prints it.
func (c *EventTypesExportCommand) Run(ctx context.Context, p Process) error {
	return with(p, c, func(s *session) error {
		return s.record(ctx, request{path: []string{"event-types-export"}, ofAll: true})
	})
}
