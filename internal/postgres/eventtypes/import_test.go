package eventtypes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestImport(t *testing.T) {
	t.Parallel()
	types, s, _ := setup(t)
	put(t, types, orderPaid())
	put(t, types, webhook.EventType{Name: "old"})
	by := storetest.TestActor()
	in := webhook.TypeImport{ReplaceAll: true, DryRun: true, Types: []webhook.ImportedType{
		{Name: "new", Description: "New", Group: "G", Schema: []byte(`{"type":"object"}`), Examples: [][]byte{[]byte(`{}`)}},
		{Name: "order.paid", Schema: []byte(`{"type":"string"}`)},
		{Name: "plain"},
	}}
	changes, err := types.ImportEventTypes(t.Context(), by, in)
	require.NoError(t, err)
	summary := func(changes []webhook.ImportedChange) (all []string) {
		for _, c := range changes {
			all = append(all, fmt.Sprintf("%s %s %d", c.Name, c.Change, c.Version))
		}
		return all
	}
	want := []string{"new created 1", "order.paid updated 5", "plain created 0", "old archived 0"}
	require.Equal(t, want, summary(changes))
	require.Equal(t, 4, changes[1].Before.Version)
	_, err = types.EventType(t.Context(), "new")
	storetest.RequireCode(t, webhook.CodeNotFound, err)

	in.DryRun = false
	changes, err = types.ImportEventTypes(t.Context(), by, in)
	require.NoError(t, err)
	require.Equal(t, want, summary(changes))
	paid, err := types.EventType(t.Context(), "order.paid")
	require.NoError(t, err)
	require.Len(t, paid.Versions, 3)
	require.Equal(t, webhook.ValidationEnforce, paid.Validation, "what the document does not say stays")
	require.Equal(t, "Orders", paid.Group)
	require.Equal(t, webhook.EventTypeDeprecated, paid.State)
	old, err := types.EventType(t.Context(), "old")
	require.NoError(t, err)
	require.Equal(t, webhook.EventTypeArchived, old.State)
	require.Equal(t, []string{`{"created": 2, "updated": 1, "archived": 1}`},
		storetest.Query[string](t, s, `select detail::text from audit_log where action = 'event_type.import'`))
	_, err = post(t, s, "order.paid", `{"order":1}`)
	storetest.RequireCode(t, webhook.CodePayloadInvalid, err)

	changes, err = types.ImportEventTypes(t.Context(), by, in)
	require.NoError(t, err)
	require.Equal(t, []string{"new unchanged 1", "order.paid unchanged 5", "plain unchanged 0"}, summary(changes))

	all, err := types.AllEventTypes(t.Context(), 1000)
	require.NoError(t, err)
	require.Len(t, all, 3, "without archived ones")
	require.Empty(t, all[2].Versions)
	require.Equal(t, []webhook.EventTypeVersion{{Version: 5, Schema: []byte(`{"type":"string"}`)}}, all[1].Versions)
	_, err = types.AllEventTypes(t.Context(), 20)
	storetest.RequireCode(t, webhook.CodeTooLarge, err)
}

func TestAnImportIsAllOrNothing(t *testing.T) {
	t.Parallel()
	types, s, _ := setup(t)
	full := webhook.EventType{Name: "full"}
	for i := range webhook.MaxEventTypeVersions {
		full.Versions = append(full.Versions, webhook.EventTypeVersion{Version: i + 1})
	}
	put(t, types, full)
	put(t, types, webhook.EventType{Name: "last", Versions: []webhook.EventTypeVersion{{Version: webhook.MaxEventTypeVersion}}})
	in := webhook.TypeImport{Types: []webhook.ImportedType{
		{Name: "a"}, {Name: "full", Schema: []byte(`{}`)}, {Name: "last", Schema: []byte(`{}`)},
	}}
	_, err := types.ImportEventTypes(t.Context(), storetest.TestActor(), in)
	require.Equal(t, []string{
		"types.full : has 10 versions: remove one first", "types.last : has no number left for a new version",
	}, fieldsOf(t, webhook.CodeInvalid, err))
	require.Equal(t, []string{"full", "last"}, storetest.Query[string](t, s, `select name from event_types order by name`))
}

