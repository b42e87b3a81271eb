package catalogue

import (
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// errWork ends a validation that has used up its steps.
var errWork = errors.New("the payload takes too much work to be checked against the schema")

// budget counts the steps of one validation at a time. The library has no bound of its own: a schema of 1 KiB can apply another
// 2^30 times to one value. So each schema gets an assertion that is checked first, and counts: see watch.
//
// Steps are counted, and not time: the same payload has the same result on a busy machine.
type budget struct {
	left   int
	factor int // of each step
}

func (b *budget) spend(steps int) {
	if b.left -= steps * b.factor; b.left < 0 {
		panic(errWork)
	}
}

// assertion is what a schema says of a value by itself, without its parts.
type assertion struct {
	budget *budget
	fixed  int // steps of each check

	never  bool // the schema is false
	types  []string
	enum   []any
	texts  map[string]struct{} // the strings of enum
	size   int                 // values within enum
	format *jsonschema.Format
	unique bool
}

// watch moves type, enum, const, format and false of a compiled schema into an assertion that counts its steps. The library checks
// format before all that can take long; the others would come before it, unseen.
func (b *budget) watch(s *jsonschema.Schema) {
	parts := len(s.Required) + len(s.PatternProperties) + len(s.AllOf) + len(s.AnyOf) + len(s.OneOf)
	a := &assertion{budget: b, fixed: 1 + parts/8, format: s.Format, unique: s.UniqueItems}
	for _, names := range s.DependentRequired {
		a.fixed += 1 + len(names)/8
	}
	a.never = s.Bool != nil && !*s.Bool
	if s.Types != nil {
		a.types = s.Types.ToStrings()
	}
	switch {
	case s.Const != nil && s.Enum != nil:
		a.setEnum(nil)
		for _, v := range s.Enum.Values {
			if equal(v, *s.Const) {
				a.setEnum([]any{v})
			}
		}
	case s.Const != nil:
		a.setEnum([]any{*s.Const})
	case s.Enum != nil:
		a.setEnum(s.Enum.Values)
	}
	s.Bool, s.Types, s.Const, s.Enum = nil, nil, nil, nil
	s.Format = &jsonschema.Format{Name: "assertion", Validate: a.check}
}

func (a *assertion) setEnum(values []any) {
	a.enum, a.texts, a.size = values, map[string]struct{}{}, 0
	if values == nil {
		a.enum = []any{}
	}
	for _, v := range values {
		if text, ok := v.(string); ok {
			a.texts[text] = struct{}{}
		} else {
			a.size += nodes(v)
		}
	}
}

// failure is the message of an assertion that a value does not meet.
type failure string

func (f failure) Error() string { return string(f) }

// check is nil if the value meets the assertion.
func (a *assertion) check(v any) error {
	steps := a.fixed
	switch v := v.(type) {
	case string:
		steps += len(v) / 64
	case []any:
		steps += len(v)
		if a.unique {
			steps += nodes(v)
		}
	case map[string]any:
		steps += len(v)
	}
	a.budget.spend(steps)
	switch {
	case a.never:
		return failure("is not allowed")
	case a.types != nil && !isAny(v, a.types):
		return failure("must be " + typesInWords(a.types))
	case a.enum != nil && !a.isListed(v):
		return failure(a.listInWords())
	case a.format != nil:
		if err := a.format.Validate(v); err != nil {
			return failure("must have the format " + a.format.Name)
		}
	}
	return nil
}

func (a *assertion) isListed(v any) bool {
	if text, ok := v.(string); ok {
		_, listed := a.texts[text]
		return listed
	}
	a.budget.spend(a.size)
	for _, listed := range a.enum {
		if equal(v, listed) {
			return true
		}
	}
	return false
}

func (a *assertion) listInWords() string {
	if len(a.enum) == 0 {
		return "is not allowed"
	}
	var b strings.Builder
	for i, v := range a.enum {
		if i > 0 {
			b.WriteString(", ")
		}
		if text, err := json.Marshal(v); err == nil { // it was decoded from JSON
			b.Write(text)
		}
		if b.Len() > maxShownMessage {
			break
		}
	}
	if len(a.enum) == 1 {
		return cut("must be "+b.String(), maxShownMessage)
	}
	return cut("must be one of "+b.String(), maxShownMessage)
}

// nodes counts the values within a value, itself included.
func nodes(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			n += nodes(item)
		}
	case map[string]any:
		for _, item := range v {
			n += nodes(item)
		}
	}
	return n
}

// isAny reports whether a value has one of the types of JSON Schema. A number without a fraction is an integer, whatever its notation.
func isAny(v any, types []string) bool {
	own := "null"
	switch v := v.(type) {
	case bool:
		own = "boolean"
	case string:
		own = "string"
	case []any:
		own = "array"
	case map[string]any:
		own = "object"
	case json.Number:
		own = "number"
		for _, t := range types {
			if t == "integer" && isInteger(v) {
				return true
			}
		}
	}
	return slices.Contains(types, own)
}

func isInteger(n json.Number) bool {
	if !strings.ContainsAny(string(n), ".eE") {
		return true
	}
	r, ok := new(big.Rat).SetString(string(n))
	return ok && r.IsInt()
}

func typesInWords(types []string) string {
	words := make([]string, len(types))
	for i, t := range types {
		switch t {
		case "null":
			words[i] = t
		case "array", "integer", "object":
			words[i] = "an " + t
		default:
			words[i] = "a " + t
		}
	}
	return strings.Join(words, " or ")
}

// equal compares two decoded values as JSON Schema does: numbers by value, objects in any order. It does not look at more values than the
// smaller one has.
func equal(a, b any) bool {
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, v := range a {
			other, ok := b[name]
			if !ok || !equal(v, other) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(a, b)
	}
	return a == b
}

func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	if a != "-0" && b != "-0" && !strings.ContainsAny(string(a), ".eE") && !strings.ContainsAny(string(b), ".eE") {
		return false // whole numbers have one notation
	}
	x, okX := new(big.Rat).SetString(string(a))
	y, okY := new(big.Rat).SetString(string(b))
	return okX && okY && x.Cmp(y) == 0
}
