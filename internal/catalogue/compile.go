package catalogue

import (
	"errors"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	base    = "https://schema.invalid/" // what relative references of a schema lead to
	address = base + "event-type"       // of a schema, within its compiler

	draft7    = "http://json-schema.org/draft-07/schema"
	draft2020 = "https://json-schema.org/draft/2020-12/schema"
)

// newChecker compiles a schema. The error is a *SchemaError.
func newChecker(text []byte) (c *checker, err error) {
	if len(text) > MaxSchema {
		return nil, schemaError("", "is larger than %d bytes", MaxSchema)
	}
	doc, err := decode(text)
	if err != nil {
		return nil, schemaError("", "is not JSON")
	}
	if err := checkDocument(doc); err != nil {
		return nil, err
	}
	// What it costs to compile is bounded by the document's size and its patterns.
	b := &budget{left: math.MaxInt, factor: 1}
	p := &patterns{budget: b}
	root, err := compile(doc, p)
	if err != nil {
		return nil, err
	}
	p.sealed = true
	g := graph{budget: b, state: map[*jsonschema.Schema]int{}, names: map[string]struct{}{}}
	if err := g.check(root); err != nil {
		return nil, err
	}
	for s := range g.state {
		b.watch(s)
	}
	return &checker{budget: b, root: root, not: &jsonschema.Schema{Not: root, DraftVersion: root.DraftVersion}, names: g.names}, nil
}

// checkDocument checks what makes compiling expensive, and the dialect.
func checkDocument(doc any) error {
	object, ok := doc.(map[string]any)
	if !ok {
		return schemaError("", "must be an object")
	}
	if dialect, given := object["$schema"]; given {
		name, _ := dialect.(string)
		if name = strings.TrimSuffix(name, "#"); name != draft7 && name != draft2020 {
			return schemaError("/$schema", "must be %q or %q", draft2020, draft7+"#")
		}
	}
	numbers := numberWalk{}
	numbers.walk(doc)
	if numbers.found != nil {
		return schemaError(pointer(numbers.found.path), "%s", numbers.found.message)
	}
	if numbers.deepest > maxSchemaDepth {
		return schemaError("", "is nested more than %d levels deep", maxSchemaDepth)
	}
	if n := schemasIn(doc); n > maxSchemas {
		return schemaError("", "has more than %d objects and booleans", maxSchemas)
	}
	return nil
}

// schemasIn counts the values that may be schemas.
func schemasIn(v any) int {
	n := 0
	switch v := v.(type) {
	case bool:
		n = 1
	case []any:
		for _, item := range v {
			n += schemasIn(item)
		}
	case map[string]any:
		n = 1
		for _, item := range v {
			n += schemasIn(item)
		}
	}
	return n
}

// nothing loads nothing: a schema refers to its own parts only.
type nothing struct{}

var errOutside = errors.New("outside")

// Load implements jsonschema.URLLoader.
func (nothing) Load(string) (any, error) { return nil, errOutside }

func compile(doc any, p *patterns) (root *jsonschema.Schema, err error) {
	defer func() {
		if err = recovered(recover(), err); err != nil {
			err = compileError(err)
		}
	}()
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(nothing{})
	compiler.UseRegexpEngine(p.compile)
	if err := compiler.AddResource(address, doc); err != nil {
		return nil, err //nolint:wrapcheck // see compileError
	}
	return compiler.Compile(address) //nolint:wrapcheck // see compileError
}

// compileError is an error of the library in our words.
func compileError(err error) error {
	if known, ok := errors.AsType[*SchemaError](err); ok {
		return known
	}
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if failed, ok := invalid.Err.(*jsonschema.ValidationError); ok { //nolint:errorlint // it is no other
			found := (&checker{}).describe(failed)
			if len(found) > 0 {
				return schemaError(fragment(invalid.URL)+found[0].Pointer, "%s", found[0].Message)
			}
		}
	}
	if bad, ok := errors.AsType[*jsonschema.InvalidRegexError](err); ok {
		return schemaError(fragment(bad.URL), "%s", bad.Err)
	}
	if missing, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		return schemaError("", "$ref leads to #%s, which does not exist", fragment(missing.URL))
	}
	if missing, ok := errors.AsType[*jsonschema.AnchorNotFoundError](err); ok {
		return schemaError("", "$ref leads to the anchor #%s, which does not exist", fragment(missing.Reference))
	}
	if outside, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return outsideError(outside.URL)
	}
	return schemaError("", "cannot be compiled")
}

