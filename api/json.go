package api

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/everpost/everpost/internal/webhook"
)

// Bounds of a request's JSON.
const (
	maxDepth       = 32 // nested arrays and objects, the body's own object included
	maxFieldErrors = 50 // reported at once; what is wrong beyond them is left out
	maxPathName    = 64 // bytes of one name shown in a dotted path
	fewNames       = 16 // up to here comparing all pairs is cheaper than sorting
)

// door reads one JSON text (RFC 8259) in one pass over its bytes and is stricter
// than encoding/json: no duplicate names at any level, no trailing data, no
// invalid UTF-8, no NUL, no nesting beyond maxDepth. What it refuses it notes as
// field errors with dotted paths; a value of the wrong type or an unknown field is
// noted and stepped over, so that one answer names all of them, while a text that
// is not JSON ends the reading.
//
// It does not build a tree: callers pull typed values in the order they come, and
// raw gives a value's bytes as a part of the text. Half surrogates written as
// escapes (\ud800) are let through in raw values, which keep their bytes, and
// refused in strings that are decoded, since no Go or PostgreSQL text can hold them.
type door struct {
	text   []byte
	pos    int
	frames []frame
	names  [][]byte // of the open objects, as one stack; compared when an object ends
	errs   []webhook.FieldError
	broken bool // not JSON: nothing more is read
	around int  // levels that do not count for maxDepth: a batch's, around what is posted alone otherwise

	// No allocation for an ordinary text; and no frame moves while another is being read.
	frameRoom [maxDepth + batchLevels]frame // what frames and names start in: no allocation for an ordinary text
	nameRoom  [4 * fewNames][]byte
}

// frame is an open array or object and where in it the reading stands.
type frame struct {
	name  []byte // the present field's, unescaped; nil before the first and in arrays
	index int    // the present element's; -1 in objects
	base  int    // where the object's names start in door.names
}

func newDoor(text []byte) *door {
	d := &door{text: text}
	d.frames, d.names = d.frameRoom[:0], d.nameRoom[:0]
	return d
}

// object reads an object and calls field for each name; field reads the value. A
// nil field steps over the values. Each of the required names that is absent is
// noted; anything but an object is noted and stepped over.
func (d *door) object(field func(name []byte), required ...string) {
	if d.next() != '{' {
		d.mismatch("must be an object")
		return
	}
	if !d.enter(frame{index: -1, base: len(d.names)}) {
		return
	}
	top := &d.frames[len(d.frames)-1]
	for first := true; ; first = false {
		if d.closes('}', first) {
			break
		}
		if d.next() != '"' {
			d.fail("a name in double quotes is missing")
		}
		raw, escaped := d.quoted()
		if d.broken {
			return
		}
		top.name = raw
		if escaped {
			top.name, _ = unescape(raw)
		}
		d.names = append(d.names, top.name)
		if d.next() != ':' {
			d.fail("a colon is missing")
			return
		}
		d.pos++
		if field == nil {
			d.skip()
		} else {
			field(top.name)
		}
		if d.broken {
			return
		}
	}
	if !d.broken {
		d.compareNames(top, required)
		d.names = d.names[:top.base]
		d.frames = d.frames[:len(d.frames)-1]
	}
}

// compareNames notes the names that an object that is just ending gave more than
// once, and the required ones that it did not give. Sorting keeps an object of
// tens of thousands of names from costing the square of that.
func (d *door) compareNames(top *frame, required []string) {
	names := d.names[top.base:]
	for _, want := range required {
		if !slices.ContainsFunc(names, func(name []byte) bool { return string(name) == want }) {
			top.name = []byte(want)
			d.note("is required")
		}
	}
	if len(names) > fewNames {
		slices.SortFunc(names, bytes.Compare)
		for i := 1; i < len(names); i++ {
			if bytes.Equal(names[i-1], names[i]) && (i == 1 || !bytes.Equal(names[i-2], names[i])) {
				top.name = names[i]
				d.note("is given more than once")
			}
		}
		return
	}
	for i, name := range names {
		earlier := 0
		for _, other := range names[:i] {
			if bytes.Equal(other, name) {
				earlier++
			}
		}
		if earlier == 1 {
			top.name = name
			d.note("is given more than once")
		}
	}
}

// array reads an array and calls element for each index; element reads the value.
// A nil element steps over the values. It returns how many there are, or -1 for
// anything but a whole array, which is noted and stepped over.
func (d *door) array(element func(i int)) int {
	if d.next() != '[' {
		d.mismatch("must be an array")
		return -1
	}
	if !d.enter(frame{base: len(d.names)}) {
		return -1
	}
	top := &d.frames[len(d.frames)-1]
	for first := true; ; first = false {
		if d.closes(']', first) {
			break
		}
		if element == nil {
			d.skip()
		} else {
			element(top.index)
		}
		if d.broken {
			return -1
		}
		top.index++
	}
	if d.broken {
		return -1
	}
	d.frames = d.frames[:len(d.frames)-1]
	return top.index
}

