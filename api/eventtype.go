package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/catalogue"
	"github.com/everpost/everpost/internal/webhook"
)

// EventTypes reads the catalogue of event types.
type EventTypes interface {
	// EventType returns CodeNotFound if the type is not in the catalogue.
	EventType(ctx context.Context, name string) (webhook.EventType, error)
	// ListEventTypes lists types by name; after is the last name of the previous page, "" for the first page. Their versions have numbers only.
	ListEventTypes(ctx context.Context, f webhook.EventTypeFilter, limit int, after string) ([]webhook.EventType, error)
	// NewestSchemas returns the schemas that the newest versions of types have; none if one of the types has none, or if they have more than most bytes
	// together.
	NewestSchemas(ctx context.Context, types []string, most int) ([][]byte, error)
}

// EventTypeChanges changes the catalogue. CodeChanged: the stored type is another than the caller has seen. before is what was stored.
type EventTypeChanges interface {
	// PutEventType creates the type or replaces it. CodeQuota: the catalogue is full.
	PutEventType(ctx context.Context, by webhook.Actor, t webhook.EventType, m webhook.RevisionMatch) (stored, before webhook.EventType, err error)
	// UpdateEventType reads the type under a lock, calls change and stores the result. It returns an error of change unchanged.
	UpdateEventType(ctx context.Context, by webhook.Actor, name string, m webhook.RevisionMatch, change func(*webhook.EventType) error) (
		stored, before webhook.EventType, err error)
	DeleteEventType(ctx context.Context, by webhook.Actor, name string, m webhook.RevisionMatch) error
}

func showEventType(t *webhook.EventType) client.EventType {
	view := client.EventType{
		Name: t.Name, Description: t.Description, Group: nullable(t.Group), State: t.State.String(), ReplacedBy: nullable(t.ReplacedBy),
		Validation: t.Validation.String(), OrderingKey: nullable(t.OrderingKey), Versions: make([]client.EventTypeVersion, len(t.Versions)),
		CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
	}
	for i := range t.Versions {
		v := &t.Versions[i]
		view.Versions[i] = client.EventTypeVersion{Version: v.Version, Schema: v.Schema, Examples: make([]json.RawMessage, len(v.Examples))}
		for k, example := range v.Examples {
			view.Versions[i].Examples[k] = example
		}
	}
	return view
}

func showListedEventType(t webhook.EventType) client.ListedEventType {
	view := client.ListedEventType{
		Name: t.Name, Description: t.Description, Group: nullable(t.Group), State: t.State.String(), ReplacedBy: nullable(t.ReplacedBy),
		Validation: t.Validation.String(), OrderingKey: nullable(t.OrderingKey), Versions: make([]int, len(t.Versions)),
		CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
	}
	for i := range t.Versions {
		view.Versions[i] = t.Versions[i].Version
	}
	return view
}

// showChanges shows what new and changed schemas take away and newly require: a new version against the one before it, a changed one against
// what it was.
func showChanges(stored, before *webhook.EventType) []client.SchemaChange {
	changes := []client.SchemaChange{}
	for i := range stored.Versions {
		v := &stored.Versions[i]
		against := before.Version(v.Version)
		if against == nil && i > 0 {
			against = &stored.Versions[i-1]
		}
		if against == nil || v.Version == against.Version && slices.Equal(v.Schema, against.Schema) {
			continue
		}
		if found := catalogue.Compare(against.Schema, v.Schema); !found.IsZero() {
			changes = append(changes, showChange(v.Version, against.Version, found))
		}
	}
	return changes
}

func showChange(version, against int, c catalogue.Change) client.SchemaChange {
	list := func(pointers []string) []string {
		return append([]string{}, pointers[:min(len(pointers), maxShownChanges)]...)
	}
	return client.SchemaChange{Version: version, Against: against, Removed: list(c.Removed), Required: list(c.Required), Retyped: list(c.Retyped)}
}

// maxShownChanges bounds each list of a change.
const maxShownChanges = 100

