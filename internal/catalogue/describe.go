package catalogue

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// describe lists what the library found, in our words and without values of the payload.
func (c *checker) describe(failed *jsonschema.ValidationError) []Mismatch {
	var all []Mismatch
	c.collect(failed, &all)
	slices.SortFunc(all, func(a, b Mismatch) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Message, b.Message))
	})
	all = slices.Compact(all)
	if len(all) == 0 {
		return []Mismatch{{Message: "does not match the schema"}}
	}
	return all[:min(len(all), MaxMismatches)]
}

// collect adds the innermost errors. Of alternatives of which none matches it adds only that, because each of them says something else.
func (c *checker) collect(e *jsonschema.ValidationError, all *[]Mismatch) {
	switch k := e.ErrorKind.(type) {
	case nil:
	case *kind.AnyOf, *kind.OneOf:
		c.add(all, e.InstanceLocation, alternatives(k))
	case *kind.PropertyNames:
		c.add(all, append(slices.Clone(e.InstanceLocation), k.Property), nameInWords(e))
	case *kind.Contains:
		c.add(all, e.InstanceLocation, "has no item of the kind that it must contain")
	case *kind.MinContains:
		c.add(all, e.InstanceLocation, fmt.Sprintf("must have at least %d items of a kind, and has %d", k.Want, len(k.Got)))
	case *kind.Required:
		c.addMissing(all, e.InstanceLocation, k.Missing)
	case *kind.DependentRequired:
		c.addMissing(all, e.InstanceLocation, k.Missing)
	case *kind.Dependency:
		c.addMissing(all, e.InstanceLocation, k.Missing)
	case *kind.AdditionalProperties:
		for _, name := range k.Properties[:min(len(k.Properties), MaxMismatches)] {
			c.add(all, append(slices.Clone(e.InstanceLocation), name), "is not a property of the schema")
		}
	default:
		if len(e.Causes) == 0 {
			c.add(all, e.InstanceLocation, inWords(k))
		}
		for _, cause := range e.Causes {
			c.collect(cause, all)
		}
	}
}

// nameInWords says what is wrong with the name of a property.
func nameInWords(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	switch k := e.ErrorKind.(type) {
	case nil, *kind.PropertyNames:
		return "has a name that is not allowed"
	case *kind.Format:
		if k.Want == "regex" { // a pattern of the schema
			return inWords(k)
		}
	}
	return "has a name that " + inWords(e.ErrorKind)
}

func alternatives(k jsonschema.ErrorKind) string {
	if one, ok := k.(*kind.OneOf); ok && one.Subschemas != nil {
		return "must match only one of the alternatives, and matches several"
	}
	return "must match one of the alternatives"
}

func (c *checker) addMissing(all *[]Mismatch, path, missing []string) {
	for _, name := range missing[:min(len(missing), MaxMismatches)] {
		c.add(all, append(slices.Clone(path), name), "is required")
	}
}

func (c *checker) add(all *[]Mismatch, path []string, message string) {
	*all = append(*all, c.mismatch(path, message))
}

func (c *checker) mismatch(path []string, message string) Mismatch {
	known := slices.Clone(path)
	for i, name := range known {
		if _, ok := c.names[name]; !ok && !indexed(name) {
			known[i] = "*"
		}
	}
	return Mismatch{Pointer: pointer(path), Known: pointer(known), Message: cut(message, maxShownMessage)}
}

// inWords is a clause about a value that says what it must be.
func inWords(k jsonschema.ErrorKind) string { //nolint:cyclop // one case for each kind
	switch k := k.(type) {
	case *kind.Format:
		if own, ok := k.Err.(failure); ok { //nolint:errorlint // an assertion returns no other
			return string(own)
		}
		if k.Want == "regex" { // of the meta-schema: our own engine says what is wrong
			return k.Err.Error()
		}
		return "must have the format " + k.Want
	case *kind.Type: // of the meta-schema
		return "must be " + typesInWords(k.Want)
	case *kind.MinProperties:
		return "must have at least " + strconv.Itoa(k.Want) + " properties"
	case *kind.MaxProperties:
		return "must have at most " + strconv.Itoa(k.Want) + " properties"
	case *kind.MinItems:
		return "must have at least " + strconv.Itoa(k.Want) + " items"
	case *kind.MaxItems:
		return "must have at most " + strconv.Itoa(k.Want) + " items"
	case *kind.AdditionalItems:
		return "has " + strconv.Itoa(k.Count) + " more items than the schema allows"
	case *kind.UniqueItems:
		return fmt.Sprintf("must have different items; %d and %d are equal", k.Duplicates[0], k.Duplicates[1])
	case *kind.MaxContains:
		return fmt.Sprintf("must have at most %d items of a kind, and has %d", k.Want, len(k.Got))
	case *kind.MinLength:
		return "must have at least " + strconv.Itoa(k.Want) + " characters"
	case *kind.MaxLength:
		return "must have at most " + strconv.Itoa(k.Want) + " characters"
	case *kind.Pattern:
		return "must match the pattern " + k.Want
	case *kind.Minimum:
		return "must be at least " + number(k.Want)
	case *kind.Maximum:
		return "must be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be above " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be below " + number(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want)
	case *kind.Not:
		return "matches what the schema excludes"
	case *kind.FalseSchema:
		return "is not allowed"
	}
	return "does not match the schema"
}

// number is a number of a schema, short.
func number(r *big.Rat) string {
	if r.IsInt() {
		return cut(r.Num().String(), maxNumber/2)
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
