package eventtypes

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/catalogue"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// maxCachedSchemas bounds the texts of the schemas that are kept compiled, in bytes. What is compiled takes some thirty times as much, and up
// to four times that while it is used by several requests at a time.
const maxCachedSchemas = 1 << 20

// Config is what an EventTypes needs.
type Config struct {
	// KnownOnly refuses events of types that are not in the catalogue, or are archived.
	KnownOnly bool
}

// Checks checks events against the catalogue. What it needs of all types is in memory, and schemas are compiled once: an event whose type is
// not validated costs a look into a map. A change takes effect at once in the process that made it and within 2 s in the others.
type Checks struct {
	core      *postgres.Core
	knownOnly bool

	index   *cache.Value[map[string]entry]
	schemas *cache.Cache[schemaKey, *sharedSchema]
}

// sharedSchema is a compiled schema whose validations tenants share.
type sharedSchema struct {
	*catalogue.Schema

	places *fair.Semaphore // see fair.NewElastic: a tenant that is alone has all of them
}

func shared(s *catalogue.Schema) *sharedSchema {
	return &sharedSchema{s, fair.NewElastic(catalogue.MaxCheckers)}
}

// validate is Validate in a tenant's share. CodeUnavailable: it had no place in time, because others take long.
func (s *sharedSchema) validate(ctx context.Context, tenant string, payload []byte, patience time.Duration) ([]catalogue.Mismatch, error) {
	if !s.places.Acquire(ctx, tenant, 1, patience) {
		if ctx.Err() != nil {
			return nil, postgres.Translate("wait for the check of a payload", context.Cause(ctx))
		}
		return nil, &webhook.Error{
			Code: webhook.CodeUnavailable, Message: "too many payloads are being checked against this schema", RetryAfter: time.Second,
		}
	}
	defer s.places.Release(tenant, 1)
	found, err := s.Validate(ctx, payload)
	if err != nil {
		return nil, postgres.Translate("check a payload", err)
	}
	return found, nil
}

// checkPatience is how long a payload waits for its turn to be checked. The most expensive one takes a small part of it.
const checkPatience = 5 * time.Second

// entry is what a check needs of a type.
type entry struct {
	archived   bool
	validation webhook.Validation
	revision   int64
	pointer    string // to the ordering key
	versions   []int16
	schemas    []int16 // the versions that have one
}

// schemaKey names a schema as it was at a revision, so that a change of a type drops none of the others.
type schemaKey struct {
	name     string
	version  int
	revision int64
}

func newChecks(s *postgres.Core, c Config) *Checks {
	checks := &Checks{core: s, knownOnly: c.KnownOnly}
	checks.index = postgres.NewCachedValue(s, checks.readIndex)
	checks.schemas = postgres.NewCache(s, maxCachedSchemas, checks.readSchema)
	s.Subscribe(checks)
	return checks
}

// Close ends the reads that are under way.
func (s *Checks) Close() {
	s.index.Close()
	s.schemas.Close()
}

// Changed implements postgres.ChangeHandler.
func (s *Checks) Changed(of postgres.Change) {
	switch of.Kind {
	case postgres.ChangeEventType:
		s.index.Forget()
	case postgres.ChangeEndpoint, postgres.ChangeKey, postgres.ChangeTenant, postgres.ChangeMoved:
	}
}

// ForgetAll implements postgres.ChangeHandler. Compiled schemas stay: their revision says which they are.
func (s *Checks) ForgetAll() { s.index.Forget() }

// Check says what the catalogue has to say of a tenant's event. An error means that it could not be read. An event whose type is not checked takes no lock.
func (s *Checks) Check(ctx context.Context, tenantID string, e *webhook.NewEvent) (webhook.TypeVerdict, error) {
	all, err := s.index.Get(ctx)
	if err != nil {
		return webhook.TypeVerdict{}, err
	}
	t, known := all[e.Type]
	verdict, err := s.check(ctx, tenantID, e, t, known)
	verdict.OrderingPointer = t.pointer
	return verdict, err
}

func (s *Checks) check(ctx context.Context, tenantID string, e *webhook.NewEvent, t entry, known bool) (webhook.TypeVerdict, error) {
	switch {
	case s.knownOnly && !known:
		return refuse("type", "is not in the catalogue of event types"), nil
	case s.knownOnly && t.archived:
		return refuse("type", "is archived in the catalogue of event types"), nil
	case !known && e.Version != 0:
		return refuse("version", "is of a type that is not in the catalogue of event types"), nil
	case e.Version != 0 && !slices.Contains(t.versions, int16(e.Version)): //nolint:gosec // the API bounds it
		return refuse("version", "does not exist: the event type has no version "+strconv.Itoa(e.Version)), nil
	case t.validation == webhook.ValidationOff || len(t.versions) == 0:
		return webhook.TypeVerdict{}, nil
	}
	version := int16(e.Version) //nolint:gosec // the API bounds it
	if version == 0 {
		version = t.versions[len(t.versions)-1]
	}
	if !slices.Contains(t.schemas, version) {
		return webhook.TypeVerdict{}, nil
	}
	schema, err := s.schemas.Get(ctx, schemaKey{e.Type, int(version), t.revision})
	if err != nil || schema == nil {
		return webhook.TypeVerdict{}, err
	}
	found, err := schema.validate(ctx, tenantID, e.Payload, checkPatience)
	return verdictOf(found, t.validation), err
}

