package filter

import (
	"bytes"
	"hash/maphash"
	"math"
)

// Fields are what filters see of an event. What is zero counts as missing, but for the payload.
type Fields struct {
	Type        string
	ExternalID  string
	OrderingKey string
	Tags        []string
	Payload     []byte // any JSON value
}

// Event is an event that filters are matched against. Its payload is walked once, by the first filter that asks for something in it, and
// what one filter has looked up the others find. It is for one goroutine.
type Event struct {
	text    []byte // the fields as one object
	root    node
	walked  bool
	places  []place
	objects []object
	arrays  []array
	strings [][]byte  // of those with escapes
	numbers []decimal // of the long ones
	seed    maphash.Seed
}

// place is an object or an array of the payload, in the order in which they begin.
type place struct {
	end  uint32 // after its last byte
	next uint32 // the place after those inside of it
	kept uint32 // 1 more than the index in objects or arrays; 0: not looked into
}

// node is a value in the text.
type node struct {
	from, to uint32
	// at is the place of an object or array. Of a string or number it is 1 more than the index in strings or numbers; 0: not kept, and of a
	// string plain: it has no escapes.
	at uint32
}

const plain = math.MaxUint32

// member is a name and a value of an object. The name is in the text between two places, or in strings if the second is 0.
type member struct {
	name, nameEnd uint32
	node          node
}

// object has the members of an object. Of repeated names the last one counts.
type object struct {
	members []member
	table   []uint32 // 1 more than an index in members, by the hash of the name; nil for a small object
}

// array has the elements of an array, at most maxElements.
type array struct {
	elements []node
	cut      bool // there are more
}

const (
	smallObject = 16          // members of which all are compared
	maxElements = MaxWork + 1 // no filter gets beyond them
	longNumber  = 32          // bytes of a number that is read once only
)

// NewEvent returns an event. It copies the payload and looks at nothing.
func NewEvent(f Fields) *Event {
	const names = len(`{"type":,"external_id":,"ordering_key":,"tags":[],"payload":}`) + 32
	size := names + len(f.Payload) + len(f.Type) + len(f.ExternalID) + len(f.OrderingKey)
	for _, tag := range f.Tags {
		size += len(tag) + 3
	}
	e := &Event{text: make([]byte, 0, size)}
	e.text = append(e.text, '{')
	var top object
	add := func(name string, write func()) {
		if len(top.members) > 0 {
			e.text = append(e.text, ',')
		}
		m := member{name: e.here() + 1}
		e.text = appendQuoted(e.text, name)
		m.nameEnd = e.here() - 1
		e.text = append(e.text, ':')
		m.node.from = e.here()
		write()
		m.node.to = e.here()
		top.members = append(top.members, m)
	}
	text := func(name, value string) {
		if value != "" {
			add(name, func() { e.text = appendQuoted(e.text, value) })
		}
	}
	text("type", f.Type)
	text("external_id", f.ExternalID)
	text("ordering_key", f.OrderingKey)
	if len(f.Tags) > 0 {
		add("tags", func() {
			for i, tag := range f.Tags {
				e.text = appendQuoted(append(e.text, "[,"[min(i, 1)]), tag)
			}
			e.text = append(e.text, ']')
		})
	}
	add("payload", func() { e.text = append(e.text, f.Payload...) })
	e.text = append(e.text, '}')
	e.root = node{to: e.here()}
	e.place(top.members)
	e.objects = append(e.objects, top)
	return e
}

// place gives the event's own members their places, of which the event has the first, and removes the space around the payload.
func (e *Event) place(members []member) {
	at := uint32(1)
	for i := range members {
		n := &members[i].node
		n.from = uint32(min(skipSpace(e.text, int(n.from)), int(n.to))) //nolint:gosec // as here
		for n.to > n.from && skipSpace(e.text, int(n.to)-1) >= int(n.to) {
			n.to--
		}
		if k := e.kind(n); k == kindObject || k == kindArray {
			n.at = at
			at++ // only the payload may have more inside, and it is the last
		}
	}
}

func (e *Event) here() uint32 { return uint32(len(e.text)) } //nolint:gosec // a payload has a few MiB

// walk finds where each object and array ends. It reads the text once.
func (e *Event) walk() {
	text := e.text
	e.walked, e.places = true, make([]place, 0, 8+len(text)/256)
	var open []uint32
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = skipString(text, i) - 1
		case '{', '[':
			open = append(open, uint32(len(e.places))) //nolint:gosec // as here
			e.places = append(e.places, place{end: e.here()})
		case '}', ']':
			if len(open) == 0 {
				continue // no JSON
			}
			p := &e.places[open[len(open)-1]]
			p.end, p.next = uint32(i+1), uint32(len(e.places)) //nolint:gosec // as here
			open = open[:len(open)-1]
		}
	}
	for _, at := range open { // no JSON
		e.places[at].next = uint32(len(e.places)) //nolint:gosec // as here
	}
}

// placeOf returns the place of an object or array.
func (e *Event) placeOf(n *node) *place {
	if !e.walked {
		e.walk()
	}
	return &e.places[n.at]
}

func (e *Event) kind(n *node) kind {
	if n.from >= n.to {
		return kindNone
	}
	return kindOf(e.text[n.from])
}

