// Package filter decides by a JSON filter whether an endpoint gets an event. docs/filters.md has the language; its conditions are those of
// Hookdeck's simple-json-match, Outpost and Convoy. Parse checks a filter completely, so that nothing can fail when events are matched.
// The package is pure.
package filter

// The limits of a filter.
const (
	MaxBytes      = 8 << 10
	MaxDepth      = 8   // nested objects and lists, the filter itself included
	MaxConditions = 100 // comparisons, of which a plain value is one
	MaxValues     = 100 // in a list

	// MaxWork bounds what one filter may look at in one event, in comparisons, and in 32 bytes of a text that is searched. Only large arrays
	// and texts with many conditions come near. What is undecided then matches: an endpoint rather gets an event that it does not want than
	// miss one that it wants.
	MaxWork = 50_000
)

// Error says what is wrong with a filter. Its text never holds more of the filter than names.
type Error struct {
	Pointer string // RFC 6901, into the filter; "" is the filter itself
	Message string // as in "takes a number or a string"
}

// Error implements error. It has at most MaxExcerpt bytes of the pointer.
func (e *Error) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return e.Place() + ": " + e.Message
}

// Place is the pointer, of which it has at most MaxExcerpt bytes.
func (e *Error) Place() string { return excerpt([]byte(e.Pointer)) }

// Filter is a filter that is ready for use. It never changes, and is safe for concurrent use. One without conditions, and nil, match every
// event.
type Filter struct {
	text string     // "" if it has no conditions
	root *condition // nil: it matches every event
}

// Text is the filter as it was written, without white space; "" if it has no conditions.
func (f *Filter) Text() string {
	if f == nil {
		return ""
	}
	return f.text
}

// Stored returns a filter that Parse has taken before; "" is none, nil. One that this version does not understand was stored by a later one: it
// matches every event.
func Stored(text string) *Filter {
	if text == "" {
		return nil
	}
	f, err := Parse([]byte(text))
	if err != nil {
		return &Filter{text: text}
	}
	return f
}

// Match reports whether the filter matches an event.
func (f *Filter) Match(e *Event) bool {
	matched, _ := f.match(e)
	return matched
}

func (f *Filter) match(e *Event) (matched, undecided bool) {
	if f == nil || f.root == nil {
		return true, false
	}
	m := matcher{event: e, left: MaxWork}
	matched = m.holds(f.root, &e.root)
	if m.left < 0 {
		return true, true
	}
	return matched, false
}
