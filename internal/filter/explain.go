package filter

import (
	"strconv"
	"unicode/utf8"
)

// MaxExcerpt bounds Wanted and Found of a Failure, in bytes.
const MaxExcerpt = 200

// Explanation is the answer of a filter with the reason.
type Explanation struct {
	Matched   bool
	Undecided bool    // it matches because deciding it takes more than MaxWork
	Failure   Failure // why it does not match
}

// Failure is the first condition of a filter, in the order of its text, that an event does not meet.
type Failure struct {
	Pointer  string // RFC 6901, into the filter
	Operator string // as it is written; "" for a plain value
	Wanted   string // JSON of the filter, or its beginning
	Path     string // RFC 6901, into the event with the fields of a filter; "" is the event
	Found    string // JSON of the event at the path, or its beginning; "" if it is missing, or the event itself
	Missing  bool   // there is nothing at the path
	// Of is the number of elements of the array of which none matches; 0 if there is none. If the path leads into the array, it is the first
	// element's failure.
	Of int
}

// Explain returns whether the filter matches an event, and why not. The same filter and event have the same explanation.
func (f *Filter) Explain(e *Event) Explanation {
	matched, undecided := f.match(e)
	if matched {
		return Explanation{Matched: true, Undecided: undecided}
	}
	m := &matcher{event: e}
	return Explanation{Failure: m.explain(f.root, &e.root, "")}
}

// again evaluates a part of the filter with the work of a whole one. What stays undecided is not the reason: Match has found another.
func (m *matcher) again(holds func() bool) bool {
	m.left = MaxWork
	return holds() || m.left < 0
}

// explain returns the failure of a condition that does not hold.
func (m *matcher) explain(c *condition, n *node, path string) Failure {
	if c.list && (n == nil || m.event.kind(n) != kindArray) {
		return m.failure(&c.items[0], n, path)
	}
	grouped := false
	for at := range c.items {
		i := &c.items[at]
		if i.op.grouped() && !c.list {
			if !grouped && !m.again(func() bool { return m.grouped(c, n) }) {
				return m.explainGroup(c, n, path)
			}
			grouped = true
			continue
		}
		if !m.again(func() bool { return m.other(i, n) }) {
			return m.explainOther(i, n, path)
		}
	}
	return Failure{Path: path} // not reached: something failed
}

func (m *matcher) explainOther(i *item, n *node, path string) Failure {
	if i.op == opAnd {
		for _, c := range i.conditions {
			if !m.again(func() bool { return m.holds(c, n) }) {
				return m.explain(c, n, path)
			}
		}
	}
	return m.failure(i, n, path)
}

// explainGroup returns the first failure of a group: of an array, that of its first element.
func (m *matcher) explainGroup(c *condition, n *node, path string) Failure {
	if n == nil || m.event.kind(n) != kindArray {
		for _, at := range c.group {
			i := &c.items[at]
			if m.again(func() bool { return m.one(i, n) }) {
				continue
			}
			if i.op == opField {
				return m.explain(i.condition, m.field(i.name, n), pointer(path, i.name))
			}
			return m.failure(i, n, path)
		}
		return Failure{Path: path} // not reached, as above
	}
	elements := m.event.array(n).elements
	if len(elements) == 0 {
		return m.failure(&c.items[c.group[0]], n, path)
	}
	first := pointer(path, "0")
	f := m.explainGroup(c, &elements[0], first)
	if f.Path == first && !f.Missing { // a comparison of the elements themselves: all of them say more
		f.Path, f.Found = path, excerpt(m.event.raw(n))
	}
	f.Of = len(elements)
	return f
}

func (m *matcher) failure(i *item, n *node, path string) Failure {
	f := Failure{Pointer: i.pointer, Wanted: excerpt([]byte(i.raw)), Path: path, Missing: n == nil}
	if i.op != opField {
		f.Operator = i.name
	}
	if n != nil && path != "" {
		f.Found = excerpt(m.event.raw(n))
		if m.event.kind(n) == kindArray && (i.op.grouped() || i.op == opHas) {
			f.Of = len(m.event.array(n).elements)
		}
	}
	return f
}

// excerpt returns the beginning of a text, cut between characters.
func excerpt(text []byte) string {
	const dots = "…"
	if len(text) <= MaxExcerpt {
		return string(text)
	}
	end := MaxExcerpt - len(dots)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return string(text[:end]) + dots
}

// String is the failure as a sentence without a full stop.
func (f Failure) String() string {
	wanted := f.Wanted
	if f.Operator != "" {
		wanted = f.Operator + " " + wanted
	}
	place := f.Path
	if place == "" {
		place = "the event"
	}
	switch {
	case f.Missing:
		return place + " is missing; the filter wants " + wanted
	case f.Path == "":
		return "the event does not meet " + wanted
	case f.Of > 1:
		return place + " is " + f.Found + ", and none of the " + strconv.Itoa(f.Of) + " elements meets " + wanted
	}
	return place + " is " + f.Found + "; the filter wants " + wanted
}
