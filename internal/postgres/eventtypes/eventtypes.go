// Package eventtypes stores the catalogue of event types, and checks events against it from memory.
package eventtypes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

const noun = "event type"

// EventTypes stores the catalogue.
type EventTypes struct {
	*Checks

	core *postgres.Core
}

// New makes an EventTypes, which Close ends.
func New(s *postgres.Core, c Config) *EventTypes {
	return &EventTypes{Checks: newChecks(s, c), core: s}
}

const columns = `t.name, t.description, t.type_group, t.state, t.replaced_by, t.validation, t.ordering_key, t.revision, t.created_at, t.updated_at`

func scan(row pgx.CollectableRow, further ...any) (webhook.EventType, error) {
	var (
		t                 webhook.EventType
		state, validation int16
	)
	err := row.Scan(append([]any{
		&t.Name, &t.Description, &t.Group, &state, &t.ReplacedBy, &validation, &t.OrderingKey, &t.Revision, &t.CreatedAt, &t.UpdatedAt,
	}, further...)...)
	t.State, t.Validation = webhook.EventTypeState(state), webhook.Validation(validation) //nolint:gosec // written by us
	t.CreatedAt, t.UpdatedAt = t.CreatedAt.UTC(), t.UpdatedAt.UTC()
	return t, err
}

// EventType reads a type with its versions. CodeNotFound: it is not in the catalogue.
func (s *EventTypes) EventType(ctx context.Context, name string) (t webhook.EventType, err error) {
	err = s.core.OfTenant("").InSnapshot(ctx, "read event type "+name, func(ctx context.Context, tx pgx.Tx) error {
		if t, err = read(ctx, tx, name, ""); err == nil && t.Revision == 0 {
			return webhook.NotFound(noun)
		}
		return err
	})
	return t, err
}

// read reads a type; one without a Revision if there is none.
func read(ctx context.Context, tx pgx.Tx, name, lock string) (webhook.EventType, error) {
	rows, err := tx.Query(ctx, `select `+columns+` from event_types t where t.name = $1`+lock, name)
	if err != nil {
		return webhook.EventType{}, err
	}
	t, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (webhook.EventType, error) { return scan(row) })
	if postgres.IsNoRows(err) {
		return webhook.EventType{Name: name}, nil
	}
	if err != nil {
		return webhook.EventType{}, err
	}
	rows, err = tx.Query(ctx, `select version, schema, examples from event_type_versions where type = $1 order by version`, name)
	if err != nil {
		return webhook.EventType{}, err
	}
	t.Versions, err = pgx.CollectRows(rows, scanVersion)
	return t, err
}

func scanVersion(row pgx.CollectableRow) (v webhook.EventTypeVersion, err error) {
	var schema, examples []byte
	if err := row.Scan(&v.Version, &schema, &examples); err != nil {
		return v, err
	}
	v.Schema = bytes.Clone(schema)
	v.Examples, err = examplesOf(examples)
	return v, err
}

func examplesOf(text []byte) (examples [][]byte, err error) {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read examples: %w", err)
	}
	for _, example := range list {
		examples = append(examples, bytes.Clone(example))
	}
	return examples, nil
}

// ListEventTypes lists types in the byte order of their names, without schemas and examples. after is the last name of the previous page, ""
// for the first one.
func (s *EventTypes) ListEventTypes(ctx context.Context, f webhook.EventTypeFilter, limit int, after string) ([]webhook.EventType, error) {
	state := -1
	if f.State != nil {
		state = int(*f.State)
	}
	return postgres.ReadList(ctx, s.core, s.core.OfTenant(""), "list event types", func(row pgx.CollectableRow) (webhook.EventType, error) {
		var versions []int16
		t, err := scan(row, &versions)
		for _, number := range versions {
			t.Versions = append(t.Versions, webhook.EventTypeVersion{Version: int(number)})
		}
		return t, err
	}, `
		select `+columns+`, array(select v.version from event_type_versions v where v.type = t.name order by v.version)
		from event_types t
		where t.name > $1 and t.name ^@ $2 and ($3 = '' or t.type_group = $3) and ($4 = -1 or t.state = $4)
		order by t.name limit $5`, after, f.Prefix, f.Group, state, limit)
}

// PutEventType creates the type or replaces it. before is what was stored; it has no Revision if the type is new. CodeChanged: the stored
// type is another than the caller has seen; CodeQuota: the catalogue is full.
func (s *EventTypes) PutEventType(ctx context.Context, by webhook.Actor, t webhook.EventType, m webhook.RevisionMatch) (
	stored, before webhook.EventType, err error,
) {
	return s.change(ctx, by, t.Name, m, audit.EventTypeReplace, func(old *webhook.EventType) (webhook.EventType, error) {
		return withTextsOf(old, t), nil
	})
}

