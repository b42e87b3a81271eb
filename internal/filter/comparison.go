package filter

import (
	"strings"
	"unicode/utf8"
)

// comparison reads the value of a comparison, and counts it.
func (p *parser) comparison(w where, i *item, n *node) (err error) {
	p.conditions++
	if p.conditions > MaxConditions {
		return w.wrong("is one condition more than the %d that a filter may have", MaxConditions)
	}
	k := p.event.kind(n)
	switch i.op {
	case opEqual, opNotEqual:
		i.value, err = p.literal(w, n)
		return err
	case opGreater, opAtLeast, opLess, opAtMost:
		if k != kindNumber && k != kindString {
			return w.wrong("takes a number or a string")
		}
		i.value, err = p.literal(w, n)
		return err
	case opExists:
		if k != kindBool {
			return w.wrong("takes true or false")
		}
		if p.event.text[n.from] == 'f' {
			i.op = opMissing
		}
		return nil
	case opIn, opNotIn:
		return p.membership(w, i, n)
	case opStarts, opEnds, opContains:
		return p.parts(w, i, n)
	case opField, opHas, opHasNot, opMissing, opAnd, opOr, opNot:
	}
	return nil
}

// membership reads the value of $in or $nin. A string is not a list of one: as in Hookdeck and Outpost, it is looked for within a string.
func (p *parser) membership(w where, i *item, n *node) (err error) {
	switch p.event.kind(n) {
	case kindString:
		if i.value, err = p.literal(w, n); err != nil {
			return err
		}
		i.values.add(&i.value)
		if i.op == opIn {
			i.op = opHas
		} else {
			i.op = opHasNot
		}
		return nil
	case kindNumber:
		i.value, err = p.literal(w, n)
		i.values.add(&i.value)
		return err
	case kindArray:
		err = p.scalars(w, i, n, "a string, a number, true, false or null", kindNull, kindBool, kindNumber, kindString)
		i.values.sort()
		return err
	case kindNone, kindNull, kindBool, kindObject:
	}
	return w.wrong("takes a list of values")
}

// parts reads the value of $startsWith, $endsWith or $contains: a string, or a list of which one is enough.
func (p *parser) parts(w where, i *item, n *node) (err error) {
	switch p.event.kind(n) {
	case kindString:
		i.value, err = p.literal(w, n)
		i.values.add(&i.value)
		return err
	case kindArray:
		return p.scalars(w, i, n, "a string", kindString)
	case kindNone, kindNull, kindBool, kindNumber, kindObject:
	}
	return w.wrong("takes a string, or a list of strings")
}

// scalars reads a list of values of some types.
func (p *parser) scalars(w where, i *item, n *node, words string, allowed ...kind) error {
	elements := p.event.array(n).elements
	if err := w.length(len(elements)); err != nil {
		return err
	}
	for at := range elements {
		inside, ok := w.at(at), false
		for _, k := range allowed {
			ok = ok || p.event.kind(&elements[at]) == k
		}
		if !ok {
			return inside.wrong("must be %s", words)
		}
		l, err := p.literal(inside, &elements[at])
		if err != nil {
			return err
		}
		i.values.add(&l)
	}
	return nil
}

// literal reads a value.
func (p *parser) literal(w where, n *node) (l literal, err error) {
	if err := p.nesting(w, n); err != nil {
		return l, err
	}
	l.kind = p.event.kind(n)
	switch l.kind {
	case kindBool:
		l.truth = p.event.text[n.from] == 't'
	case kindNumber:
		text := string(p.event.raw(n))
		if at := strings.IndexAny(text, "eE"); at >= 0 && len(strings.TrimLeft(text[at+1:], "+-0")) > maxExponentDigits {
			return l, w.wrong("has an exponent of more than %d digits", maxExponentDigits)
		}
		l.number = decimalOf(text)
	case kindString:
		l.bytes = p.event.string(n)
		if !utf8.Valid(l.bytes) {
			return l, w.wrong("has half of a surrogate pair")
		}
	case kindArray:
		elements := p.event.array(n).elements
		if len(elements) > MaxValues {
			return l, w.length(len(elements))
		}
		l.elements = make([]literal, len(elements))
		for at := range elements {
			if l.elements[at], err = p.literal(w.at(at), &elements[at]); err != nil {
				return l, err
			}
		}
	case kindObject:
		return p.literalObject(w, l, n)
	case kindNone, kindNull:
	}
	return l, nil
}

func (p *parser) literalObject(w where, l literal, n *node) (literal, error) {
	names, err := p.names(w, n)
	if err != nil {
		return l, err
	}
	l.names, l.elements = names, make([]literal, len(names))
	members := p.event.object(n).members
	for at, name := range names {
		inside := w.in(name)
		if strings.HasPrefix(name, "$") {
			return l, inside.wrong("begins with $, which a name in a value cannot")
		}
		if l.elements[at], err = p.literal(inside, &members[at].node); err != nil {
			return l, err
		}
	}
	return l, nil
}
