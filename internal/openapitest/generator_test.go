package openapitest_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/openapitest"
)

// generator generates values from the document's schemas, most of them valid.
type generator struct {
	document *openapitest.Document

	// known are values for properties and parameters by name, such as existing ids; random
	// ones are generated as well.
	known map[string][]any
}

const (
	maxDepth  = 4 // of values without a schema
	maxSample = 3 // entries of an array without bounds
)

// body generates an operation's request body as JSON, "" when it has none. A third of the
// bodies are made invalid.
func (g generator) body(t *rapid.T, o openapitest.Operation) string {
	schema := g.document.In(o, "requestBody", "content", "application/json", "schema")
	if schema == nil {
		return ""
	}
	if g.document.In(o, "requestBody", "required") != true && rapid.Bool().Draw(t, "no body") {
		return ""
	}
	value := g.value(t, schema, "")
	spoil := rapid.IntRange(0, 8).Draw(t, "spoil")
	if spoil == 0 {
		value = g.spoiled(t, value)
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	switch spoil {
	case 1: // replace the whole value
		text = []byte(rapid.SampledFrom([]string{
			"[]", "null", "1e999", "{", "{}{}", `{"a":1,"a":2}`, "\x00", "\xff", `"` + strings.Repeat("x", 1000) + `"`, "{\"\\ud800\":1}",
			strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), strings.Repeat("[", 100_000),
		}).Draw(t, "body"))
	case 2: // change a byte
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		text[at] = rapid.Byte().Draw(t, "byte")
	}
	return string(text)
}

// query generates some of a list's parameters, without "?".
func (g generator) query(t *rapid.T, o openapitest.Operation) map[string]string {
	query := map[string]string{}
	parameters, _ := g.document.In(o, "parameters").([]any)
	for _, p := range parameters {
		name, _ := g.document.Of(p, "name").(string)
		if g.document.Of(p, "in") != "query" || !rapid.Bool().Draw(t, name) {
			continue
		}
		value := g.value(t, g.document.Of(p, "schema"), name)
		if several, ok := value.([]any); ok {
			if len(several) == 0 {
				continue
			}
			value = several[0]
		}
		text, ok := value.(string)
		if !ok {
			raw, _ := json.Marshal(value)
			text = string(raw)
		}
		query[name] = text
	}
	if rapid.IntRange(0, 9).Draw(t, "spoil the query") == 0 {
		name := rapid.SampledFrom(append(slices.Sorted(maps.Keys(query)), "unknown", "limit", "cursor")).Draw(t, "parameter")
		query[name] = rapid.SampledFrom([]string{"", "-1", "\x00", "\xff", "null", strings.Repeat("9", 400), "A A"}).Draw(t, "value")
	}
	return query
}

// value generates a valid value of a schema, as far as the keywords of these schemas
// permit. name is the name of the property.
func (g generator) value(t *rapid.T, schema any, name string) any {
	m, _ := g.document.Of(schema).(map[string]any)
	if known := g.known[name]; len(known) > 0 && rapid.IntRange(0, 3).Draw(t, "known "+name) > 0 {
		return rapid.SampledFrom(known).Draw(t, name)
	}
	if fixed, ok := m["const"]; ok {
		return fixed
	}
	if values, ok := m["enum"].([]any); ok {
		return rapid.SampledFrom(values).Draw(t, name)
	}
	for _, word := range []string{"anyOf", "oneOf"} {
		if choices, ok := m[word].([]any); ok && m["properties"] == nil {
			return g.value(t, rapid.SampledFrom(choices).Draw(t, "choice for "+name), name)
		}
	}
	switch g.kind(t, m) {
	case "object":
		return g.object(t, m)
	case "array":
		low, high := bound(m, "minItems", 0), bound(m, "maxItems", maxSample)
		items := make([]any, 0, maxSample)
		for range rapid.IntRange(int(low), int(min(high, max(low, maxSample)))).Draw(t, "items of "+name) {
			items = append(items, g.value(t, m["items"], name))
		}
		return items
	case "string":
		return g.text(t, m, name)
	case "integer":
		return rapid.Int64Range(int64(bound(m, "minimum", -10)), int64(bound(m, "maximum", 1e6))).Draw(t, name)
	case "number":
		return rapid.Float64Range(bound(m, "minimum", -10), bound(m, "maximum", 1e6)).Draw(t, name)
	case "boolean":
		return rapid.Bool().Draw(t, name)
	case "null":
		return nil
	}
	return anything(t, maxDepth)
}

