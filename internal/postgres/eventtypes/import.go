package eventtypes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
		var full []webhook.FieldError
		names := make([]string, 0, len(in.Types))
		for i := range in.Types {
			change, err := importType(ctx, tx, &in.Types[i])
			if refused, ok := errors.AsType[*webhook.Error](err); ok && len(refused.Fields) > 0 {
				full = append(full, refused.Fields...)
			} else if err != nil {
				return err
			}
			changes, names = append(changes, change), append(names, change.Name)
		}
		if len(full) > 0 {
			return &webhook.Error{Code: webhook.CodeInvalid, Message: "the request is not valid", Fields: full[:min(len(full), maxImportErrors)]}
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

// importType writes one type of an import.
func importType(ctx context.Context, tx pgx.Tx, in *webhook.ImportedType) (webhook.ImportedChange, error) {
	before, err := read(ctx, tx, in.Name, ` for update`)
	if err != nil {
		return webhook.ImportedChange{}, err
	}
	t := before
	if in.Description != "" {
		t.Description = in.Description
	}
	if in.Group != "" {
		t.Group = in.Group
	}
	if in.Deprecated != nil {
		if t.State = webhook.EventTypeActive; *in.Deprecated {
			t.State = webhook.EventTypeDeprecated
		}
	}
	change := webhook.ImportedChange{Name: in.Name, Change: webhook.ImportUpdated}
	if err := addVersion(&t, in); err != nil {
		return change, err
	}
	if sizeOf(t.Versions) > webhook.MaxEventTypeSize && !sameVersions(&before, &t) {
		return change, webhook.Invalid("types."+in.Name, "would have more than 1 MiB of schemas and examples: remove a version first")
	}
	if newest := t.Version(0); newest != nil {
		change.Version, change.Schema = newest.Version, newest.Schema
		if old := before.Version(0); old != nil && old.Version != newest.Version {
			change.Before = old
		}
	}
	switch {
	case before.Revision == 0:
		change.Change = webhook.ImportCreated
	case len(changed(&before, &t)) == 0:
		change.Change = webhook.ImportUnchanged
		return change, nil
	}
	_, err = write(ctx, tx, &t, &before)
	return change, err
}

// addVersion adds a version if the schema is another than the newest; else it takes the examples, if there are any.
func addVersion(t *webhook.EventType, in *webhook.ImportedType) error {
	newest := t.Version(0)
	switch {
	case in.Schema == nil && len(in.Examples) == 0:
		return nil
	case newest != nil && (in.Schema == nil || catalogue.Same(newest.Schema, in.Schema)):
		if len(in.Examples) > 0 {
			t.Versions = append([]webhook.EventTypeVersion(nil), t.Versions...)
			t.Versions[len(t.Versions)-1].Examples = in.Examples
		}
		return nil
	case len(t.Versions) >= webhook.MaxEventTypeVersions:
		return webhook.Invalid("types."+in.Name, "has "+strconv.Itoa(webhook.MaxEventTypeVersions)+" versions: remove one first")
	case newest != nil && newest.Version == webhook.MaxEventTypeVersion:
		return webhook.Invalid("types."+in.Name, "has no number left for a new version")
	}
	number := 1
	if newest != nil {
		number = newest.Version + 1
	}
	t.Versions = append(append([]webhook.EventTypeVersion(nil), t.Versions...),
		webhook.EventTypeVersion{Version: number, Schema: in.Schema, Examples: in.Examples})
	return nil
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

// scanNewest reads a type with its newest version, if it has one.
func scanNewest(row pgx.CollectableRow) (webhook.EventType, error) {
	var (
		number           *int
		schema, examples []byte
	)
	t, err := scan(row, &number, &schema, &examples)
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
