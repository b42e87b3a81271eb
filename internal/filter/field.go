package filter

import "slices"

// Field is a field of the payload that a filter asks for.
type Field struct {
	Pointer string   // RFC 6901, into the filter
	Path    []string // the names that lead to it from the payload; elements of arrays have none
}

// PayloadFields returns the fields of the payload that the filter asks for, in the order of its text, with those that lead to them.
func (f *Filter) PayloadFields() []Field {
	if f == nil || f.root == nil {
		return nil
	}
	var w fieldWalk
	w.walk(f.root, nil, false)
	return w.found
}

type fieldWalk struct{ found []Field }

// walk adds the fields of a condition for what a path leads to. inside: that is the payload, or a part of it; else it is the event.
func (w *fieldWalk) walk(c *condition, path []string, inside bool) {
	for at := range c.items {
		i := &c.items[at]
		switch {
		case i.op != opField:
			if i.condition != nil {
				w.walk(i.condition, path, inside)
			}
			for _, one := range i.conditions {
				w.walk(one, path, inside)
			}
		case inside:
			below := append(slices.Clone(path), i.name)
			w.found = append(w.found, Field{Pointer: i.pointer, Path: below})
			w.walk(i.condition, below, true)
		case i.name == payloadField:
			w.walk(i.condition, nil, true)
		}
	}
}
