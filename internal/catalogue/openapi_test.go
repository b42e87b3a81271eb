package catalogue

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

const document = `{
	"openapi": "3.1.0", "info": {"title": "Shop", "version": "7"},
	"webhooks": {
		"order.paid": {"post": {
			"summary": "Paid", "tags": ["Orders", "Money"], "deprecated": true,
			"requestBody": {"$ref": "#/components/requestBodies/order"}
		}},
		"order.sent": {"description": "Sent", "post": {"requestBody": {"content": {"application/json": {
			"schema": {"type": "object", "properties": {"default": {"$ref": "#/components/schemas/Line/properties/sku"}}, "default": {"$ref": "data"}},
			"example": {"default": "x"}
		}}}}},
		"ping": {"post": {}}
	},
	"components": {
		"requestBodies": {"order": {"content": {"application/json": {
			"schema": {"$ref": "#/components/schemas/Order"},
			"examples": {"b": {"value": {"lines": []}}, "a": {"$ref": "#/components/examples/a"}}
		}}}},
		"examples": {"a": {"value": {"lines": [{"sku": "x", "n": 1.0}]}}},
		"schemas": {
			"Order": {"type": "object", "properties": {
				"lines": {"items": {"$ref": "#/components/schemas/Line"}}, "parent": {"$ref": "#/components/schemas/Order"}}},
			"Line": {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]},
			"Unused": {"$ref": "https://example.com/other"}
		}
	}
}`

func TestFromOpenAPI(t *testing.T) {
	t.Parallel()
	types, warnings, problems := FromOpenAPI([]byte(document))
	require.Empty(t, problems)
	require.Empty(t, warnings)
	require.Len(t, types, 3)
	paid, sent := types[0], types[1]
	require.Equal(t, []string{"order.paid", "Paid", "Orders"}, []string{paid.Name, paid.Description, paid.Group})
	require.Equal(t, new(true), paid.Deprecated)
	require.Nil(t, sent.Deprecated)
	require.JSONEq(t, `{"$ref":"#/$defs/Order","$defs":{
		"Order":{"type":"object","properties":{"lines":{"items":{"$ref":"#/$defs/Line"}},"parent":{"$ref":"#/$defs/Order"}}},
		"Line":{"type":"object","properties":{"sku":{"type":"string"}},"required":["sku"]}}}`, string(paid.Schema))
	require.Equal(t, `{"lines":[{"n":1.0,"sku":"x"}]}`, string(paid.Examples[0]))
	require.Equal(t, []string{"/lines/0/sku is required"}, mismatches(t, compiled(t, string(paid.Schema)), `{"lines":[{}],"parent":{"lines":[]}}`))
	require.Equal(t, "Sent", sent.Description)
	require.Contains(t, string(sent.Schema), `"default":{"$ref":"#/$defs/Line/properties/sku"}`, "a property of that name")
	require.Contains(t, string(sent.Schema), `"default":{"$ref":"data"}`, "data")
	require.Nil(t, types[2].Schema)
}

func TestBadDocuments(t *testing.T) {
	t.Parallel()
	hook := func(schema string) string {
		return `{"openapi":"3.1.0","webhooks":{"a":{"post":{"requestBody":{"content":{"application/json":{"schema":` + schema + `}}}}}}}`
	}
	for text, want := range map[string]string{
		`[]`:                  "openapi must be",
		`{"openapi":"3.0.3"}`: "openapi must be",
		`{"openapi":"3.1.0"}`: "webhooks must have at least one",
		`{"openapi":"3.1.0","webhooks":{"a":{}}}`:                             "webhooks.a has no post",
		`{"openapi":"3.1.0","webhooks":{"a":{"$ref":"https://example.com"}}}`: "webhooks.a has no post",
		hook(`7`): "webhooks.a.post.requestBody has a schema that is not an object",
		hook(`{"$ref":"#/components/schemas/A"}`): "refers to a component that does not exist: A",
	} {
		_, _, problems := FromOpenAPI([]byte(text))
		require.NotEmpty(t, problems, text)
		require.Contains(t, problems[0].Path+" "+problems[0].Message, want)
	}
	hooks := map[string]any{}
	for i := range webhook.MaxCatalogueTypes + 1 {
		hooks[fmt.Sprintf("t%d", i)] = map[string]any{"post": map[string]any{}}
	}
	text, err := json.Marshal(map[string]any{"openapi": "3.1.0", "webhooks": hooks})
	require.NoError(t, err)
	types, _, problems := FromOpenAPI(text)
	require.Len(t, types, webhook.MaxCatalogueTypes)
	require.Equal(t, []Problem{{"webhooks", "has more than 1000 entries"}}, problems)
}