// outsideError refuses a reference to another document.
func outsideError(where string) error {
	return schemaError("", "$ref leads to %q: only parts of the same schema can be referred to, as in #/$defs/name",
		cut(strings.TrimPrefix(where, base), maxShownPointer/2))
}

// fragment is the JSON pointer, or the anchor, of an address within a schema.
func fragment(location string) string {
	_, part, _ := strings.Cut(location, "#")
	if plain, err := url.PathUnescape(part); err == nil {
		return plain
	}
	return part
}

// graph walks the compiled schemas that can be reached.
type graph struct {
	budget *budget
	state  map[*jsonschema.Schema]int // 0: under way; otherwise one more than how many in a row apply to the same value
	names  map[string]struct{}        // of properties
}

// check walks from a schema to the others: those for the same value at once, which must not come back to it, and those for parts of it.
func (g *graph) check(root *jsonschema.Schema) error {
	waiting := []*jsonschema.Schema{root}
	for len(waiting) > 0 {
		s := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		if _, known := g.state[s]; known {
			continue
		}
		parts, err := g.inPlace(s)
		if err != nil {
			return err
		}
		waiting = append(waiting, parts...)
	}
	return nil
}

// inPlace walks the schemas that apply to the same value, and returns those for parts of it.
func (g *graph) inPlace(s *jsonschema.Schema) (parts []*jsonschema.Schema, err error) {
	if depth, known := g.state[s]; known {
		if depth == 0 {
			return nil, schemaError(fragment(s.Location), "refers to itself for the same value, without end")
		}
		return nil, nil
	}
	if err := own(s); err != nil {
		return nil, err
	}
	g.state[s] = 0
	depth := 1
	for _, next := range applied(s) {
		more, err := g.inPlace(next)
		if err != nil {
			return nil, err
		}
		parts = append(parts, more...)
		depth = max(depth, 1+g.state[next])
	}
	if depth > maxInPlace {
		return nil, schemaError(fragment(s.Location), "applies more than %d schemas in a row to the same value", maxInPlace)
	}
	g.state[s] = depth
	for name := range s.Properties {
		g.names[name] = struct{}{}
	}
	for _, name := range s.Required {
		g.names[name] = struct{}{}
	}
	return append(parts, partsOf(s)...), nil
}

// own refuses what is not of the schema itself, and what cannot be followed.
func own(s *jsonschema.Schema) error {
	switch {
	case !strings.HasPrefix(s.Location, address+"#"):
		where, _, _ := strings.Cut(s.Location, "#")
		return outsideError(where)
	case s.DraftVersion != 7 && s.DraftVersion != 2020: //nolint:mnd // drafts
		return schemaError(fragment(s.Location), "has another $schema: only 2020-12 and draft-07 are supported")
	case s.DynamicRef != nil || s.RecursiveRef != nil:
		return schemaError(fragment(s.Location), "has $dynamicRef, which is not supported: use $ref")
	}
	return nil
}

// applied are the schemas that apply to the same value as s.
func applied(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(s.AllOf, s.AnyOf, s.OneOf, []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else})
	for _, one := range s.DependentSchemas {
		all = append(all, one)
	}
	for _, one := range s.Dependencies {
		if schema, ok := one.(*jsonschema.Schema); ok {
			all = append(all, schema)
		}
	}
	return slices.DeleteFunc(all, func(one *jsonschema.Schema) bool { return one == nil })
}

// partsOf are the schemas that apply to parts of a value.
func partsOf(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(s.PrefixItems, []*jsonschema.Schema{
		s.PropertyNames, s.UnevaluatedProperties, s.UnevaluatedItems, s.Contains, s.Items2020, s.ContentSchema,
	})
	for _, one := range s.Properties {
		all = append(all, one)
	}
	for _, one := range s.PatternProperties {
		all = append(all, one)
	}
	for _, one := range []any{s.AdditionalProperties, s.AdditionalItems, s.Items} {
		switch one := one.(type) {
		case *jsonschema.Schema:
			all = append(all, one)
		case []*jsonschema.Schema:
			all = append(all, one...)
		}
	}
	return slices.DeleteFunc(all, func(one *jsonschema.Schema) bool { return one == nil })
}

// indexed reports whether a name looks like the index of an array. A longer number may be someone's, as a name of an object.
func indexed(name string) bool {
	_, err := strconv.ParseUint(name, 10, 16)
	return err == nil && len(name) <= maxShownIndex
}

const maxShownIndex = 4 // digits
