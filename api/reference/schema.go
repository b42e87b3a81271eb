package reference

import (
	"html/template"
	"slices"
	"strings"
)

// Bounds of what is shown of a schema, in levels and in fields.
const (
	maxNesting = 4
	maxFields  = 150
)

// field is a field of an object, or a parameter of a request.
type field struct {
	Name        string // with the names that it is in: limits.burst, errors[].field
	In          string // of a parameter: path, query or header
	Type        []piece
	Bounds      string // in words
	Required    bool
	Description template.HTML
}

// piece is a part of a type's name. A named type has an address.
type piece struct{ Text, Address string }

// variant is one of the forms that a value may have.
type variant struct {
	Type        []piece
	Description template.HTML
	Fields      []field
}

// schema is a named type.
type schema struct {
	Name        string
	Description template.HTML
	Type        []piece
	Bounds      string
	Fields      []field
	Variants    []variant
}

func (p *pages) schema(name string, of node) (s schema, err error) {
	s = schema{Name: name, Type: typeOf(of), Bounds: bounds(of)}
	if s.Description, err = p.prose(of.own("description").text()); err != nil {
		return s, err
	}
	if s.Fields, err = p.fields(of, "", 0); err != nil {
		return s, err
	}
	for _, form := range append(of.own("oneOf").items(), of.own("anyOf").items()...) {
		v := variant{Type: typeOf(form)}
		if form.schemaName() == "" {
			if v.Description, err = p.prose(form.own("description").text()); err != nil {
				return s, err
			}
			if v.Fields, err = p.fields(form, "", 0); err != nil {
				return s, err
			}
		}
		s.Variants = append(s.Variants, v)
	}
	return s, nil
}

// fields are those of an object, with those of objects within it that have no name of their own.
func (p *pages) fields(of node, within string, level int) (all []field, err error) {
	of = of.resolved()
	for _, part := range of.own("allOf").items() {
		more, err := p.fields(part, within, level+1)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	for name, property := range of.own("properties").entries() {
		if level > maxNesting || len(all) >= maxFields {
			break
		}
		f := field{Name: within + name, Type: typeOf(property), Bounds: bounds(property)}
		description := property.own("description").text()
		if description == "" {
			description = property.resolved().own("description").text()
		}
		if f.Description, err = p.prose(description); err != nil {
			return nil, err
		}
		all = append(slices.DeleteFunc(all, func(other field) bool { return other.Name == f.Name }), f)
		inner, suffix := property, "."
		if items := property.own("items"); items.exists() {
			inner, suffix = items, "[]."
		}
		if inner.schemaName() == "" {
			more, err := p.fields(inner, f.Name+suffix, level+1)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
	}
	for _, name := range of.own("required").texts() {
		if i := slices.IndexFunc(all, func(f field) bool { return f.Name == within+name }); i >= 0 {
			all[i].Required = true
		}
	}
	return all, nil
}

// typeOf names a type: a reference by its name, everything else in words.
func typeOf(of node) []piece {
	if name := of.schemaName(); name != "" {
		return []piece{{name, root + "/" + typesPage + "#" + name}}
	}
	for _, several := range []string{"anyOf", "oneOf"} {
		if forms := of.own(several).items(); len(forms) > 0 {
			return joined(forms)
		}
	}
	if values := of.own("enum").items(); len(values) > 0 {
		var all []string
		for _, value := range values {
			all = append(all, value.here.Value)
		}
		return []piece{{Text: strings.Join(all, ", ")}}
	}
	if value := of.own("const"); value.exists() {
		return []piece{{Text: value.here.Value}}
	}
	types := of.own("type").texts()
	if i := slices.Index(types, "array"); i >= 0 {
		return append([]piece{{Text: "array of "}}, typeOf(of.own("items"))...)
	}
	if parts := of.own("allOf").items(); len(parts) == 1 && len(types) == 0 && !of.own("properties").exists() {
		return typeOf(parts[0])
	}
	types = slices.DeleteFunc(types, func(name string) bool { return name == "null" && len(types) > 1 })
	switch {
	case len(types) > 0:
		return []piece{{Text: strings.Join(types, " or ")}}
	case of.own("properties").exists() || of.own("allOf").exists():
		return []piece{{Text: "object"}}
	}
	return []piece{{Text: "any value"}}
}

// joined are several forms. Null is left out: a field that takes it resets to its default, which the start page says.
func joined(forms []node) (all []piece) {
	for _, form := range forms {
		if form.own("type").text() == "null" {
			continue
		}
		if len(all) > 0 {
			all = append(all, piece{Text: " or "})
		}
		all = append(all, typeOf(form)...)
	}
	return all
}

// bounds are the limits and the default of a value, in words.
func bounds(of node) string {
	var said []string
	span := func(low, high, unit string) {
		least, most := of.own(low).text(), of.own(high).text()
		switch {
		case least != "" && least == most:
			said = append(said, least+unit)
		case least != "" && most != "":
			said = append(said, least+" to "+most+unit)
		case least != "":
			said = append(said, "at least "+least+unit)
		case most != "":
			said = append(said, "up to "+most+unit)
		}
	}
	span("minimum", "maximum", "")
	span("minLength", "maxLength", " characters")
	span("minItems", "maxItems", " entries")
	span("minProperties", "maxProperties", " fields")
	if format := of.own("format").text(); format != "" {
		said = append(said, format)
	}
	if value := of.own("default"); value.exists() {
		said = append(said, "default "+value.here.Value)
	}
	return strings.Join(said, ", ")
}