func refuse(field, message string) webhook.TypeVerdict {
	return webhook.TypeVerdict{Refused: []webhook.FieldError{{Field: field, Message: message}}}
}

// verdictOf is what the mismatches of a payload mean for its event.
func verdictOf(found []catalogue.Mismatch, v webhook.Validation) webhook.TypeVerdict {
	if len(found) == 0 {
		return webhook.TypeVerdict{}
	}
	if v == webhook.ValidationWarn {
		return webhook.TypeVerdict{SchemaError: found[0].String()}
	}
	verdict := webhook.TypeVerdict{Payload: true}
	for _, m := range found {
		verdict.Refused = append(verdict.Refused, webhook.FieldError{Field: "payload", Pointer: m.Pointer, Message: m.Message})
	}
	return verdict
}

// NewestSchemas returns the texts of the schemas that the newest versions of types have; none if one of the types has none, or if they have more
// than most bytes together.
func (s *Checks) NewestSchemas(ctx context.Context, types []string, most int) (texts [][]byte, err error) {
	all, err := s.index.Get(ctx)
	if err != nil {
		return nil, err
	}
	versions := make([]int16, len(types))
	for i, name := range types {
		t := all[name]
		if len(t.versions) == 0 || !slices.Contains(t.schemas, t.versions[len(t.versions)-1]) {
			return nil, nil
		}
		versions[i] = t.versions[len(t.versions)-1]
	}
	err = s.core.OfTenant("").WithConn(ctx, "read the schemas of event types", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `
			select schema from (
				select v.schema, sum(octet_length(v.schema::text)) over () as size from unnest($1::text[], $2::smallint[]) as w (type, version)
					join event_type_versions v on v.type = w.type and v.version = w.version
				where v.schema is not null) found
			where size <= $3`, types, versions, most)
		if err != nil {
			return err
		}
		texts, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if len(texts) < len(types) { // one was changed meanwhile
			texts = nil
		}
		return err
	})
	return texts, err
}

// readIndex reads all types, webhook.MaxCatalogueTypes at most, without their texts.
func (s *Checks) readIndex(ctx context.Context) (map[string]entry, error) {
	all := map[string]entry{}
	err := s.core.OfTenant("").WithConn(ctx, "read the catalogue of event types", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `
			select t.name, t.state, t.validation, t.revision, t.ordering_key, array_remove(array_agg(v.version order by v.version), null),
				coalesce(array_agg(v.version) filter (where v.schema is not null), '{}')
			from event_types t left join event_type_versions v on v.type = t.name group by t.name`)
		if err != nil {
			return err
		}
		var (
			name              string
			state, validation int16
			e                 entry
		)
		_, err = pgx.ForEachRow(rows, []any{&name, &state, &validation, &e.revision, &e.pointer, &e.versions, &e.schemas}, func() error {
			e.archived = state == int16(webhook.EventTypeArchived)
			e.validation = webhook.Validation(validation) //nolint:gosec // written by us
			all[name] = e
			e = entry{}
			return nil
		})
		return err
	})
	return all, err
}

// readSchema reads and compiles a schema. It is nil if there is none any more, or if it does not compile: an older release may have allowed it.
func (s *Checks) readSchema(ctx context.Context, key schemaKey) (filled cache.Filled[*sharedSchema], err error) {
	var text []byte
	err = s.core.OfTenant("").WithConn(ctx, "read the schema of "+key.name, func(ctx context.Context, conn postgres.Querier) error {
		err := conn.QueryRow(ctx, `select schema from event_type_versions where type = $1 and version = $2`, key.name, key.version).Scan(&text)
		if postgres.IsNoRows(err) {
			return nil
		}
		return err
	})
	if err != nil || text == nil {
		return filled, err
	}
	filled.Weight = len(text)
	compiled, err := catalogue.Compile(text)
	if err == nil {
		filled.Value = shared(compiled)
	} else {
		s.core.Log.WarnContext(ctx, "a schema of the catalogue does not compile: payloads of its event type are not checked",
			slog.String("event_type", key.name), slog.Int("version", key.version), slog.Any("error", err))
	}
	return filled, nil
}
