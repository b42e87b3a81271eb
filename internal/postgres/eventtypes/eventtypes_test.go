package eventtypes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/eventtypes"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

const paid = `{"type":"object",  "properties":{"order":{"type":"integer"}},"required":["order"]}`

// setup is a catalogue on a schema of its own.
func setup(t *testing.T) (*eventtypes.EventTypes, *storetest.Stores, string) {
	t.Helper()
	s, address := storetest.SetupStore(t)
	return s.EventTypes, s, address
}

func orderPaid() webhook.EventType {
	return webhook.EventType{
		Name: "order.paid", Description: "Paid.\nIn full.", Group: "Orders", State: webhook.EventTypeDeprecated, ReplacedBy: "order.settled",
		Validation: webhook.ValidationEnforce, OrderingKey: "/order",
		Versions: []webhook.EventTypeVersion{
			{Version: 1},
			{Version: 4, Schema: []byte(paid), Examples: [][]byte{[]byte(`{"order": 1.0}`), []byte(`"\u0000"`)}},
		},
	}
}

func put(t *testing.T, types *eventtypes.EventTypes, e webhook.EventType) webhook.EventType {
	t.Helper()
	stored, _, err := types.PutEventType(t.Context(), storetest.TestActor(), e, webhook.MatchAny)
	require.NoError(t, err)
	return stored
}

func TestAnEventTypeIsStoredAsItIs(t *testing.T) {
	t.Parallel()
	types, s, _ := setup(t)
	stored, before, err := types.PutEventType(t.Context(), storetest.TestActor(), orderPaid(), webhook.MatchAny)
	require.NoError(t, err)
	require.Zero(t, before.Revision)
	read, err := types.EventType(t.Context(), "order.paid")
	require.NoError(t, err)
	require.Equal(t, stored, read)
	want := orderPaid()
	want.Revision, want.CreatedAt, want.UpdatedAt = read.Revision, read.CreatedAt, read.UpdatedAt
	require.Equal(t, want, read, "schemas and examples keep their bytes")

	replaced, before, err := types.PutEventType(t.Context(), storetest.TestActor(), webhook.EventType{Name: "order.paid"}, webhook.MatchAny)
	require.NoError(t, err)
	require.Equal(t, read, before)
	require.Greater(t, replaced.Revision, read.Revision)
	require.Empty(t, replaced.Versions)
	require.Equal(t, read.CreatedAt, replaced.CreatedAt)
	require.NoError(t, types.DeleteEventType(t.Context(), storetest.TestActor(), "order.paid", webhook.MatchAny))
	_, err = types.EventType(t.Context(), "order.paid")
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	storetest.RequireCode(t, webhook.CodeNotFound, types.DeleteEventType(t.Context(), storetest.TestActor(), "order.paid", webhook.MatchAny))
	require.Greater(t, put(t, types, orderPaid()).Revision, replaced.Revision, "no revision comes twice")
	require.Equal(t, []string{"event_type.create", "event_type.replace", "event_type.delete", "event_type.create"},
		storetest.Query[string](t, s, `select action from audit_log where action like 'event_type.%' order by id`))
	require.Equal(t, []string{`{"changed": ["description", "group", "state", "replaced_by", "validation", "ordering_key", "versions"]}`},
		storetest.Query[string](t, s, `select detail::text from audit_log where action = 'event_type.replace'`))
}

func TestAnEventTypeIsUpdated(t *testing.T) {
	t.Parallel()
	types, s, _ := setup(t)
	by := storetest.TestActor()
	_, _, err := types.UpdateEventType(t.Context(), by, "order.paid", webhook.MatchAny, func(*webhook.EventType) error { return nil })
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	first := put(t, types, orderPaid())
	update := func(m webhook.RevisionMatch, group string) (webhook.EventType, error) {
		stored, _, err := types.UpdateEventType(t.Context(), by, "order.paid", m, func(e *webhook.EventType) error {
			e.Group = group
			return nil
		})
		return stored, err
	}
	second, err := update(webhook.RevisionMatch(first.Revision), "Payments")
	require.NoError(t, err)
	require.Equal(t, "Payments", second.Group)
	require.Equal(t, first.Versions, second.Versions)
	_, err = update(webhook.RevisionMatch(first.Revision), "Other")
	storetest.RequireCode(t, webhook.CodeChanged, err)
	same, err := update(webhook.MatchExisting, "Payments")
	require.NoError(t, err)
	require.Equal(t, second.Revision, same.Revision, "a change that changes nothing writes nothing")
	require.Equal(t, []int{1}, storetest.Query[int](t, s, `select count(*)::int from audit_log where action = 'event_type.update'`))

	refused := errors.New("refused")
	_, _, err = types.UpdateEventType(t.Context(), by, "order.paid", webhook.MatchAny, func(*webhook.EventType) error { return refused })
	require.Equal(t, refused, err)
	_, _, err = types.PutEventType(t.Context(), by, webhook.EventType{Name: "none"}, webhook.MatchExisting)
	storetest.RequireCode(t, webhook.CodeChanged, err)
	storetest.RequireCode(t, webhook.CodeChanged, types.DeleteEventType(t.Context(), by, "order.paid", webhook.RevisionMatch(first.Revision)))
}