// A thousand webhooks that all refer to the same large component cost a bounded amount.
func TestImportsAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"openapi":"3.1.0","components":{"schemas":{"Large":{"enum":[0],"anyOf":[{}` + strings.Repeat(`,{}`, 19_000) + `]}}},"webhooks":{`)
	for i := range 500 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"t%d":{"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/Large"}}}}}}`, i)
	}
	b.WriteString(`}}`)
	begun := time.Now()
	_, _, problems := FromOpenAPI([]byte(b.String()))
	require.NotEmpty(t, problems)
	require.Contains(t, problems[0].Message, "too large")
	require.Less(t, time.Since(begun), 20*time.Second)
}

// What is exported can be imported: nothing changes.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	schema := `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/a"}},"definitions":{"a":{"type":"string"}}}`
	exported, err := ToOpenAPI([]webhook.EventType{
		{Name: "a", Description: "An a", Group: "G", State: webhook.EventTypeDeprecated, Versions: []webhook.EventTypeVersion{
			{Version: 1, Schema: []byte(`{"type":"integer"}`)}, {Version: 2, Schema: []byte(schema), Examples: [][]byte{[]byte(`{"a":"x"}`)}},
		}},
		{Name: "b"},
	})
	require.NoError(t, err)
	require.Contains(t, string(exported), `"$id":"urn:everpost:event-type:a:2"`)
	types, warnings, problems := FromOpenAPI(exported)
	require.Empty(t, warnings)
	require.Empty(t, problems)
	require.True(t, Same([]byte(schema), types[0].Schema))
	types[0].Schema = nil
	require.Equal(t, []webhook.ImportedType{
		{Name: "a", Description: "An a", Group: "G", Deprecated: new(true), Examples: [][]byte{[]byte(`{"a":"x"}`)}}, {Name: "b"},
	}, types)
}

func TestSame(t *testing.T) {
	t.Parallel()
	require.True(t, Same([]byte(`{"a":1,"b":[2]}`), []byte(` {"b":[2.0],"a":1e0}`)))
	require.True(t, Same(nil, nil))
	require.False(t, Same(nil, []byte(`null`)))
	require.False(t, Same([]byte(`{"a":1}`), []byte(`{"a":"1"}`)))
}

// What many webhooks share is counted in bytes for each of them, before it is copied.
func TestImportsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", MaxSchema)
	for name, media := range map[string]string{
		"a text":          `{"schema":{"$ref":"#/components/schemas/A"}}`,
		"a default":       `{"schema":{"default":"` + text + `"}}`,
		"names":           `{"schema":{"properties":{"` + text + `":{}}}}`,
		"a long array":    `{"schema":{"enum":[0` + strings.Repeat(",0", MaxSchema) + `]}}`,
		"another address": `{"schema":{"$ref":"https://` + text + `"}}`,
	} {
		types, _, problems := FromOpenAPI([]byte(`{"openapi":"3.1.0","webhooks":{"a":{"post":{"requestBody":{"content":{"application/json":` + media +
			`}}}}},"components":{"schemas":{"A":{"description":"` + text + `"}}}}`))
		require.Equal(t, []Problem{{"webhooks.a.post.requestBody", "has a schema that is too large with all that it refers to"}}, problems, name)
		require.Nil(t, types[0].Schema, name)
	}

	hooks := map[string]any{}
	for i := range webhook.MaxCatalogueTypes {
		hooks[fmt.Sprintf("t%d", i)] = map[string]any{"$ref": "#/components/pathItems/p"}
	}
	together := func(media map[string]any) []Problem {
		item := map[string]any{"post": map[string]any{"requestBody": map[string]any{"content": map[string]any{"application/json": media}}}}
		doc, err := json.Marshal(map[string]any{"openapi": "3.1.0", "webhooks": hooks, "components": map[string]any{"pathItems": map[string]any{"p": item}}})
		require.NoError(t, err)
		_, _, problems := FromOpenAPI(doc)
		return problems
	}
	require.Empty(t, together(map[string]any{"schema": map[string]any{"title": text[:MaxSchema/4]}}))
	want := Problem{"webhooks", "have schemas, examples and descriptions that are too large together, references followed"}
	require.Contains(t, together(map[string]any{"schema": map[string]any{"title": text[:MaxSchema-100]}}), want)
	many := map[string]any{}
	for i := range 5000 {
		many[fmt.Sprintf("e%d", i)] = map[string]any{"value": i}
	}
	require.Contains(t, together(map[string]any{"examples": many}), want)
}

func TestExamplesOfADocument(t *testing.T) {
	t.Parallel()
	r := documentReader{left: maxDocumentNodes, bytes: maxDocumentBytes}
	named := map[string]any{"a": map[string]any{"value": strings.Repeat("x", webhook.MaxEventTypeExample)}}
	for i := range 10 {
		named[fmt.Sprintf("b%d", i)] = map[string]any{"value": i}
	}
	examples := r.examples("a", map[string]any{"examples": named})
	require.Equal(t, "0 1 2 3 4", strings.Trim(fmt.Sprintf("%s", examples), "[]"))
	require.Len(t, r.warnings, 1)
}