// UpdateEventType reads the type under a lock, lets change edit it and writes it back. It returns an error of change unaltered, and then writes
// nothing; a change that changes nothing writes nothing either. CodeNotFound: it is not in the catalogue; CodeChanged: see PutEventType.
func (s *EventTypes) UpdateEventType(ctx context.Context, by webhook.Actor, name string, m webhook.RevisionMatch, change func(*webhook.EventType) error) (
	stored, before webhook.EventType, err error,
) {
	var refused error
	stored, before, err = s.change(ctx, by, name, m, audit.EventTypeUpdate, func(old *webhook.EventType) (webhook.EventType, error) {
		t := *old
		t.Versions = append([]webhook.EventTypeVersion(nil), old.Versions...)
		refused = change(&t)
		t.Name = name
		t = withTextsOf(old, t)
		if refused == nil && len(changed(old, &t)) == 0 {
			return t, postgres.ErrUnchanged
		}
		return t, refused
	})
	switch {
	case refused != nil:
		return webhook.EventType{}, before, refused
	case errors.Is(err, postgres.ErrUnchanged):
		return before, before, nil
	}
	return stored, before, err
}

// DeleteEventType removes a type from the catalogue. Its events stay. CodeNotFound, CodeChanged: see UpdateEventType.
func (s *EventTypes) DeleteEventType(ctx context.Context, by webhook.Actor, name string, m webhook.RevisionMatch) error {
	defer s.core.ChangedHere(postgres.Change{Kind: postgres.ChangeEventType, ID: name})
	return s.core.AsOperator().InTx(ctx, "delete event type "+name, func(ctx context.Context, tx pgx.Tx) error {
		old, err := lockType(ctx, tx, name)
		switch {
		case err != nil:
			return err
		case old.Revision == 0:
			return webhook.NotFound(noun)
		}
		if err := m.Check(old.Revision, noun); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `delete from event_types where name = $1`, name); err != nil {
			return err
		}
		return note(ctx, tx, by, audit.EventTypeDelete, name, nil)
	})
}

// change writes what edit makes of the stored type.
func (s *EventTypes) change(ctx context.Context, by webhook.Actor, name string, m webhook.RevisionMatch, action string,
	edit func(*webhook.EventType) (webhook.EventType, error),
) (stored, before webhook.EventType, err error) {
	defer s.core.ChangedHere(postgres.Change{Kind: postgres.ChangeEventType, ID: name})
	err = s.core.AsOperator().InTx(ctx, "change event type "+name, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		if before, err = lockType(ctx, tx, name); err != nil {
			return err
		}
		if action == audit.EventTypeUpdate && before.Revision == 0 {
			return webhook.NotFound(noun)
		}
		if err := m.Check(before.Revision, noun); err != nil {
			return err
		}
		t, err := edit(&before)
		if err != nil {
			return err
		}
		if stored, err = write(ctx, tx, &t, &before); err != nil {
			return err
		}
		if before.Revision == 0 {
			return note(ctx, tx, by, audit.EventTypeCreate, name, nil)
		}
		return note(ctx, tx, by, action, name, postgres.JSONBytes(map[string][]string{"changed": changed(&before, &stored)}))
	})
	return stored, before, err
}

// lockType reads a type that is about to be changed.
func lockType(ctx context.Context, tx pgx.Tx, name string) (webhook.EventType, error) {
	if err := lockAll(ctx, tx); err != nil {
		return webhook.EventType{}, err
	}
	return read(ctx, tx, name, ` for update`)
}