func TestEventTypesAreListed(t *testing.T) {
	t.Parallel()
	types, _, _ := setup(t)
	for _, name := range []string{"order.paid", "order.sent", "user_a", "userXa", "B"} {
		e := orderPaid()
		if e.Name = name; name == "B" {
			e.Group, e.State = "", webhook.EventTypeActive
		}
		put(t, types, e)
	}
	names := func(f webhook.EventTypeFilter, limit int, after string) (names []string) {
		found, err := types.ListEventTypes(t.Context(), f, limit, after)
		require.NoError(t, err)
		for _, e := range found {
			require.Equal(t, []webhook.EventTypeVersion{{Version: 1}, {Version: 4}}, e.Versions)
			names = append(names, e.Name)
		}
		return names
	}
	require.Equal(t, []string{"B", "order.paid", "order.sent", "userXa", "user_a"}, names(webhook.EventTypeFilter{}, 9, ""), "by bytes")
	require.Equal(t, []string{"order.paid", "order.sent"}, names(webhook.EventTypeFilter{}, 2, "B"))
	require.Equal(t, []string{"user_a"}, names(webhook.EventTypeFilter{Prefix: "user_"}, 9, ""))
	require.Equal(t, []string{"B"}, names(webhook.EventTypeFilter{State: new(webhook.EventTypeActive)}, 9, ""))
	require.Len(t, names(webhook.EventTypeFilter{Group: "Orders"}, 9, ""), 4)
}

func TestTheCatalogueHasALimit(t *testing.T) {
	t.Parallel()
	types, s, _ := setup(t)
	_, err := s.Pool().Exec(t.Context(), `insert into event_types (name) select 'type.' || n from generate_series(1, $1::int) n`, webhook.MaxCatalogueTypes)
	require.NoError(t, err)
	_, _, err = types.PutEventType(t.Context(), storetest.TestActor(), orderPaid(), webhook.MatchAny)
	storetest.RequireCode(t, webhook.CodeQuota, err)
	put(t, types, webhook.EventType{Name: "type.7", Group: "A"})
}

// post posts an event with its payload.
func post(t *testing.T, s *storetest.Stores, eventType, payload string, change ...func(*webhook.NewEvent)) (webhook.Accepted, error) {
	t.Helper()
	e := webhook.NewEvent{TenantID: "acme", Type: eventType, Payload: []byte(payload)}
	e.BodySHA256[0] = byte(len(payload))
	for _, c := range change {
		c(&e)
	}
	return s.Accept(t.Context(), e)
}

func version(n int) func(*webhook.NewEvent) { return func(e *webhook.NewEvent) { e.Version = n } }

func fieldsOf(t *testing.T, code webhook.Code, err error) (fields []string) {
	t.Helper()
	storetest.RequireCode(t, code, err)
	refused, ok := errors.AsType[*webhook.Error](err)
	require.True(t, ok)
	for _, f := range refused.Fields {
		fields = append(fields, f.Field+" "+f.Pointer+": "+f.Message)
	}
	return fields
}