// enter steps over the opening bracket and opens a frame.
func (d *door) enter(f frame) bool {
	if len(d.frames) == maxDepth+d.around {
		d.fail("is nested more than " + strconv.Itoa(maxDepth) + " levels deep")
		return false
	}
	d.pos++
	d.frames = append(d.frames, f)
	return true
}

// closes steps over the end of an array or object, or the comma before its next
// entry, and reports whether there is no next entry.
func (d *door) closes(bracket byte, first bool) bool {
	c := d.next()
	if c == bracket {
		d.pos++
		return true
	}
	if first {
		return d.broken
	}
	if c != ',' {
		d.fail("a comma or " + string(bracket) + " is missing")
		return true
	}
	d.pos++
	if d.next() == bracket {
		d.fail("there is a comma before " + string(bracket))
	}
	return d.broken
}

// skip reads a value of any type and holds it to all the rules.
func (d *door) skip() {
	switch c := d.next(); c {
	case '{':
		d.object(nil)
	case '[':
		d.array(nil)
	case '"':
		d.quoted()
	case 't':
		d.literal("true")
	case 'f':
		d.literal("false")
	case 'n':
		d.literal("null")
	default:
		if c == '-' || isDigit(c) {
			d.number()
			return
		}
		d.fail("a value is missing")
	}
}

// raw reads a value of any type and returns its bytes, a part of the text.
func (d *door) raw() []byte {
	d.next()
	start := d.pos
	d.skip()
	if d.broken {
		return nil
	}
	return d.text[start:d.pos:d.pos]
}

// end notes what follows the one value that a text may hold.
func (d *door) end() {
	if !d.broken {
		d.next()
		if d.pos < len(d.text) {
			d.fail("something follows the end of the JSON value")
		}
	}
}

// next steps over white space and is the byte that follows, 0 at the end.
func (d *door) next() byte {
	for d.pos < len(d.text) {
		switch c := d.text[d.pos]; c {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return c
		}
	}
	return 0
}

func (d *door) literal(word string) {
	if !bytes.HasPrefix(d.text[d.pos:], []byte(word)) {
		d.fail("is neither true, false nor null")
		return
	}
	d.pos += len(word)
}

// number reads a number by the grammar of RFC 8259 §6.
func (d *door) number() []byte {
	start := d.pos
	if d.at(d.pos) == '-' {
		d.pos++
	}
	zero := d.at(d.pos) == '0'
	if n := d.digits(); n == 0 || zero && n > 1 {
		d.fail("is not a number as JSON writes it")
		return nil
	}
	if d.at(d.pos) == '.' {
		d.pos++
		if d.digits() == 0 {
			d.fail("is not a number as JSON writes it")
			return nil
		}
	}
	if c := d.at(d.pos); c == 'e' || c == 'E' {
		d.pos++
		if c := d.at(d.pos); c == '+' || c == '-' {
			d.pos++
		}
		if d.digits() == 0 {
			d.fail("is not a number as JSON writes it")
			return nil
		}
	}
	return d.text[start:d.pos]
}

func (d *door) digits() int {
	start := d.pos
	for isDigit(d.at(d.pos)) {
		d.pos++
	}
	return d.pos - start
}

// at is the byte at a place, 0 behind the end.
func (d *door) at(pos int) byte {
	if pos < len(d.text) {
		return d.text[pos]
	}
	return 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// quoted reads a string and returns what stands between the quotes and whether
// there are escapes in it.
func (d *door) quoted() (raw []byte, escaped bool) {
	if d.broken {
		return nil, false
	}
	d.pos++
	start := d.pos
	for d.pos < len(d.text) {
		switch c := d.text[d.pos]; {
		case c == '"':
			raw = d.text[start:d.pos]
			d.pos++
			return raw, escaped
		case c == '\\':
			escaped = true
			if !d.escape() {
				return nil, false
			}
		case c < ' ':
			if c == 0 {
				d.fail("contains a NUL")
			} else {
				d.fail("contains a control character that is not escaped")
			}
			return nil, false
		case c < utf8.RuneSelf:
			d.pos++
		default:
			r, size := utf8.DecodeRune(d.text[d.pos:])
			if r == utf8.RuneError && size == 1 {
				d.fail("is not valid UTF-8")
				return nil, false
			}
			d.pos += size
		}
	}
	d.fail("ends in the middle of a string")
	return nil, false
}

// escape steps over one escape sequence.
func (d *door) escape() bool {
	switch d.at(d.pos + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		d.pos += 2
		return true
	case 'u':
		if unit, ok := hex4(d.text[d.pos+2:]); ok {
			if unit == 0 {
				d.note("contains a NUL")
			}
			d.pos += 6
			return true
		}
	}
	d.fail("contains an escape sequence that JSON does not have")
	return false
}