// lockAll makes changes of the catalogue one after another: they are rare, and the number of types is bounded.
func lockAll(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('everpost/event-types/' || current_schema(), 0))`)
	return err
}

// upsertType stores a type in place of another. Its revision is the time in microseconds, or one more than before if that is larger. A type that is deleted
// and created anew has a larger one too, unless the clock was set back in between. typeArgs are its arguments.
const upsertType = `
	insert into event_types as t (name, description, type_group, state, replaced_by, validation, ordering_key, revision)
	values ($1, $2, $3, $4, $5, $6, $7, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
	on conflict (name) do update set description = excluded.description, type_group = excluded.type_group, state = excluded.state,
		replaced_by = excluded.replaced_by, validation = excluded.validation, ordering_key = excluded.ordering_key,
		revision = greatest(t.revision + 1, excluded.revision), updated_at = now()`

func typeArgs(t *webhook.EventType) []any {
	return []any{t.Name, t.Description, t.Group, int16(t.State), t.ReplacedBy, int16(t.Validation), t.OrderingKey}
}

// write stores a type in place of another.
func write(ctx context.Context, tx pgx.Tx, t, before *webhook.EventType) (webhook.EventType, error) {
	if before.Revision == 0 {
		if err := allow(ctx, tx, 1); err != nil {
			return webhook.EventType{}, err
		}
	}
	rows, err := tx.Query(ctx, upsertType+` returning `+columns, typeArgs(t)...)
	if err != nil {
		return webhook.EventType{}, err
	}
	stored, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (webhook.EventType, error) { return scan(row) })
	if err != nil {
		return webhook.EventType{}, err
	}
	if stored.Versions = t.Versions; !sameVersions(before, t) {
		err = writeVersions(ctx, tx, t, before)
	}
	return stored, err
}

// allow refuses so many further types if the catalogue has no room for them.
func allow(ctx context.Context, tx pgx.Tx, further int) error {
	var full bool
	if err := tx.QueryRow(ctx, `select count(*) + $1 > $2 from event_types`, further, webhook.MaxCatalogueTypes).Scan(&full); err != nil {
		return err
	}
	if full {
		return &webhook.Error{
			Code: webhook.CodeQuota, Message: "the catalogue has " + strconv.Itoa(webhook.MaxCatalogueTypes) + " event types: delete some that are archived",
		}
	}
	return nil
}

// writeVersions writes the versions that are other than before, and removes those that are gone.
func writeVersions(ctx context.Context, tx pgx.Tx, t, before *webhook.EventType) error {
	batch, numbers := &pgx.Batch{}, make([]int16, len(t.Versions))
	for i := range t.Versions {
		numbers[i] = int16(t.Versions[i].Version) //nolint:gosec // the API bounds it
	}
	batch.Queue(`delete from event_type_versions where type = $1 and version <> all($2)`, t.Name, numbers)
	for i := range t.Versions {
		if v := &t.Versions[i]; !reflect.DeepEqual(before.Version(v.Version), v) {
			queueVersion(batch, t.Name, v)
		}
	}
	return tx.SendBatch(ctx, batch).Close()
}

// queueVersion writes a version, in the place of one with the same number.
func queueVersion(batch *pgx.Batch, name string, v *webhook.EventTypeVersion) {
	var schema *string
	if v.Schema != nil {
		schema = new(string(v.Schema))
	}
	batch.Queue(`
		insert into event_type_versions (type, version, schema, examples) values ($1, $2, $3::text::json, $4::text::json)
		on conflict (type, version) do update set schema = excluded.schema, examples = excluded.examples`,
		name, v.Version, schema, "["+string(bytes.Join(v.Examples, []byte(",")))+"]")
}

// withTextsOf is t with the schemas and examples of another as they are written there, where they are the same but for white space: a client that reads all
// versions and changes one may write the others anew.
func withTextsOf(of *webhook.EventType, t webhook.EventType) webhook.EventType {
	t.Versions = append([]webhook.EventTypeVersion(nil), t.Versions...)
	for i := range t.Versions {
		v := &t.Versions[i]
		old := of.Version(v.Version)
		if old == nil {
			continue
		}
		if sameText(v.Schema, old.Schema) {
			v.Schema = old.Schema
		}
		if slices.EqualFunc(v.Examples, old.Examples, sameText) {
			v.Examples = old.Examples
		}
	}
	return t
}

// sameText reports whether two JSON texts are the same but for white space; nil is none.
func sameText(a, b []byte) bool {
	if bytes.Equal(a, b) || a == nil || b == nil {
		return bytes.Equal(a, b) && (a == nil) == (b == nil)
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// note writes the audit log of a change and tells the processes.
func note(ctx context.Context, tx pgx.Tx, by webhook.Actor, action, subject string, detail []byte) error {
	if err := postgres.Notify(ctx, tx, postgres.Change{Kind: postgres.ChangeEventType, ID: subject}); err != nil {
		return err
	}
	return audit.Write(ctx, tx, by, "", action, subject, detail)
}

// changed names the fields that differ.
func changed(before, after *webhook.EventType) []string {
	b, a := *before, *after
	b.Revision, b.CreatedAt, b.UpdatedAt = a.Revision, a.CreatedAt, a.UpdatedAt
	same := sameVersions(before, after)
	b.Versions, a.Versions = nil, nil
	names := audit.Changed(&b, &a)
	if !same {
		names = append(names, "versions")
	}
	return names
}

func sameVersions(a, b *webhook.EventType) bool {
	if len(a.Versions) == 0 && len(b.Versions) == 0 {
		return true
	}
	return reflect.DeepEqual(a.Versions, b.Versions)
}
