package catalogue

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/everpost/everpost/internal/jsonref"
)

const (
	maxProperties = 2000   // that a comparison looks at
	maxNesting    = 32     // levels of a payload
	maxCompared   = 20_000 // steps: one for each schema, each name in it, and each 100 bytes of a pointer
)

// Change is what a version of a schema takes away from receivers and asks of senders, against the one before. Its entries are JSON pointers into
// a payload, with * for the index of an array. Only what properties, items, required, type, $ref and allOf say is compared.
type Change struct {
	Removed  []string // properties that are gone
	Required []string // properties that must be there now
	Retyped  []string // properties that have other types
}

// IsZero reports whether there is no such change.
func (c Change) IsZero() bool { return len(c.Removed)+len(c.Required)+len(c.Retyped) == 0 }

// Compare compares two schemas; nil is one that allows everything.
func Compare(before, after []byte) Change {
	old, now := outlineOf(before), outlineOf(after)
	var c Change
	for _, at := range slices.Sorted(maps.Keys(old)) {
		o := old[at]
		if n, there := now[at]; !there {
			parent := at[:strings.LastIndexByte(at, '/')]
			if !strings.HasSuffix(at, "/*") && (parent == "" || now[parent] != nil) { // of what is gone as a whole, only that
				c.Removed = append(c.Removed, at)
			}
		} else if !slices.Equal(o.types, n.types) {
			c.Retyped = append(c.Retyped, at)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(now)) {
		if o := old[at]; now[at].required && (o == nil || !o.required) {
			c.Required = append(c.Required, at)
		}
	}
	return c
}

// property is what a schema says of one property.
type property struct {
	required bool
	types    []string // sorted; nil: any
}

// outline is what a schema says of the properties of a payload, by their pointers.
type outline struct {
	root       map[string]any
	properties map[string]*property
	seen       map[visit]bool
	steps      int
}

// visit is a schema, by its address, for the value at a pointer.
type visit struct {
	schema  uintptr
	pointer string
}

func outlineOf(schema []byte) map[string]*property {
	return newOutline(schema).properties
}

func newOutline(schema []byte) *outline {
	o := &outline{properties: map[string]*property{}, seen: map[visit]bool{}}
	if doc, err := decode(schema); err == nil {
		o.root, _ = doc.(map[string]any)
		o.walk(o.root, "", 0)
	}
	return o
}

// walk adds the properties of a schema for the value at a pointer, once.
func (o *outline) walk(schema map[string]any, at string, level int) {
	known, _ := schema["properties"].(map[string]any)
	required := list(schema["required"])
	this := visit{reflect.ValueOf(schema).Pointer(), at}
	o.steps++
	if o.seen[this] || level > maxNesting || len(o.properties) >= maxProperties {
		return
	}
	if o.steps += len(known) + len(required); o.steps > maxCompared {
		return
	}
	o.seen[this] = true
	if target := jsonref.Target(o.root, schema); target != nil {
		o.walk(target, at, level)
	}
	for _, one := range list(schema["allOf"]) {
		if part, ok := one.(map[string]any); ok {
			o.walk(part, at, level)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		child := at + pointerTo(name)
		if o.steps += len(child) / 100; o.steps > maxCompared {
			return
		}
		o.at(child)
		if part, ok := known[name].(map[string]any); ok {
			o.setTypes(child, part)
			o.walk(part, child, level+1)
		}
	}
	for _, one := range required {
		name, ok := one.(string)
		if o.steps += (len(at) + len(name)) / 100; o.steps > maxCompared {
			return
		}
		if ok && len(o.properties) < maxProperties {
			o.at(at + pointerTo(name)).required = true
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		o.at(at + "/*")
		o.setTypes(at+"/*", items)
		o.walk(items, at+"/*", level+1)
	}
}

func (o *outline) at(pointer string) *property {
	if o.properties[pointer] == nil {
		o.properties[pointer] = &property{}
	}
	return o.properties[pointer]
}

// setTypes sets the types of a property, those behind a reference too.
func (o *outline) setTypes(pointer string, schema map[string]any) {
	for hops := 0; schema != nil && hops < maxInPlace; hops++ {
		var types []string
		switch given := schema["type"].(type) {
		case string:
			types = []string{given}
		case []any:
			for _, one := range given {
				if name, ok := one.(string); ok {
					types = append(types, name)
				}
			}
		}
		if types != nil {
			slices.Sort(types)
			o.at(pointer).types = types
			return
		}
		schema = jsonref.Target(o.root, schema)
	}
}

func list(v any) []any {
	all, _ := v.([]any)
	return all
}

func pointerTo(name string) string { return pointer([]string{name}) }
