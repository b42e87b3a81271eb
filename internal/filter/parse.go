package filter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parse returns the filter of a JSON object. The error is an *Error, of the first thing that is wrong.
func Parse(text []byte) (*Filter, error) {
	switch {
	case len(text) > MaxBytes:
		return nil, &Error{Message: fmt.Sprintf("is larger than %d bytes", MaxBytes)}
	case !utf8.Valid(text):
		return nil, &Error{Message: "is not valid UTF-8"}
	case !json.Valid(text):
		return nil, &Error{Message: "is not JSON"}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, &Error{Message: "is not JSON"}
	}
	p := &parser{event: NewEvent(Fields{Payload: compact.Bytes()})}
	n := p.event.find(&p.event.objects[0], payloadField)
	if p.event.kind(n) != kindObject {
		return nil, &Error{Message: "must be an object"}
	}
	if len(p.event.object(n).members) == 0 {
		return &Filter{}, nil
	}
	root, err := p.condition(where{depth: 1, top: true}, n)
	if err != nil {
		return nil, err
	}
	return &Filter{text: compact.String(), root: root}, nil
}

const payloadField = "payload"

// parser reads a filter as if it were the payload of an event.
type parser struct {
	event      *Event
	conditions int
}

// where is the place of a value in the filter.
type where struct {
	pointer string
	depth   int
	top     bool // names are those of an event's fields
}

func (w where) wrong(format string, args ...any) error {
	return &Error{Pointer: w.pointer, Message: fmt.Sprintf(format, args...)}
}

func (w where) in(name string) where {
	return where{pointer: pointer(w.pointer, name), depth: w.depth + 1}
}

// condition reads what the value of a field, or an event, has to meet.
func (p *parser) condition(w where, n *node) (*condition, error) {
	if err := p.nesting(w, n); err != nil {
		return nil, err
	}
	switch k := p.event.kind(n); {
	case k == kindObject:
		return p.object(w, n)
	case w.top:
		return nil, w.wrong("must be an object with fields of the event")
	case k == kindArray:
		return p.list(w, n)
	}
	c := &condition{}
	i := item{op: opEqual, pointer: w.pointer, raw: string(p.event.raw(n))}
	if err := p.comparison(w, &i, n); err != nil {
		return nil, err
	}
	c.add(i)
	return c, nil
}

// nesting refuses what is nested too deeply.
func (p *parser) nesting(w where, n *node) error {
	if k := p.event.kind(n); w.depth > MaxDepth && (k == kindObject || k == kindArray) {
		return w.wrong("is nested more than %d deep", MaxDepth)
	}
	return nil
}

func (p *parser) object(w where, n *node) (*condition, error) {
	names, err := p.names(w, n)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, w.wrong(`has no condition; for any value take {"$exists": true}`)
	}
	c := &condition{}
	members := p.event.object(n).members
	for at, name := range names {
		value := &members[at].node
		i := item{pointer: w.in(name).pointer, raw: string(p.event.raw(value)), name: name}
		if strings.HasPrefix(name, "$") {
			err = p.operator(w, &i, value)
		} else {
			err = p.field(w, &i, value)
		}
		if err != nil {
			return nil, err
		}
		c.add(i)
	}
	return c, nil
}

// names returns the names of an object in their order.
func (p *parser) names(w where, n *node) (names []string, err error) {
	members := p.event.object(n).members
	for i := range members {
		name := string(p.event.name(&members[i]))
		switch {
		case !utf8.ValidString(name):
			return nil, w.wrong("has a name with half of a surrogate pair")
		case slices.Contains(names, name):
			return nil, w.in(name).wrong("is given more than once")
		}
		names = append(names, name)
	}
	return names, nil
}

func (p *parser) field(w where, i *item, n *node) (err error) {
	inside := w.in(i.name)
	switch {
	case w.top && !slices.Contains(EventFields(), i.name):
		return inside.wrong(`is no field of an event (%s). For a field of the payload write %s`, strings.Join(EventFields(), ", "), OfPayload(i.name))
	case strings.Contains(i.name, ".$.") || strings.HasSuffix(i.name, ".$"):
		return inside.wrong("has a place in an array; nest the names, and an array matches if one element does")
	}
	i.op = opField
	i.condition, err = p.condition(inside, n)
	return err
}

