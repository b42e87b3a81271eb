package filter

import (
	"bytes"
	"slices"
	"strings"
)

// literal is a value of a filter.
type literal struct {
	kind     kind
	truth    bool
	number   decimal
	bytes    []byte // of a string
	elements []literal
	names    []string // of an object, with elements
}

// values are those of a list, each type in its order. The strings of the operators of strings are as they were written.
type values struct {
	strings     [][]byte
	numbers     []decimal
	null        bool
	yes, no     bool
	stringsSize int // of the longest
}

func (v *values) add(l *literal) {
	switch l.kind {
	case kindNull:
		v.null = true
	case kindBool:
		v.yes, v.no = v.yes || l.truth, v.no || !l.truth
	case kindNumber:
		v.numbers = append(v.numbers, l.number)
	case kindString:
		v.strings = append(v.strings, l.bytes)
		v.stringsSize = max(v.stringsSize, len(l.bytes))
	case kindNone, kindArray, kindObject:
	}
}

func (v *values) sort() {
	slices.SortFunc(v.strings, bytes.Compare)
	slices.SortFunc(v.numbers, decimal.compare)
}

// in reports whether a value is one of a list's.
func (m *matcher) in(of *values, n *node) bool {
	switch m.event.kind(n) {
	case kindNull:
		return of.null
	case kindBool:
		return m.truth(n) && of.yes || !m.truth(n) && of.no
	case kindNumber:
		if len(of.numbers) == 0 {
			return false
		}
		_, found := slices.BinarySearchFunc(of.numbers, m.event.number(n), decimal.compare)
		return found
	case kindString:
		s := m.event.string(n)
		if len(s) > of.stringsSize {
			return false
		}
		_, found := slices.BinarySearchFunc(of.strings, s, bytes.Compare)
		return found
	case kindNone, kindArray, kindObject:
	}
	return false
}

func (m *matcher) truth(n *node) bool { return m.event.text[n.from] == 't' }

// equal reports whether a value is equal to the filter's: numbers by their values, objects whatever the order of their names.
func (m *matcher) equal(want *literal, n *node) bool {
	if m.event.kind(n) != want.kind {
		return false
	}
	switch want.kind {
	case kindNull:
		return true
	case kindBool:
		return m.truth(n) == want.truth
	case kindNumber:
		return m.event.number(n).compare(want.number) == 0
	case kindString:
		return bytes.Equal(m.event.string(n), want.bytes)
	case kindArray:
		a := m.event.array(n)
		if a.cut || len(a.elements) != len(want.elements) {
			return false
		}
		for i := range want.elements {
			m.spend(1)
			if !m.equal(&want.elements[i], &a.elements[i]) {
				return false
			}
		}
		return true
	case kindObject:
		return m.equalObject(want, m.event.object(n))
	case kindNone:
	}
	return false
}

func (m *matcher) equalObject(want *literal, o *object) bool {
	for i, name := range want.names {
		m.spend(1)
		found := m.event.find(o, name)
		if found == nil || !m.equal(&want.elements[i], found) {
			return false
		}
	}
	if len(o.members) == len(want.names) {
		return true
	}
	m.spend(len(o.members) * (1 + len(want.names)/8))
	if m.left < 0 {
		return false
	}
	for i := range o.members { // fewer names, if some are repeated
		if name := m.event.name(&o.members[i]); !slices.ContainsFunc(want.names, func(w string) bool { return w == string(name) }) {
			return false
		}
	}
	return true
}

// pointer adds a name to a JSON pointer.
func pointer(to, name string) string {
	if strings.ContainsAny(name, "~/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
	}
	return to + "/" + name
}
