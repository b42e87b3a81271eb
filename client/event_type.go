package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// EventType is an entry of the catalogue of event types, which belongs to the installation.
type EventType struct {
	Name        string             `json:"name"`
	Description string             `json:"description"`
	Group       *string            `json:"group"`
	State       string             `json:"state"`        // "active", "deprecated" or "archived"
	ReplacedBy  *string            `json:"replaced_by"`  // another type
	Validation  string             `json:"validation"`   // of payloads: "off", "warn" or "enforce"
	OrderingKey *string            `json:"ordering_key"` // a JSON pointer to a value in the payload
	Versions    []EventTypeVersion `json:"versions"`     // by number: the last one is the newest
	CreatedAt   Time               `json:"created_at"`
	UpdatedAt   Time               `json:"updated_at"`

	// ETag is the revision that was read, for IfMatch; "" in answers to changes.
	ETag string `json:"-"`
}

// EventTypeVersion is a version of the payload of an event type.
type EventTypeVersion struct {
	Version  int               `json:"version"`
	Schema   json.RawMessage   `json:"schema"`   // JSON Schema; null for none
	Examples []json.RawMessage `json:"examples"` // payloads
}

// ListedEventType is an event type of a list, without schemas and examples.
type ListedEventType struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Group       *string `json:"group"`
	State       string  `json:"state"`
	ReplacedBy  *string `json:"replaced_by"`
	Validation  string  `json:"validation"`
	OrderingKey *string `json:"ordering_key"`
	Versions    []int   `json:"versions"`
	CreatedAt   Time    `json:"created_at"`
	UpdatedAt   Time    `json:"updated_at"`
}

// ChangedEventType is the answer to a change of an event type.
type ChangedEventType struct {
	EventType

	Changes []SchemaChange `json:"changes"` // of new and changed schemas that take something away or ask for more
}

// SchemaChange is what a schema takes away from receivers and asks of senders. The lists are JSON pointers into a payload, with * for the index of
// an array, up to 100 of each.
type SchemaChange struct {
	Version  int      `json:"version"`
	Against  int      `json:"against"` // the version that it is compared with; the same one as it was before if it was changed
	Removed  []string `json:"removed"`
	Required []string `json:"required"` // that must be there now
	Retyped  []string `json:"retyped"`  // with other types
}

// EventTypeInput are the settings of an event type. A nil field is left out: in a Put it is the default, in an Update it stays as it is.
type EventTypeInput struct {
	Description *string                 `json:"description,omitzero"`
	Group       *string                 `json:"group,omitzero"`
	State       *string                 `json:"state,omitzero"`
	ReplacedBy  *string                 `json:"replaced_by,omitzero"`
	Validation  *string                 `json:"validation,omitzero"`
	OrderingKey *string                 `json:"ordering_key,omitzero"`
	Versions    []EventTypeVersionInput `json:"versions,omitzero"`
}

// EventTypeVersionInput is a version of an event type. The list of an EventTypeInput replaces all versions.
type EventTypeVersionInput struct {
	Version  int               `json:"version"`
	Schema   json.RawMessage   `json:"schema,omitzero"`
	Examples []json.RawMessage `json:"examples,omitzero"`
}

// EventTypeFilter selects event types. What is zero is not compared.
type EventTypeFilter struct {
	Group  string
	State  string
	Prefix string // of the name
}

// EventTypes are the calls about the catalogue of event types.
type EventTypes struct{ scope }

// EventTypes returns the calls about the catalogue of event types.
func (c *Client) EventTypes() EventTypes { return EventTypes{scope{c, []string{"event-types"}}} }

// IfMatch makes a change conditional on the ETag that was read: CodeChanged if the object was changed since.
func IfMatch(etag string) Option {
	return func(r *Request) { r.Header["If-Match"] = etag }
}

// IfAbsent makes a Put create only: CodeChanged if the object exists.
func IfAbsent() Option {
	return func(r *Request) { r.Header["If-None-Match"] = "*" }
}

// List lists event types by name.
func (e EventTypes) List(f EventTypeFilter) List[ListedEventType] {
	return List[ListedEventType]{e.scope, parameters("group", f.Group, "state", f.State, "prefix", f.Prefix)}
}

// Get reads an event type with its schemas and examples.
func (e EventTypes) Get(ctx context.Context, name string) (EventType, error) {
	a, err := e.c.Do(ctx, Request{Method: http.MethodGet, Path: e.at(name).path})
	t, err := decoded[EventType](a, err)
	if err == nil {
		t.ETag = a.Header.Get("ETag")
	}
	return t, err
}

// Put creates the event type, or replaces it. It needs an operator's key.
func (e EventTypes) Put(ctx context.Context, name string, in EventTypeInput, o ...Option) (ChangedEventType, error) {
	return send[ChangedEventType](ctx, e.at(name), http.MethodPut, in, o...)
}

// Update changes the event type. It needs an operator's key.
func (e EventTypes) Update(ctx context.Context, name string, change EventTypeInput, o ...Option) (ChangedEventType, error) {
	return send[ChangedEventType](ctx, e.at(name), http.MethodPatch, change, o...)
}

// Delete removes the event type from the catalogue; its events stay. It needs an operator's key.
func (e EventTypes) Delete(ctx context.Context, name string, o ...Option) error {
	_, err := e.at(name).do(ctx, http.MethodDelete, nil, o)
	return err
}

// EventTypeImportInput is an import. Either OpenAPI or Schemas is given.
type EventTypeImportInput struct {
	OpenAPI    json.RawMessage            `json:"openapi,omitzero"` // an OpenAPI 3.1 document with webhooks
	Schemas    map[string]json.RawMessage `json:"schemas,omitzero"` // by event types
	DryRun     bool                       `json:"dry_run,omitzero"`
	ReplaceAll bool                       `json:"replace_all,omitzero"` // archive the types that are not in it
}

// EventTypeImport is the answer to an import.
type EventTypeImport struct {
	DryRun   bool                `json:"dry_run"`
	Types    []ImportedEventType `json:"types"`
	Warnings []FieldError        `json:"warnings"` // what was left out
}

// ImportedEventType is what an import has done to an event type, or would do.
type ImportedEventType struct {
	Name    string         `json:"name"`
	Change  string         `json:"change"`  // "created", "updated", "unchanged" or "archived"
	Version *int           `json:"version"` // the newest one; nil if it has none
	Changes []SchemaChange `json:"changes"` // of a new version
}

// Import adds event types to the catalogue, or changes them: all or none. It needs an operator's key.
func (e EventTypes) Import(ctx context.Context, in EventTypeImportInput, o ...Option) (EventTypeImport, error) {
	return send[EventTypeImport](ctx, e.at("import"), http.MethodPost, in, o...)
}

// Export returns an OpenAPI 3.1 document with a webhook for each event type that is not archived.
func (e EventTypes) Export(ctx context.Context) (json.RawMessage, error) {
	a, err := e.c.Do(ctx, Request{Method: http.MethodGet, Path: []string{"event-types-export"}})
	return a.Body, err
}