// OfPayload outlines a filter about a field of the payload, in JSON: {"payload": {"data": …}}. It has at most MaxExcerpt bytes of the name.
func OfPayload(name string) string {
	var quoted strings.Builder
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)                                  // it is shown as text
	if err := encoder.Encode(excerpt([]byte(name))); err != nil { // Encode does not fail for a string
		return `{"payload": {…}}`
	}
	return `{"payload": {` + strings.TrimSuffix(quoted.String(), "\n") + `: …}}`
}

// EventFields are the names at the top of a filter.
func EventFields() []string {
	return []string{"type", "external_id", "ordering_key", "tags", payloadField}
}

func (p *parser) operator(w where, i *item, n *node) (err error) {
	inside := w.in(i.name)
	if err := p.nesting(inside, n); err != nil {
		return err
	}
	switch i.name {
	case "$and", "$or":
		i.op = opAnd
		if i.name == "$or" {
			i.op = opOr
		}
		i.conditions, err = p.conditionsOf(inside, w.top, n)
		return err
	case "$not":
		i.op, inside.top = opNot, w.top
		i.condition, err = p.condition(inside, n)
		return err
	}
	op, known := comparisons()[i.name]
	switch {
	case w.top && known:
		return inside.wrong("belongs to a field of the event")
	case i.name == "$ref":
		return inside.wrong("is not supported: a value cannot be that of another field")
	case i.name == "$regex":
		return inside.wrong("is not supported; take $startsWith, $endsWith or $contains")
	case !known:
		return inside.wrong("is no operator; the operators are %s", strings.Join(operators(), ", "))
	}
	i.op = op
	return p.comparison(inside, i, n)
}

// operators are the names that a filter may have, without aliases.
func operators() []string {
	return []string{
		"$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$startsWith", "$endsWith", "$contains", "$exists", "$and", "$or", "$not",
	}
}

func comparisons() map[string]operator {
	return map[string]operator{
		"$eq": opEqual, "$ne": opNotEqual, "$neq": opNotEqual, "$gt": opGreater, "$gte": opAtLeast, "$lt": opLess, "$lte": opAtMost,
		"$in": opIn, "$nin": opNotIn, "$startsWith": opStarts, "$endsWith": opEnds, "$contains": opContains, "$exists": opExists, "$exist": opExists,
	}
}

// conditionsOf reads the list of $and and $or.
func (p *parser) conditionsOf(w where, top bool, n *node) (all []*condition, err error) {
	if p.event.kind(n) != kindArray {
		return nil, w.wrong("takes a list of conditions")
	}
	elements := p.event.array(n).elements
	if err := w.length(len(elements)); err != nil {
		return nil, err
	}
	for at := range elements {
		inside := w.at(at)
		inside.top = top
		c, err := p.condition(inside, &elements[at])
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (w where) at(index int) where { return w.in(strconv.Itoa(index)) }

func (w where) length(n int) error {
	switch {
	case n == 0:
		return w.wrong("is an empty list")
	case n > MaxValues:
		return w.wrong("has more than %d values", MaxValues)
	}
	return nil
}

// list reads a plain list: an array has to have an element for each entry.
func (p *parser) list(w where, n *node) (*condition, error) {
	elements := p.event.array(n).elements
	if err := w.length(len(elements)); err != nil {
		return nil, err
	}
	c := &condition{list: true}
	for at := range elements {
		inside, element := w.at(at), &elements[at]
		i := item{op: opEqual, pointer: inside.pointer, raw: string(p.event.raw(element))}
		var err error
		switch p.event.kind(element) {
		case kindArray:
			return nil, inside.wrong(`is a list in a list; for an equal array take {"$eq": […]}`)
		case kindObject:
			var sub *condition
			sub, err = p.condition(inside, element)
			i.op, i.conditions = opAnd, []*condition{sub}
		case kindNone, kindNull, kindBool, kindNumber, kindString:
			err = p.comparison(inside, &i, element)
		}
		if err != nil {
			return nil, err
		}
		c.add(i)
	}
	return c, nil
}