// value reads the value that begins at i, and returns the place after it. at is the place of an object or array that begins there.
func (e *Event) value(i int, at uint32) (n node, end int, next uint32) {
	n.from = uint32(i) //nolint:gosec // as here
	end, next = i, at
	if i < len(e.text) {
		switch e.text[i] {
		case '{', '[':
			if int(at) >= len(e.places) { // no JSON
				return n, len(e.text), at
			}
			n.at, end, next = at, int(e.places[at].end), e.places[at].next
		case '"':
			end = skipString(e.text, i)
		default:
			end = skipWord(e.text, i)
		}
	}
	n.to = uint32(end) //nolint:gosec // as here
	return n, end, next
}

// object returns what is in an object.
func (e *Event) object(n *node) *object {
	if n.at == 0 { // the event itself
		return &e.objects[0]
	}
	p := e.placeOf(n)
	if p.kept == 0 {
		e.objects = append(e.objects, e.readObject(n))
		p.kept = uint32(len(e.objects)) //nolint:gosec // as here
	}
	return &e.objects[p.kept-1]
}

func (e *Event) readObject(n *node) (o object) {
	text, next := e.text[:n.to], n.at+1
	for i := int(n.from) + 1; ; {
		i = skipSpace(text, i)
		if i >= len(text) || text[i] != '"' {
			break
		}
		end := skipString(text, i)
		m := member{name: uint32(i + 1), nameEnd: uint32(max(end-1, i+1))} //nolint:gosec // as here
		if inside, escaped := quoted(text[i:end]); escaped {
			e.strings = append(e.strings, unescape(inside))
			m.name, m.nameEnd = uint32(len(e.strings)-1), 0 //nolint:gosec // as here
		}
		i = skipSpace(text, end)
		if i >= len(text) || text[i] != ':' {
			break
		}
		m.node, i, next = e.value(skipSpace(text, i+1), next)
		o.members = append(o.members, m)
		i = skipSpace(text, i)
		if i >= len(text) || text[i] != ',' {
			break
		}
		i++
	}
	if len(o.members) > smallObject {
		e.index(&o)
	}
	return o
}

// index makes the table of an object. The hash has a random seed, so that nobody can choose names that collide.
func (e *Event) index(o *object) {
	if e.seed == (maphash.Seed{}) {
		e.seed = maphash.MakeSeed()
	}
	size := 1
	for size < len(o.members)*3/2 {
		size *= 2
	}
	o.table = make([]uint32, size)
	for i := range o.members {
		name := e.name(&o.members[i])
		slot := maphash.Bytes(e.seed, name) & uint64(size-1) //nolint:gosec // positive
		for o.table[slot] != 0 && !bytes.Equal(e.name(&o.members[o.table[slot]-1]), name) {
			slot = (slot + 1) & uint64(size-1) //nolint:gosec // positive
		}
		o.table[slot] = uint32(i + 1)
	}
}

func (e *Event) name(m *member) []byte {
	if m.nameEnd == 0 {
		return e.strings[m.name]
	}
	return e.text[m.name:m.nameEnd]
}

// find returns the member of an object with a name; nil if it has none.
func (e *Event) find(o *object, name string) *node {
	if o.table == nil {
		for i := len(o.members) - 1; i >= 0; i-- {
			m := &o.members[i]
			if m.nameEnd != 0 && int(m.nameEnd-m.name) != len(name) {
				continue
			}
			if string(e.name(m)) == name {
				return &m.node
			}
		}
		return nil
	}
	last := uint64(len(o.table) - 1) //nolint:gosec // positive
	for slot := maphash.String(e.seed, name) & last; o.table[slot] != 0; slot = (slot + 1) & last {
		if m := &o.members[o.table[slot]-1]; string(e.name(m)) == name {
			return &m.node
		}
	}
	return nil
}

// array returns what is in an array.
func (e *Event) array(n *node) *array {
	p := e.placeOf(n)
	if p.kept == 0 {
		e.arrays = append(e.arrays, e.readArray(n))
		p.kept = uint32(len(e.arrays)) //nolint:gosec // as here
	}
	return &e.arrays[p.kept-1]
}

func (e *Event) readArray(n *node) (a array) {
	text, next := e.text[:n.to], n.at+1
	for i := skipSpace(text, int(n.from)+1); i < len(text) && text[i] != ']'; i = skipSpace(text, i+1) {
		if len(a.elements) == maxElements {
			a.cut = true
			break
		}
		var element node
		element, i, next = e.value(i, next)
		a.elements = append(a.elements, element)
		i = skipSpace(text, i)
		if i >= len(text) || text[i] != ',' {
			break
		}
	}
	return a
}

// string returns the string of a node.
func (e *Event) string(n *node) []byte {
	switch n.at {
	case 0:
	case plain:
		return e.text[n.from+1 : n.to-1]
	default:
		return e.strings[n.at-1]
	}
	inside, escaped := quoted(e.text[n.from:n.to])
	switch {
	case escaped:
		inside = unescape(inside)
		e.strings = append(e.strings, inside)
		n.at = uint32(len(e.strings)) //nolint:gosec // as here
	case n.to-n.from >= 2:
		n.at = plain
	}
	return inside
}

// number returns the number of a node.
func (e *Event) number(n *node) decimal {
	if n.at > 0 {
		return e.numbers[n.at-1]
	}
	d := decimalOf(string(e.text[n.from:n.to]))
	if n.to-n.from > longNumber {
		e.numbers = append(e.numbers, d)
		n.at = uint32(len(e.numbers)) //nolint:gosec // as here
	}
	return d
}

// raw returns the text of a node.
func (e *Event) raw(n *node) []byte { return e.text[n.from:n.to] }
