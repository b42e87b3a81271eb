package eventtypes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/catalogue"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// errDryRun rolls back what was only tried.
var errDryRun = errors.New("dry run")

// ImportEventTypes adds types to the catalogue in one transaction, or only says what that would do. Known types get the description, group and
// state that the document says, a new version if its schema is another than the newest, and keep the rest. CodeInvalid: a type has no room for that;
// CodeQuota: the catalogue would have too many types.
func (s *EventTypes) ImportEventTypes(ctx context.Context, by webhook.Actor, in webhook.TypeImport) (changes []webhook.ImportedChange, err error) {
	defer s.core.ChangedHere(postgres.Change{Kind: postgres.ChangeEventType})
	err = s.core.AsOperator().InTx(ctx, "import event types", func(ctx context.Context, tx pgx.Tx) error {
		if err := lockAll(ctx, tx); err != nil {
			return err
		}
		all, err := readImported(ctx, tx, in.Types)
		if err != nil {
			return err
		}
		if err := decideAll(all); err != nil {
			return err
		}
		if err := writeImported(ctx, tx, all); err != nil {
			return err
		}
		names := make([]string, len(all))
		changes = nil // of a try before
		for i := range all {
			names[i], changes = all[i].in.Name, append(changes, all[i].change)
		}
		if in.ReplaceAll {
			archived, err := archiveOthers(ctx, tx, names)
			if err != nil {
				return err
			}
			changes = append(changes, archived...)
		}
		if in.DryRun {
			return errDryRun
		}
		return note(ctx, tx, by, audit.EventTypeImport, "event_types", counts(changes))
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return nil, err
	}
	return changes, nil
}

const maxImportErrors = 50

// importing is a type of an import, and what is stored of it.
type importing struct {
	in       *webhook.ImportedType
	before   webhook.EventType // with its newest version only; without a Revision if it is new
	versions int               // that are stored
	size     int               // of all their schemas and examples

	after  webhook.EventType         // what is to be stored, without versions
	adds   *webhook.EventTypeVersion // what is to be stored of those; nil for none
	change webhook.ImportedChange
}

// readImported reads what is stored of the types of an import, and locks them.
func readImported(ctx context.Context, tx pgx.Tx, types []webhook.ImportedType) ([]importing, error) {
	all, at, names := make([]importing, len(types)), make(map[string]int, len(types)), make([]string, len(types))
	for i := range types {
		all[i].in, all[i].before = &types[i], webhook.EventType{Name: types[i].Name}
		names[i], at[types[i].Name] = types[i].Name, i
	}
	rows, err := tx.Query(ctx, `
		select `+columns+`, v.version, v.schema, coalesce(v.examples, '[]'), coalesce(o.versions, 0), coalesce(o.size, 0)
		from event_types t left join lateral (
			select version, schema, examples from event_type_versions where type = t.name order by version desc limit 1) v on true
		left join lateral (
			select count(*) as versions, sum(coalesce(octet_length(schema::text), 0) + octet_length(examples::text) - 2) as size
			from event_type_versions where type = t.name) o on true
		where t.name = any($1) for update of t`, names)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var versions, size int
		t, err := scanNewest(rows, &versions, &size)
		if err != nil {
			return nil, err
		}
		one := &all[at[t.Name]]
		one.before, one.versions, one.size = t, versions, size
	}
	return all, rows.Err()
}

// decideAll decides what becomes of each type. CodeInvalid names those that have no room for it.
func decideAll(all []importing) error {
	var full []webhook.FieldError
	for i := range all {
		err := all[i].decide()
		if refused, ok := errors.AsType[*webhook.Error](err); ok && len(refused.Fields) > 0 {
			full = append(full, refused.Fields...)
		} else if err != nil {
			return err
		}
	}
	if len(full) > 0 {
		return &webhook.Error{Code: webhook.CodeInvalid, Message: "the request is not valid", Fields: full[:min(len(full), maxImportErrors)]}
	}
	return nil
}

// decide finds out what becomes of the type.
func (i *importing) decide() (err error) {
	in, newest := i.in, i.before.Version(0)
	i.after = i.before
	if in.Description != "" {
		i.after.Description = in.Description
	}
	if in.Group != "" {
		i.after.Group = in.Group
	}
	if in.Deprecated != nil {
		if i.after.State = webhook.EventTypeActive; *in.Deprecated {
			i.after.State = webhook.EventTypeDeprecated
		}
	}
	if i.adds, err = i.addedVersion(newest); err != nil {
		return err
	}
	i.change = webhook.ImportedChange{Name: in.Name, Change: webhook.ImportUpdated}
	if newest != nil {
		i.change.Version, i.change.Schema = newest.Version, newest.Schema
	}
	if i.adds != nil {
		if newest != nil && newest.Version != i.adds.Version {
			i.change.Before = newest
		}
		i.change.Version, i.change.Schema = i.adds.Version, i.adds.Schema
	}
	switch {
	case i.before.Revision == 0:
		i.change.Change = webhook.ImportCreated
	case i.adds == nil && len(changed(&i.before, &i.after)) == 0:
		i.change.Change = webhook.ImportUnchanged
	}
	return nil
}

