package filter

import (
	"bytes"
	"slices"
)

// matcher matches one filter against one event. Once left is negative, its answers mean nothing.
type matcher struct {
	event *Event
	left  int
}

const searched = 32 // bytes of a text that count as one comparison

func (m *matcher) spend(work int) { m.left -= work }

// holds reports whether a value, nil if it is missing, meets a condition.
func (m *matcher) holds(c *condition, n *node) bool {
	if c.list && (n == nil || m.event.kind(n) != kindArray) {
		m.spend(1)
		return false
	}
	for _, i := range c.others {
		if !m.other(&c.items[i], n) {
			return false
		}
	}
	return len(c.group) == 0 || m.grouped(c, n)
}

// other evaluates an item that looks at the value as it is.
func (m *matcher) other(i *item, n *node) bool {
	m.spend(1)
	switch i.op {
	case opExists:
		return n != nil
	case opMissing:
		return n == nil
	case opAnd:
		return !slices.ContainsFunc(i.conditions, func(c *condition) bool { return !m.holds(c, n) })
	case opOr:
		return slices.ContainsFunc(i.conditions, func(c *condition) bool { return m.holds(c, n) })
	case opNot:
		return !m.holds(i.condition, n)
	case opNotEqual:
		return n == nil || !m.anyOf(i, opEqual, n)
	case opNotIn:
		return n == nil || !m.anyOf(i, opIn, n)
	case opHas:
		return n != nil && m.has(i, n)
	case opHasNot:
		return n == nil || !m.has(i, n)
	case opField, opEqual, opGreater, opAtLeast, opLess, opAtMost, opIn, opStarts, opEnds, opContains:
		return n != nil && m.anyOf(i, i.op, n) // in a list
	}
	return false
}

// grouped reports whether a value, or one element of an array, meets all items of a group.
func (m *matcher) grouped(c *condition, n *node) bool {
	if n != nil && m.event.kind(n) == kindArray {
		if m.whole(c, n) {
			return true
		}
		return m.element(n, func(element *node) bool { return m.grouped(c, element) })
	}
	for _, at := range c.group {
		if !m.one(&c.items[at], n) {
			return false
		}
	}
	return true
}

// one evaluates an item of a group for a value that is no array.
func (m *matcher) one(i *item, n *node) bool {
	m.spend(1)
	if i.op == opField {
		return m.holds(i.condition, m.field(i.name, n))
	}
	return n != nil && m.compare(i, i.op, n)
}

// field returns a field of a value; nil if it has none.
func (m *matcher) field(name string, n *node) *node {
	if n == nil || m.event.kind(n) != kindObject {
		return nil
	}
	return m.event.find(m.event.object(n), name)
}

// whole reports whether an array meets all items of a group as it is, which only $eq can ask for.
func (m *matcher) whole(c *condition, n *node) bool {
	for _, at := range c.group {
		if i := &c.items[at]; i.op != opEqual || i.value.kind != kindArray || !m.compare(i, opEqual, n) {
			return false
		}
	}
	return true
}

// element reports whether an element of an array satisfies holds.
func (m *matcher) element(n *node, holds func(element *node) bool) bool {
	a := m.event.array(n)
	for i := range a.elements {
		if m.left < 0 {
			return false
		}
		m.spend(1)
		if holds(&a.elements[i]) {
			return true
		}
	}
	if a.cut {
		m.left = -1
	}
	return false
}

// anyOf reports whether a value, or one element of an array, stands in a relation to the item's value.
func (m *matcher) anyOf(i *item, op operator, n *node) bool {
	if m.event.kind(n) != kindArray {
		return m.compare(i, op, n)
	}
	if op == opEqual && i.value.kind == kindArray && m.compare(i, op, n) {
		return true
	}
	return m.element(n, func(element *node) bool { return m.anyOf(i, op, element) })
}

// has reports whether a string contains the item's, or an array has it as an element.
func (m *matcher) has(i *item, n *node) bool {
	if m.event.kind(n) == kindArray {
		return m.anyOf(i, opEqual, n)
	}
	return m.compare(i, opContains, n)
}

// compare compares a value with the item's, which is of a list for the operators of strings.
func (m *matcher) compare(i *item, op operator, n *node) bool {
	m.spend(1)
	switch op {
	case opEqual:
		return m.equal(&i.value, n)
	case opIn:
		return m.in(&i.values, n)
	case opGreater, opAtLeast, opLess, opAtMost:
		order, ok := m.order(&i.value, n)
		return ok && ordered(op, order)
	case opStarts, opEnds, opContains:
		return m.event.kind(n) == kindString && m.part(i.values.strings, op, m.event.string(n))
	case opField, opNotEqual, opNotIn, opHas, opHasNot, opExists, opMissing, opAnd, opOr, opNot:
	}
	return false
}

// order compares a string or a number with the filter's; false if they are not of one type.
func (m *matcher) order(want *literal, n *node) (int, bool) {
	if m.event.kind(n) != want.kind {
		return 0, false
	}
	if want.kind == kindNumber {
		return m.event.number(n).compare(want.number), true
	}
	return bytes.Compare(m.event.string(n), want.bytes), true
}

// ordered reports whether the order of two values is one that an operator wants.
func ordered(op operator, order int) bool {
	return op == opGreater && order > 0 || op == opAtLeast && order >= 0 || op == opLess && order < 0 || op == opAtMost && order <= 0
}

// part reports whether a string has one of several at its beginning, at its end, or anywhere.
func (m *matcher) part(wanted [][]byte, op operator, found []byte) bool {
	for _, want := range wanted {
		m.spend(1)
		if op == opContains {
			m.spend(len(found) / searched)
		}
		if m.left < 0 {
			return false
		}
		if op == opStarts && bytes.HasPrefix(found, want) || op == opEnds && bytes.HasSuffix(found, want) || op == opContains && bytes.Contains(found, want) {
			return true
		}
	}
	return false
}