// kind returns the type of a schema, a random one of several.
func (g generator) kind(t *rapid.T, m map[string]any) string {
	switch kind := m["type"].(type) {
	case string:
		return kind
	case []any:
		one, _ := rapid.SampledFrom(kind).Draw(t, "type").(string)
		return one
	}
	if m["properties"] != nil || m["allOf"] != nil {
		return "object"
	}
	return ""
}

// object generates the required properties and some of the others.
func (g generator) object(t *rapid.T, m map[string]any) map[string]any {
	made := map[string]any{}
	parts := []any{m}
	var chosen []any // properties that one of several choices requires
	if choices, ok := m["anyOf"].([]any); ok {
		choice, _ := rapid.SampledFrom(choices).Draw(t, "choice").(map[string]any)
		chosen, _ = choice["required"].([]any)
	}
	if all, ok := m["allOf"].([]any); ok {
		parts = append(parts, all...)
	}
	for _, part := range parts {
		p, _ := g.document.Of(part).(map[string]any)
		properties, _ := p["properties"].(map[string]any)
		required, _ := p["required"].([]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if slices.Contains(slices.Concat(required, chosen), any(name)) || rapid.IntRange(0, 3).Draw(t, "has "+name) == 0 {
				made[name] = g.value(t, properties[name], name)
			}
		}
	}
	if open, ok := m["additionalProperties"].(map[string]any); ok {
		for range rapid.IntRange(0, 2).Draw(t, "entries") {
			made[rapid.StringMatching(`[A-Za-z-]{1,12}`).Draw(t, "entry")] = g.value(t, open, "")
		}
	}
	return made
}

func (g generator) text(t *rapid.T, m map[string]any, name string) string {
	if pattern, ok := m["pattern"].(string); ok {
		return rapid.StringMatching(pattern).Draw(t, name)
	}
	if m["format"] == "date-time" {
		at := time.Now().Add(time.Duration(rapid.IntRange(-100, 100).Draw(t, "hours")) * time.Hour)
		return at.UTC().Format(time.RFC3339)
	}
	low, high := int(bound(m, "minLength", 0)), int(bound(m, "maxLength", 300))
	return rapid.StringN(low, min(high, max(low, 300)), -1).Draw(t, name)
}

// bound returns a numeric keyword of a schema, or the default.
func bound(m map[string]any, word string, without float64) float64 {
	n, ok := m[word].(json.Number)
	if !ok {
		return without
	}
	f, err := n.Float64()
	if err != nil {
		return without
	}
	return f
}

// anything generates any JSON value.
func anything(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
	case kind == 0:
		return nil
	case kind == 1:
		return rapid.Bool().Draw(t, "bool")
	case kind == 2:
		return rapid.Float64Range(-1e300, 1e300).Draw(t, "number")
	case kind == 3 || depth == 0:
		return rapid.String().Draw(t, "text")
	case kind == 4:
		return rapid.Int64().Draw(t, "integer")
	case kind == 5:
		return []any{anything(t, depth-1), anything(t, depth-1)}
	}
	return map[string]any{rapid.String().Draw(t, "name"): anything(t, depth-1)}
}

// spoiled is a value in which something is replaced, added or removed. What is known stays as it is.
func (g generator) spoiled(t *rapid.T, value any) any {
	m, ok := value.(map[string]any)
	if !ok || len(m) == 0 {
		return anything(t, 1)
	}
	m = maps.Clone(m)
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, "spoil what")
	switch rapid.IntRange(0, 4).Draw(t, "spoil how") {
	case 0:
		delete(m, name)
	case 1:
		m[rapid.String().Draw(t, "unknown")] = anything(t, 1)
	case 2:
		m[name] = rapid.SampledFrom([]any{
			"", strings.Repeat("ä", 5000), "a\x00b", -1, 1e18, 0.5, true, nil, []any{}, map[string]any{}, []any{nil, nil},
		}).Draw(t, "instead")
	default:
		m[name] = g.spoiled(t, m[name])
	}
	return m
}