// addedVersion is a new version if the schema is another than that of the newest; else the newest with other examples, if there are any. nil: neither.
func (i *importing) addedVersion(newest *webhook.EventTypeVersion) (*webhook.EventTypeVersion, error) {
	in, size := i.in, i.size
	added := webhook.EventTypeVersion{Version: 1, Schema: in.Schema, Examples: in.Examples}
	switch {
	case in.Schema == nil && len(in.Examples) == 0:
		return nil, nil //nolint:nilnil // as the comment says
	case newest != nil && (in.Schema == nil || catalogue.Same(newest.Schema, in.Schema)):
		if len(in.Examples) == 0 || slices.EqualFunc(in.Examples, newest.Examples, sameText) {
			return nil, nil //nolint:nilnil // as the comment says
		}
		added.Version, added.Schema = newest.Version, newest.Schema
		size -= sizeOf([]webhook.EventTypeVersion{*newest})
	case i.versions >= webhook.MaxEventTypeVersions:
		return nil, webhook.Invalid("types."+in.Name, "has "+strconv.Itoa(webhook.MaxEventTypeVersions)+" versions: remove one first")
	case newest != nil && newest.Version == webhook.MaxEventTypeVersion:
		return nil, webhook.Invalid("types."+in.Name, "has no number left for a new version")
	case newest != nil:
		added.Version = newest.Version + 1
	}
	if size+sizeOf([]webhook.EventTypeVersion{added}) > webhook.MaxEventTypeSize {
		return nil, webhook.Invalid("types."+in.Name, "would have more than 1 MiB of schemas and examples: remove a version first")
	}
	return &added, nil
}

// writeImported writes the types that are new or changed, at once.
func writeImported(ctx context.Context, tx pgx.Tx, all []importing) error {
	batch, created := &pgx.Batch{}, 0
	for i := range all {
		one := &all[i]
		switch one.change.Change {
		case webhook.ImportUnchanged:
			continue
		case webhook.ImportCreated:
			created++
		}
		batch.Queue(upsertType, typeArgs(&one.after)...)
		if one.adds != nil {
			queueVersion(batch, one.after.Name, one.adds)
		}
	}
	if created > 0 {
		if err := allow(ctx, tx, created); err != nil {
			return err
		}
	}
	return tx.SendBatch(ctx, batch).Close()
}

// archiveOthers archives the types that are not named.
func archiveOthers(ctx context.Context, tx pgx.Tx, names []string) (changes []webhook.ImportedChange, err error) {
	rows, err := tx.Query(ctx, `
		update event_types set state = $2, updated_at = now(), revision = greatest(revision + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
		where name <> all($1) and state <> $2
		returning name, coalesce((select max(version) from event_type_versions where type = name), 0)`, names, int16(webhook.EventTypeArchived))
	if err != nil {
		return nil, err
	}
	changes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c webhook.ImportedChange, err error) {
		c.Change = webhook.ImportArchived
		return c, row.Scan(&c.Name, &c.Version)
	})
	return changes, err
}

// counts is the detail of an import in the audit log.
func counts(changes []webhook.ImportedChange) []byte {
	n := map[string]int{}
	for _, c := range changes {
		n[c.Change]++
	}
	text, err := json.Marshal(n)
	if err != nil { // never: numbers
		return nil
	}
	return text
}

// AllEventTypes reads all types that are not archived, each with its newest version, by name, until they have so many bytes of schemas and examples
// together. CodeTooLarge: they have more.
func (s *EventTypes) AllEventTypes(ctx context.Context, most int) (types []webhook.EventType, err error) {
	err = s.core.OfTenant("").InSnapshot(ctx, "export event types", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select `+columns+`, v.version, v.schema, coalesce(v.examples, '[]')
			from event_types t left join lateral (
				select version, schema, examples from event_type_versions where type = t.name order by version desc limit 1) v on true
			where t.state <> $1 order by t.name limit $2`, int16(webhook.EventTypeArchived), webhook.MaxCatalogueTypes)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			t, err := scanNewest(rows)
			if err != nil {
				return err
			}
			if most -= sizeOf(t.Versions); most < 0 {
				return &webhook.Error{
					Code: webhook.CodeTooLarge, Message: "the schemas and examples of the catalogue are too large for one document: read the types one by one",
				}
			}
			types = append(types, t)
		}
		return rows.Err()
	})
	return types, err
}

// scanNewest reads a type with its newest version, if it has one, and further columns.
func scanNewest(row pgx.CollectableRow, further ...any) (webhook.EventType, error) {
	var (
		number           *int
		schema, examples []byte
	)
	t, err := scan(row, append([]any{&number, &schema, &examples}, further...)...)
	if err != nil || number == nil {
		return t, err
	}
	v := webhook.EventTypeVersion{Version: *number, Schema: bytes.Clone(schema)}
	v.Examples, err = examplesOf(examples)
	t.Versions = []webhook.EventTypeVersion{v}
	return t, err
}

func sizeOf(versions []webhook.EventTypeVersion) (n int) {
	for i := range versions {
		n += len(versions[i].Schema)
		for _, example := range versions[i].Examples {
			n += len(example)
		}
	}
	return n
}