func TestPayloadsAreValidated(t *testing.T) {
	t.Parallel()
	types, s, _ := setup(t)
	e := orderPaid()
	put(t, types, e)
	_, err := post(t, s, "order.paid", `{"order":"x"}`)
	require.Equal(t, []string{"payload /order: must be an integer"}, fieldsOf(t, webhook.CodePayloadInvalid, err))
	_, err = post(t, s, "order.paid", `{"order":"x"}`, version(1))
	require.NoError(t, err, "a version without a schema allows everything")
	a, err := post(t, s, "order.paid", `{"order":17}`, version(4))
	require.NoError(t, err)
	require.Equal(t, 4, a.Event.Version)
	require.Nil(t, a.Event.SchemaError)
	_, err = post(t, s, "order.paid", `{"order":17}`, version(2))
	require.Equal(t, []string{"version : does not exist: the event type has no version 2"}, fieldsOf(t, webhook.CodeInvalid, err))
	_, err = post(t, s, "unknown", `1`, version(1))
	require.Equal(t, []string{"version : is of a type that is not in the catalogue of event types"}, fieldsOf(t, webhook.CodeInvalid, err))
	_, err = post(t, s, "unknown", `1`)
	require.NoError(t, err)

	// A warning is stored, and shown by every read.
	e.Validation = webhook.ValidationWarn
	put(t, types, e)
	a, err = post(t, s, "order.paid", `{"secret":"value"}`, func(e *webhook.NewEvent) { e.ExternalID = "once" })
	require.NoError(t, err)
	require.Equal(t, "/order is required", *a.Event.SchemaError)
	read, _, err := s.Event(t.Context(), "acme", a.Event.ID)
	require.NoError(t, err)
	require.Equal(t, a.Event.SchemaError, read.SchemaError)
	again, err := post(t, s, "order.paid", `{"secret":"value"}`, func(e *webhook.NewEvent) { e.ExternalID = "once" })
	require.NoError(t, err)
	require.True(t, again.Repeated)
	require.Equal(t, a.Event.SchemaError, again.Event.SchemaError, "the first answer again")

	e.Validation = webhook.ValidationOff
	put(t, types, e)
	a, err = post(t, s, "order.paid", `{}`)
	require.NoError(t, err)
	require.Nil(t, a.Event.SchemaError)
}

// What was accepted stays accepted: a repetition is answered although the catalogue would refuse it now.
func TestARepetitionIsNotValidated(t *testing.T) {
	t.Parallel()
	types, s, _ := setup(t)
	once := func(e *webhook.NewEvent) { e.ExternalID = "order-17" }
	first, err := post(t, s, "order.paid", `{"order":"x"}`, once)
	require.NoError(t, err)
	put(t, types, orderPaid())
	again, err := post(t, s, "order.paid", `{"order":"x"}`, once)
	require.NoError(t, err)
	require.True(t, again.Repeated)
	require.Equal(t, first.Event.ID, again.Event.ID)

	batch := webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{
		{Type: "order.paid", Payload: []byte(`{"order":1}`)}, {Type: "order.paid", Payload: []byte(`{"order":"x"}`), ExternalID: "order-17"},
		{Type: "order.paid", Payload: []byte(`[]`)}, {Type: "order.paid", Payload: []byte(`{}`), ExternalID: "other"},
	}}
	batch.Events[1].BodySHA256[0] = byte(len(`{"order":"x"}`))
	_, err = s.AcceptBatch(t.Context(), batch)
	require.Equal(t, []string{"events[2].payload : must be an object", "events[3].payload /order: is required"}, fieldsOf(t, webhook.CodePayloadInvalid, err))
	require.Equal(t, []int{1}, storetest.Query[int](t, s, `select count(*)::int from events`), "all or nothing")
	batch.Events[0].Version = 9
	_, err = s.AcceptBatch(t.Context(), batch)
	require.Equal(t, []string{"events[0].version : does not exist: the event type has no version 9"}, fieldsOf(t, webhook.CodeInvalid, err))
}

func TestKnownTypesOnly(t *testing.T) {
	t.Parallel()
	_, s, address := setup(t)
	known, err := storetest.OpenStores(t.Context(), stores.Config{
		URL: address, MaxConns: 4, KnownTypesOnly: true, Sealer: storetest.NewTestSealer(t), MakeSecret: storetest.TestSecret,
	})
	require.NoError(t, err)
	t.Cleanup(known.Close)
	put(t, known.EventTypes, webhook.EventType{Name: "order.paid"})
	_, err = post(t, known, "order.paid", `1`)
	require.NoError(t, err)
	_, err = post(t, known, "order.sent", `1`)
	require.Equal(t, []string{"type : is not in the catalogue of event types"}, fieldsOf(t, webhook.CodeInvalid, err))
	put(t, known.EventTypes, webhook.EventType{Name: "order.paid", State: webhook.EventTypeArchived})
	_, err = post(t, known, "order.paid", `1`)
	require.Equal(t, []string{"type : is archived in the catalogue of event types"}, fieldsOf(t, webhook.CodeInvalid, err))
	_, err = post(t, s, "order.sent", `1`)
	require.NoError(t, err, "any type, by default")

	// Everpost's own events are of no type of the catalogue.
	endpoint, err := known.CreateEndpoint(t.Context(), storetest.TestActor(), webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: "acme", URL: "https://example.com", EventTypes: []string{"everpost.*"}, State: webhook.EndpointActive,
	}, "whsec_1")
	require.NoError(t, err)
	before := storetest.Query[int](t, s, `select count(*)::int from events`)[0]
	_, err = known.Notify(t.Context(), []webhook.OperationalEvent{{
		Type: webhook.EventEndpointRecovered, TenantID: "acme", Endpoint: &endpoint, Summary: "It has recovered.",
	}})
	require.NoError(t, err)
	require.Equal(t, before+1, storetest.Query[int](t, s, `select count(*)::int from events`)[0])
}