func TestAnImportKeepsTheState(t *testing.T) {
	t.Parallel()
	types, _, _ := setup(t)
	put(t, types, webhook.EventType{Name: "a", State: webhook.EventTypeArchived})
	for _, c := range []struct {
		deprecated *bool
		want       webhook.EventTypeState
	}{{nil, webhook.EventTypeArchived}, {new(true), webhook.EventTypeDeprecated}, {nil, webhook.EventTypeDeprecated}, {new(false), webhook.EventTypeActive}} {
		imported := []webhook.ImportedType{{Name: "a", Deprecated: c.deprecated}}
		_, err := types.ImportEventTypes(t.Context(), storetest.TestActor(), webhook.TypeImport{Types: imported})
		require.NoError(t, err)
		stored, err := types.EventType(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, c.want, stored.State)
	}
}

func TestAnImportKeepsTypesSmall(t *testing.T) {
	t.Parallel()
	types, _, _ := setup(t)
	large := webhook.EventType{Name: "large", Versions: []webhook.EventTypeVersion{
		{Version: 1, Schema: []byte(`{"title":"` + strings.Repeat("x", webhook.MaxEventTypeSize-20) + `"}`)},
	}}
	put(t, types, large)
	for _, in := range []webhook.ImportedType{
		{Name: "large", Schema: []byte(`{"title":"another"}`)}, {Name: "large", Examples: [][]byte{[]byte(`"an example"`)}},
	} {
		_, err := types.ImportEventTypes(t.Context(), storetest.TestActor(), webhook.TypeImport{Types: []webhook.ImportedType{in}})
		require.Equal(t, []string{"types.large : would have more than 1 MiB of schemas and examples: remove a version first"},
			fieldsOf(t, webhook.CodeInvalid, err))
	}
}

// An import writes as many types as there may be in a few statements, and no more than there may be.
func TestAnImportOfManyTypes(t *testing.T) {
	t.Parallel()
	types, s, _ := setup(t)
	in := webhook.TypeImport{}
	for i := range webhook.MaxCatalogueTypes {
		in.Types = append(in.Types, webhook.ImportedType{Name: fmt.Sprintf("t%04d", i), Schema: []byte(`{}`)})
	}
	changes, err := types.ImportEventTypes(t.Context(), storetest.TestActor(), in)
	require.NoError(t, err)
	require.Len(t, changes, webhook.MaxCatalogueTypes)
	require.Equal(t, []int64{webhook.MaxCatalogueTypes}, storetest.Query[int64](t, s, `select count(*) from event_type_versions where version = 1`))
	in.Types[7].Schema = []byte(`{"type":"string"}`)
	changes, err = types.ImportEventTypes(t.Context(), storetest.TestActor(), in)
	require.NoError(t, err)
	for i, c := range changes {
		require.Equal(t, i == 7, c.Change == webhook.ImportUpdated, c.Name)
		require.Equal(t, in.Types[i].Name, c.Name, "in the order of the import")
	}
	require.Equal(t, []string{"t0007"}, storetest.Query[string](t, s, `select type from event_type_versions where version = 2`))
	in.Types = append(in.Types[:3:3], webhook.ImportedType{Name: "one more"}, webhook.ImportedType{Name: "another"})
	_, err = types.ImportEventTypes(t.Context(), storetest.TestActor(), in)
	storetest.RequireCode(t, webhook.CodeQuota, err)
}

// Examples that are written anew are no change.
func TestAnImportOfTheSameExamples(t *testing.T) {
	t.Parallel()
	types, _, _ := setup(t)
	put(t, types, webhook.EventType{Name: "a", Versions: []webhook.EventTypeVersion{
		{Version: 1, Schema: []byte(`{}`), Examples: [][]byte{[]byte(`{ "n": 1 }`)}},
	}})
	for example, want := range map[string]string{`{"n":1}`: webhook.ImportUnchanged, `{"n":2}`: webhook.ImportUpdated} {
		imported := []webhook.ImportedType{{Name: "a", Schema: []byte(`{ }`), Examples: [][]byte{[]byte(example)}}}
		changes, err := types.ImportEventTypes(t.Context(), storetest.TestActor(), webhook.TypeImport{Types: imported, DryRun: true})
		require.NoError(t, err)
		require.Equal(t, want, changes[0].Change, example)
	}
}
