// Package schema reads what a JSON Schema says of the fields of a payload, for a table that people read. It is pure. It is no validator: what a
// table cannot show, such as conditions, is left out.
package schema

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/everpost/everpost/internal/jsonref"
)

// Bounds of a table. What is beyond them is left out.
const (
	MaxFields = 200
	MaxDepth  = 6 // levels of fields within fields
	MaxValues = 8 // of a field that has a few only

	maxReferences = 16     // to the same field
	maxSteps      = 20_000 // one for each schema that is looked at, and each name in it
)

// Field is a field of a payload.
type Field struct {
	Name        string
	Depth       int // 0: of the payload itself
	Types       []string
	Items       []string // the types of a list's elements; none if they are not known, or it is no list
	Format      string   // as date-time
	Values      []string // as JSON, of a field that has a few only
	MoreValues  bool
	Required    bool
	Deprecated  bool
	Description string
}

// Fields are the fields that a schema names, each followed by those within it. more says that there are others. A text that is no JSON object
// has none.
func Fields(text []byte) (fields []Field, more bool) {
	r := reader{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // a large number is shown as it is written
	if d.Decode(&r.root) != nil {
		return nil, false
	}
	r.within(r.root, 0)
	return r.fields, r.more
}

type reader struct {
	root   map[string]any
	fields []Field
	more   bool
	steps  int
}

// within adds the fields of an object, or of the elements of a list.
func (r *reader) within(schema map[string]any, depth int) {
	properties, required := map[string]any{}, map[string]bool{}
	for _, part := range r.parts(schema) {
		named, _ := part["properties"].(map[string]any)
		if len(named) > 0 && (len(r.fields) == MaxFields || depth == MaxDepth) {
			r.more = true
			return
		}
		if r.steps += len(named) + len(list(part["required"])); r.steps > maxSteps {
			r.more = true
			return
		}
		maps.Copy(properties, named)
		for _, name := range texts(part["required"]) {
			required[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if len(r.fields) == MaxFields {
			r.more = true
			return
		}
		of, _ := properties[name].(map[string]any)
		f, inner := r.field(of)
		f.Name, f.Depth, f.Required = name, depth, required[name]
		r.fields = append(r.fields, f)
		for _, one := range inner {
			r.within(one, depth+1)
		}
	}
}

// field is what a schema says of a field, and the schemas of what is in it.
func (r *reader) field(schema map[string]any) (f Field, inner []map[string]any) {
	for _, part := range r.parts(schema) {
		f.Types = union(f.Types, typesOf(part))
		if text, ok := part["description"].(string); ok && f.Description == "" {
			f.Description = text
		}
		if text, ok := part["format"].(string); ok && f.Format == "" {
			f.Format = text
		}
		if yes, ok := part["deprecated"].(bool); ok && yes {
			f.Deprecated = true
		}
		if f.Values == nil {
			f.Values, f.MoreValues = valuesOf(part)
		}
		for _, choice := range alternatives(part) {
			for _, one := range r.parts(choice) {
				f.Types = union(f.Types, typesOf(one))
			}
		}
		if items, ok := part["items"].(map[string]any); ok {
			for _, one := range r.parts(items) {
				f.Items = union(f.Items, typesOf(one))
			}
			inner = append(inner, items)
		}
	}
	return f, append(inner, schema)
}

// parts are a schema, what it refers to, and what holds besides, each once: they say something of the same value.
func (r *reader) parts(schema map[string]any) []map[string]any {
	return r.partsOf(schema, 0, map[uintptr]bool{})
}

// partsOf are the parts that are not among the seen, which are known by their addresses.
func (r *reader) partsOf(schema map[string]any, hops int, seen map[uintptr]bool) []map[string]any {
	r.steps++
	address := reflect.ValueOf(schema).Pointer()
	if schema == nil || seen[address] || hops > maxReferences || r.steps > maxSteps {
		return nil
	}
	seen[address] = true
	parts := []map[string]any{schema}
	if target := jsonref.Target(r.root, schema); target != nil {
		parts = append(parts, r.partsOf(target, hops+1, seen)...)
	}
	for _, one := range list(schema["allOf"]) {
		part, _ := one.(map[string]any)
		parts = append(parts, r.partsOf(part, hops+1, seen)...)
	}
	return parts
}

// alternatives are schemas one of which holds. Only their types are shown.
func alternatives(schema map[string]any) (found []map[string]any) {
	for _, name := range []string{"oneOf", "anyOf"} {
		for _, one := range list(schema[name]) {
			if part, ok := one.(map[string]any); ok {
				found = append(found, part)
			}
		}
	}
	return found
}

// typesOf are the types that a schema names; for one without, those that its other words are about.
func typesOf(schema map[string]any) []string {
	if name, ok := schema["type"].(string); ok {
		return []string{name}
	}
	if named := texts(schema["type"]); len(named) > 0 {
		return named
	}
	switch {
	case schema["properties"] != nil:
		return []string{"object"}
	case schema["items"] != nil:
		return []string{"array"}
	}
	return nil
}

// valuesOf are the values of enum and const, as JSON.
func valuesOf(schema map[string]any) (values []string, more bool) {
	all := list(schema["enum"])
	if one, ok := schema["const"]; ok {
		all = []any{one}
	}
	for _, one := range all[:min(len(all), MaxValues)] {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(one) //nolint:errchkjson // it was read from JSON
		values = append(values, strings.TrimSpace(b.String()))
	}
	return values, len(all) > MaxValues
}

func list(v any) []any {
	all, _ := v.([]any)
	return all
}

func texts(v any) (found []string) {
	for _, one := range list(v) {
		if text, ok := one.(string); ok {
			found = append(found, text)
		}
	}
	return found
}

func union(a, b []string) []string {
	for _, text := range b {
		if !slices.Contains(a, text) {
			a = append(a, text)
		}
	}
	return a
}
