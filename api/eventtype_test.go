package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

const typePath = "/v1/event-types/order.paid"

const paidSchema = `{"type":"object","properties":{"order":{"type":"integer"},"total":{"type":"number"}},"required":["order"]}`

func TestAnEventTypeIsPutAndShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := `{"description":"Paid.\nIn full.","group":"Orders","validation":"enforce","ordering_key":"/order","replaced_by":"order.settled",
		"state":"deprecated","versions":[{"version":2,"schema":` + paidSchema + `,"examples":[{"order":17,"n":1.0}]},{"version":1}]}`
	a := b.ok(t, http.StatusCreated, "operator", "PUT", typePath, body)
	var made client.ChangedEventType
	require.NoError(t, json.Unmarshal([]byte(a.text), &made))
	require.Equal(t, "Orders", *made.Group)
	require.Equal(t, []int{1, 2}, []int{made.Versions[0].Version, made.Versions[1].Version}, "by number")
	require.JSONEq(t, paidSchema, string(made.Versions[1].Schema))
	require.Equal(t, `{"order":17,"n":1.0}`, string(made.Versions[1].Examples[0]), "byte for byte")
	require.Equal(t, []client.SchemaChange{{Version: 2, Against: 1, Removed: []string{}, Required: []string{"/order"}, Retyped: []string{}}}, made.Changes)

	for _, as := range []string{"operator", "admin", "ingest", "foreign"} {
		shown := b.ok(t, http.StatusOK, as, "GET", typePath, "")
		require.Equal(t, a.Header.Get("ETag"), shown.Header.Get("ETag"))
		listed := b.ok(t, http.StatusOK, as, "GET", "/v1/event-types?group=Orders&state=deprecated&prefix=order.", "")
		require.Equal(t, []any{1.0, 2.0}, listed.json["data"].([]any)[0].(map[string]any)["versions"])
		require.NotContains(t, listed.text, "properties")
	}
	require.Empty(t, b.ok(t, http.StatusOK, "ingest", "GET", "/v1/event-types?state=active", "").json["data"])
	b.ok(t, http.StatusOK, "operator", "PUT", typePath, b.ok(t, http.StatusOK, "ingest", "GET", typePath, "").text) // what GET shows can be put
	for _, as := range []string{"admin", "ingest"} {
		b.ok(t, http.StatusForbidden, as, "PUT", typePath, body)
		b.ok(t, http.StatusForbidden, as, "PATCH", typePath, `{}`)
		b.ok(t, http.StatusForbidden, as, "DELETE", typePath, "")
	}
	b.ok(t, http.StatusNoContent, "operator", "DELETE", typePath, "")
	b.ok(t, http.StatusNotFound, "operator", "DELETE", typePath, "")
	b.ok(t, http.StatusNotFound, "operator", "GET", typePath, "")
	b.ok(t, http.StatusNotFound, "operator", "PATCH", typePath, `{}`)
}

func TestAnEventTypeIsChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ok(t, http.StatusCreated, "operator", "PUT", typePath, `{"group":"Orders","versions":[{"version":1,"schema":`+paidSchema+`}]}`)
	a := b.ok(t, http.StatusOK, "operator", "PATCH", typePath, `{"description":"Paid","validation":"warn"}`)
	require.Equal(t, "Orders", a.json["group"], "absent fields stay")
	require.Empty(t, a.json["changes"])
	a = b.ok(t, http.StatusOK, "operator", "PATCH", typePath, `{"group":null,"validation":null}`)
	require.Nil(t, a.json["group"])
	require.Equal(t, "off", a.json["validation"])

	// A version against the one before, and a changed one against what it was.
	a = b.ok(t, http.StatusOK, "operator", "PATCH", typePath, `{"versions":[{"version":1,"schema":`+paidSchema+`},
		{"version":3,"schema":{"properties":{"order":{"type":"string"},"id":{}},"required":["id"]}}]}`)
	var changed client.ChangedEventType
	require.NoError(t, json.Unmarshal([]byte(a.text), &changed))
	require.Equal(t, []client.SchemaChange{
		{Version: 3, Against: 1, Removed: []string{"/total"}, Required: []string{"/id"}, Retyped: []string{"/order"}},
	}, changed.Changes)
	a = b.ok(t, http.StatusOK, "operator", "PATCH", typePath, `{"versions":[{"version":1,"schema":{"properties":{"order":{"type":"integer"}}}}]}`)
	require.NoError(t, json.Unmarshal([]byte(a.text), &changed))
	require.Equal(t, []client.SchemaChange{{Version: 1, Against: 1, Removed: []string{"/total"}, Required: []string{}, Retyped: []string{}}}, changed.Changes)
}

func TestIfMatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ifMatch := func(value string) func(*http.Request) { return header("If-Match", value) }
	b.ok(t, http.StatusPreconditionFailed, "operator", "PUT", typePath, `{}`, ifMatch("*"))
	first := b.ok(t, http.StatusCreated, "operator", "PUT", typePath, `{}`).Header.Get("ETag")
	second := b.ok(t, http.StatusOK, "operator", "PATCH", typePath, `{"group":"A"}`, ifMatch(first)).Header.Get("ETag")
	require.NotEqual(t, first, second)
	a := b.ok(t, http.StatusPreconditionFailed, "operator", "PATCH", typePath, `{"group":"B"}`, ifMatch(first))
	require.Contains(t, a.text, `"type":"https://everpost.dev/errors/changed"`)
	b.ok(t, http.StatusPreconditionFailed, "operator", "PUT", typePath, `{"group":"B"}`, ifMatch(first))
	b.ok(t, http.StatusPreconditionFailed, "operator", "DELETE", typePath, "", ifMatch(first))
	require.Equal(t, "A", b.ok(t, http.StatusOK, "ingest", "GET", typePath, "").json["group"])
	for _, wrong := range []string{"7", `W/"7"`, `"x"`, `"0"`, `"-1"`, `""`, `"1", "2"`} {
		b.ok(t, http.StatusBadRequest, "operator", "PATCH", typePath, `{}`, ifMatch(wrong))
	}
	b.ok(t, http.StatusBadRequest, "operator", "PATCH", typePath, `{}`, header("If-Match", first, second))
	b.ok(t, http.StatusOK, "operator", "PATCH", typePath, `{"group":"B"}`, ifMatch("*"))
	b.ok(t, http.StatusNoContent, "operator", "DELETE", typePath, "", ifMatch("*"))
}

// If-None-Match: * creates an event type, and replaces none.
func TestIfNoneMatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ifNoneMatch := func(values ...string) func(*http.Request) { return header("If-None-Match", values...) }
	first := b.ok(t, http.StatusCreated, "operator", "PUT", typePath, `{"group":"A"}`, ifNoneMatch("*")).Header.Get("ETag")
	a := b.ok(t, http.StatusPreconditionFailed, "operator", "PUT", typePath, `{"group":"B"}`, ifNoneMatch("*"))
	require.Contains(t, a.text, "the event type exists already")
	require.Contains(t, a.text, `"type":"https://everpost.dev/errors/changed"`)
	for _, wrong := range [][]string{{first}, {`"1"`}, {""}, {"*", "*"}} {
		b.ok(t, http.StatusBadRequest, "operator", "PUT", typePath, `{"group":"B"}`, ifNoneMatch(wrong...))
	}
	b.ok(t, http.StatusBadRequest, "operator", "PUT", typePath, `{"group":"B"}`, ifNoneMatch("*"), header("If-Match", first))
	require.Equal(t, "A", b.ok(t, http.StatusOK, "ingest", "GET", typePath, "").json["group"])
}

func TestNamesOfEventTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, name := range map[string]string{
		"userCreated": "userCreated", "invoice%2Fpaid": "invoice/paid", "a:b": "a:b", "a%3Ab-c": "a:b-c", "import": "import",
	} {
		a := b.ok(t, http.StatusCreated, "operator", "PUT", "/v1/event-types/"+path, `{}`)
		require.Equal(t, name, a.json["name"])
		require.Equal(t, name, b.ok(t, http.StatusOK, "ingest", "GET", "/v1/event-types/"+path, "").json["name"])
	}
	for path, message := range map[string]string{
		"everpost.x": reservedTypes, "EverPost.x": reservedTypes, ".x": notAType, "a%20b": notAType, "%C3%A4": notAType, "%00": notAType,
		strings.Repeat("a", 129): notAType,
	} {
		b.refused(t, "operator", "PUT", "/v1/event-types/"+path, `{}`, "name", message)
		b.ok(t, http.StatusNotFound, "operator", "GET", "/v1/event-types/"+path, "")
	}
}

func TestBadEventTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	versions := make([]string, 11)
	for i := range versions {
		versions[i] = fmt.Sprintf(`{"version":%d}`, i+1)
	}
	for body, want := range map[string][]string{
		`{"descriptio":""}`:                                  {"descriptio", "is not a known field"},
		`{"state":"gone"}`:                                   {"state", notATypeState},
		`{"validation":true}`:                                {"validation", "must be a string"},
		`{"validation":"strict"}`:                            {"validation", notAValidation},
		`{"ordering_key":"order"}`:                           {"ordering_key", notAJSONPointer},
		`{"ordering_key":"/a~2"}`:                            {"ordering_key", notAJSONPointer},
		`{"replaced_by":"order.paid"}`:                       {"replaced_by", "must be another type"},
		`{"replaced_by":"everpost.x"}`:                       {"replaced_by", reservedTypes},
		`{"group":"a\nb"}`:                                   {"group", "must be at most 64 printable characters"},
		`{"versions":[{"schema":{}}]}`:                       {"versions[0].version", "is required"},
		`{"versions":[{"version":0}]}`:                       {"versions[0].version", "must be a whole number from 1 to 32767"},
		`{"versions":[{"version":1},{"version":1}]}`:         {"versions[1].version", "is listed more than once"},
		`{"versions":[` + strings.Join(versions, ",") + `]}`: {"versions", "has more than 10 entries"},
		`{"versions":[{"version":1,"schema":[]}]}`:           {"versions[0].schema", "must be an object"},
		`{"versions":[{"version":1,"schema":{"properties":{"a":{"pattern":"("}}}}]}`: {
			"versions[0].schema", "at /properties/a/pattern: the pattern is not one of RE2: missing closing )",
		},
		`{"versions":[{"version":1,"schema":{"$ref":"https://example.com/x"}}]}`: {
			"versions[0].schema", `$ref leads to "https://example.com/x": only parts of the same schema can be referred to, as in #/$defs/name`,
		},
		`{"versions":[{"version":1,"schema":` + paidSchema + `,"examples":[{"order":1},{"order":"x"}]}]}`: {
			"versions[0].examples[1]", "does not match the schema: /order must be an integer",
		},
		`{"versions":[{"version":1,"examples":[1,2,3,4,5,6]}]}`: {"versions[0].examples", "has more than 5 entries"},
		`{"versions":[{"version":1,"examples":["` + strings.Repeat("x", webhook.MaxEventTypeExample) + `"]}]}`: {
			"versions[0].examples[0]", "is larger than 16384 bytes",
		},
	} {
		b.refused(t, "operator", "PUT", typePath, body, want...)
	}
	large := `{"type":"string","description":"` + strings.Repeat("x", 60<<10) + `"}`
	examples := `["` + strings.Repeat("x", 16000) + `","` + strings.Repeat("y", 16000) + `","` + strings.Repeat("z", 16000) + `"]`
	for i := range versions {
		versions[i] = fmt.Sprintf(`{"version":%d,"schema":%s,"examples":%s}`, i+1, large, examples)
	}
	b.refused(t, "operator", "PUT", typePath, `{"versions":[`+strings.Join(versions[:10], ",")+`]}`, "versions", "has more than 1 MiB of schemas and examples")
	b.ok(t, http.StatusCreated, "operator", "PUT", typePath, `{"versions":[`+strings.Join(versions[:9], ",")+`]}`)
	b.ok(t, http.StatusOK, "ingest", "GET", typePath, "")
}

func TestAnEventMayNameAVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"a","payload":1,"version":3}`)
	require.InDelta(t, 3, a.json["version"], 0)
	require.NotContains(t, b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"a","payload":1,"version":null}`).json, "version")
	b.refused(t, "ingest", "POST", eventsPath, `{"type":"a","payload":1,"version":0}`, "version", "must be a whole number from 1 to 32767")
}

func TestImportEventTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/event-types/import"
	b.ok(t, http.StatusForbidden, "admin", "POST", path, `{"schemas":{"a":{}}}`)
	a := b.ok(t, http.StatusOK, "operator", "POST", path, `{"dry_run":true,"replace_all":true,"openapi":{"openapi":"3.1.0","webhooks":{"order.paid":{"post":{
		"tags":["a\nb"],"description":"`+strings.Repeat("x", 2001)+`","requestBody":{"content":{"application/json":{
			"schema":`+paidSchema+`,"examples":{"a":{"value":{"order":"x"}},"b":{"value":{"order":17}}}}}}}}}}}`)
	in := b.imported[0]
	require.True(t, in.DryRun)
	require.True(t, in.ReplaceAll)
	require.Equal(t, [][]byte{[]byte(`{"order":17}`)}, in.Types[0].Examples)
	require.Empty(t, in.Types[0].Group)
	require.Len(t, in.Types[0].Description, 2000)
	var shown client.EventTypeImport
	require.NoError(t, json.Unmarshal([]byte(a.text), &shown))
	require.Len(t, shown.Warnings, 3)
	require.Equal(t, []client.SchemaChange{
		{Version: 2, Against: 1, Removed: []string{"/gone"}, Required: []string{"/order"}, Retyped: []string{}},
	}, shown.Types[0].Changes)
	b.ok(t, http.StatusOK, "operator", "POST", path, `{"schemas":{"order.paid":`+paidSchema+`}}`)
	require.JSONEq(t, paidSchema, string(b.imported[1].Types[0].Schema))
	large := `{"schemas":{"a":{"description":"` + strings.Repeat("x", 60<<10) + `"},"b":{"description":"` + strings.Repeat("x", 60<<10) +
		`"}},"openapi":null` + strings.Repeat(" ", 400<<10) + `}`
	for range 2 {
		b.ok(t, http.StatusOK, "operator", "POST", path, large, header("Idempotency-Key", "once"))
	}
	require.Len(t, b.imported, 3)

	const either = "must have either openapi or schemas"
	for body, want := range map[string][]string{
		`{}`:                                    {"body", either},
		`{"schemas":{"a":{}},"openapi":{}}`:     {"openapi.openapi", `must be "3.1.0" or another 3.1`, "body", either},
		`{"schemas":{}}`:                        {"schemas", "must have at least one"},
		`{"schemas":{"everpost.a":{},".b":{}}}`: {"types.everpost.a", reservedTypes, "types..b", notAType},
		`{"schemas":{"a":{"$ref":"#/x"},"b":true}}`: {"types.a", "$ref leads to #/x, which does not exist", "types.b", "must be an object"},
		`{"openapi":{"openapi":"3.1.0"}}`:           {"openapi.webhooks", "must have at least one"},
	} {
		b.refused(t, "operator", "POST", path, body, want...)
	}
}

// An import whose request has ended stops at the next type.
func TestAnImportEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := typeImport{TypeImport: webhook.TypeImport{Types: []webhook.ImportedType{{Name: ".b"}}}}
	require.ErrorIs(t, in.check(ctx), context.Canceled)
	require.Empty(t, in.problems)
}

func TestExportEventTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ok(t, http.StatusCreated, "operator", "PUT", typePath, `{"group":"Orders","versions":[{"version":1,"schema":`+paidSchema+`,"examples":[{"order":1}]}]}`)
	a := b.ok(t, http.StatusOK, "ingest", "GET", "/v1/event-types-export", "")
	require.Contains(t, a.text, `"order.paid":{"post":`)
	b.ok(t, http.StatusOK, "operator", "POST", "/v1/event-types/import", `{"openapi":`+a.text+`}`)
	require.JSONEq(t, paidSchema, string(b.imported[0].Types[0].Schema))
}