// A change takes effect in other processes.
func TestAChangeIsHeardByOtherProcesses(t *testing.T) {
	t.Parallel()
	types, s, address := setup(t)
	other := storetest.OpenStore(t, address)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other.Listen(ctx)
	require.Eventually(t, other.Listening, storetest.Eventually, storetest.Poll)
	_, err := post(t, other, "order.paid", `1`)
	require.NoError(t, err, "the catalogue is in memory now")
	put(t, types, orderPaid())
	require.Eventually(t, func() bool {
		_, err := post(t, other, "order.paid", `1`)
		return webhook.CodeOf(err) == webhook.CodePayloadInvalid
	}, storetest.Eventually, storetest.Poll)
	_, err = post(t, s, "order.paid", `1`)
	storetest.RequireCode(t, webhook.CodePayloadInvalid, err)
}

// Schemas are those of the newest versions, and only if each type has one.
func TestNewestSchemas(t *testing.T) {
	t.Parallel()
	types, _, _ := setup(t)
	put(t, types, orderPaid())
	put(t, types, webhook.EventType{Name: "order.sent", Versions: []webhook.EventTypeVersion{
		{Version: 1, Schema: []byte(`{"type":"object"}`)}, {Version: 2, Schema: []byte(`{"type": "string"}`)},
	}})
	put(t, types, webhook.EventType{Name: "order.bare", Versions: []webhook.EventTypeVersion{{Version: 1, Schema: []byte(`{}`)}, {Version: 2}}})
	newest := func(most int, names ...string) (texts []string) {
		found, err := types.NewestSchemas(t.Context(), names, most)
		require.NoError(t, err)
		for _, text := range found {
			texts = append(texts, string(text))
		}
		return texts
	}
	const second = `{"type": "string"}`
	require.Equal(t, []string{second}, newest(len(second), "order.sent"))
	require.ElementsMatch(t, []string{second, paid}, newest(1<<10, "order.sent", "order.paid"))
	require.Empty(t, newest(len(second)-1, "order.sent"), "too large")
	require.Empty(t, newest(1<<10, "order.sent", "order.bare"), "its newest version has none")
	require.Empty(t, newest(1<<10, "order.sent", "unknown"))
	require.Empty(t, newest(1<<10))
}

// A change of one version leaves the others as they are written, and their rows untouched, also if the client has written their JSON anew.
func TestAChangedVersionLeavesTheOthers(t *testing.T) {
	t.Parallel()
	types, s, _ := setup(t)
	written := func(n int, schema string) webhook.EventTypeVersion {
		return webhook.EventTypeVersion{Version: n, Schema: []byte(schema), Examples: [][]byte{[]byte(`{ "n": 1.0 }`)}}
	}
	const layout = "{\n  \"type\": \"object\"\n}"
	put(t, types, webhook.EventType{Name: "a", Versions: []webhook.EventTypeVersion{written(1, layout), written(2, layout), written(3, layout)}})
	rows := func() []string {
		return storetest.Query[string](t, s, `select version || ' ' || xmin::text from event_type_versions where type = 'a' order by version`)
	}
	before := rows()
	compact := func(n int) webhook.EventTypeVersion {
		return webhook.EventTypeVersion{Version: n, Schema: []byte(`{"type":"object"}`), Examples: [][]byte{[]byte(`{"n":1.0}`)}}
	}
	changed := compact(2)
	changed.Schema = []byte(`{"type":"array"}`)
	stored, _, err := types.UpdateEventType(t.Context(), storetest.TestActor(), "a", webhook.MatchAny, func(e *webhook.EventType) error {
		e.Versions = []webhook.EventTypeVersion{compact(1), changed}
		return nil
	})
	require.NoError(t, err)
	want := []webhook.EventTypeVersion{written(1, layout), written(2, `{"type":"array"}`)}
	require.Equal(t, want, stored.Versions)
	now, err := types.EventType(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, want, now.Versions)
	after := rows()
	require.Len(t, after, 2)
	require.Equal(t, before[0], after[0], "its row was not written")
	require.NotEqual(t, before[1], after[1])

	same, _, err := types.UpdateEventType(t.Context(), storetest.TestActor(), "a", webhook.MatchAny, func(e *webhook.EventType) error {
		e.Versions = []webhook.EventTypeVersion{compact(1), changed}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, now.Revision, same.Revision, "white space is no change")
	_, _, err = types.PutEventType(t.Context(), storetest.TestActor(), webhook.EventType{Name: "a"}, webhook.MatchNothing)
	storetest.RequireCode(t, webhook.CodeChanged, err)
}