// eventTypeHandler makes, shows, changes and deletes event types of the catalogue.
type eventTypeHandler struct {
	types   EventTypes
	changes EventTypeChanges
}

// typeName is the name in the path. What cannot be a name is treated as one that does not exist.
func typeName(c call) (string, error) {
	name := c.Param("name")
	if c.Request().URL.RawPath != "" { // then the router has matched the escaped path
		plain, err := url.PathUnescape(name)
		if err != nil {
			return "", webhook.NotFound(c.route.noun)
		}
		name = plain
	}
	if !webhook.ValidType(name) || webhook.ReservedType(name) {
		return name, webhook.NotFound(c.route.noun)
	}
	return name, nil
}

func (h *eventTypeHandler) put(c call) error {
	name, err := typeName(c)
	switch {
	case webhook.ReservedType(name):
		return webhook.Invalid("name", reservedTypes)
	case err != nil:
		return webhook.Invalid("name", notAType)
	}
	match, err := c.ifMatchOrNone()
	if err != nil {
		return err
	}
	input, err := readEventTypeInput(c, name)
	if err != nil {
		return err
	}
	t := webhook.EventType{Name: name}
	input.apply(&t)
	stored, before, err := h.changes.PutEventType(c.Request().Context(), c.actor(), t, match)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if before.Revision == 0 {
		status = http.StatusCreated
	}
	return h.answer(c, status, &stored, &before)
}

// update is PATCH: an absent field is unchanged, null sets the default.
func (h *eventTypeHandler) update(c call) error {
	name, err := typeName(c)
	if err != nil {
		return err
	}
	match, err := c.ifMatch()
	if err != nil {
		return err
	}
	input, err := readEventTypeInput(c, name)
	if err != nil {
		return err
	}
	stored, before, err := h.changes.UpdateEventType(c.Request().Context(), c.actor(), name, match, func(t *webhook.EventType) error {
		input.apply(t)
		return nil
	})
	if err != nil {
		return err
	}
	return h.answer(c, http.StatusOK, &stored, &before)
}

// answer writes the answer to a change.
func (h *eventTypeHandler) answer(c call, status int, stored, before *webhook.EventType) error {
	c.setETag(stored.Revision)
	return c.json(status, client.ChangedEventType{EventType: showEventType(stored), Changes: showChanges(stored, before)})
}

func (h *eventTypeHandler) get(c call) error {
	name, err := typeName(c)
	if err != nil {
		return err
	}
	if err := c.answer.reserve(webhook.MaxEventTypeSize + maxPageBytes); err != nil {
		return err
	}
	t, err := h.types.EventType(c.Request().Context(), name)
	if err != nil {
		return err
	}
	c.setETag(t.Revision)
	return c.json(http.StatusOK, showEventType(&t))
}

func (h *eventTypeHandler) list(c call) error {
	q := c.query("event types", "group", "state", "prefix")
	f := webhook.EventTypeFilter{
		Group:  q.text("group", func(v string) bool { return printable(v, webhook.MaxEventTypeGroup) }, notPrintable(webhook.MaxEventTypeGroup)),
		Prefix: q.text("prefix", webhook.ValidType, "must be the beginning of an event type"),
	}
	q.text("state", func(v string) bool {
		for _, state := range webhook.EventTypeStates() {
			if state.String() == v {
				f.State = &state
			}
		}
		return f.State != nil && len(q.values["state"]) == 1
	}, notATypeState)
	if err := q.problem(); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.EventType, error) {
		return h.types.ListEventTypes(c.Request().Context(), f, limit, after)
	}
	return list(c, q, fetch, func(t webhook.EventType) string { return t.Name }, showListedEventType)
}

func (h *eventTypeHandler) delete(c call) error {
	name, err := typeName(c)
	if err != nil {
		return err
	}
	match, err := c.ifMatch()
	if err != nil {
		return err
	}
	if err := h.changes.DeleteEventType(c.Request().Context(), c.actor(), name, match); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
