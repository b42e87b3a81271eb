package api

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/everpost/everpost/internal/webhook"
)

// Limits of a request's JSON.
const (
	maxDepth   = 512 // nested arrays and objects, including the body's own object; of a payload, its own
	usualDepth = 34  // for which a decoder has room from the beginning
	fewNames   = 16  // up to this number, comparing all pairs costs less than sorting
)

// jsonDecoder decodes one JSON text (RFC 8259) in a single pass. It is stricter than encoding/json:
// it refuses duplicate names at any level, trailing data, invalid UTF-8, NUL, and nesting beyond
// maxDepth. Within a payload it refuses only what is not JSON, and the nesting: a payload is bytes to
// Everpost, so that duplicate names and an escaped NUL are the receiver's affair. It collects field
// errors with dotted paths. A value of the wrong type or an unknown
// field is noted and skipped, so that one response lists all errors; text that is not JSON ends
// the decoding.
//
// It builds no tree: callers read typed values in the order of the text, and raw returns a value's
// bytes as a slice of the text. Unpaired surrogates in escapes (\ud800) are accepted in raw values,
// which keep their bytes, and refused in decoded strings, because neither Go nor PostgreSQL text
// can represent them.
type jsonDecoder struct {
	fieldErrors

	text   []byte
	names  [][]byte // of the open objects, as one stack; compared when an object ends
	limit  int      // open arrays and objects that are allowed now
	opaque bool     // within a payload

	// Initial storage for frames and names, which suffices for ordinary texts without allocation.
	frameRoom [usualDepth]frame
	nameRoom  [4 * fewNames][]byte
}

func newJSONDecoder(text []byte) *jsonDecoder {
	d := &jsonDecoder{text: text, limit: maxDepth}
	d.frames, d.names = d.frameRoom[:0], d.nameRoom[:0]
	return d
}

// object reads an object and calls field for each name; field reads the value. If field is nil, the
// values are skipped. Absent required names are noted. A value that is not an object is noted and
// skipped.
func (d *jsonDecoder) object(field func(name []byte), required ...string) {
	if d.next() != '{' {
		d.mismatch("must be an object")
		return
	}
	if !d.enter(frame{index: -1, base: len(d.names)}) {
		return
	}
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
		name := raw
		if escaped {
			name, _ = unescape(raw)
		}
		d.top().name = name
		if !d.opaque {
			d.names = append(d.names, name)
		}
		if d.next() != ':' {
			d.fail("a colon is missing")
			return
		}
		d.pos++
		if field == nil {
			d.skip()
		} else {
			field(name)
		}
		if d.broken {
			return
		}
	}
	if !d.broken {
		top := d.top()
		d.compareNames(top, required)
		d.names = d.names[:top.base]
		d.frames = d.frames[:len(d.frames)-1]
	}
}

// compareNames notes duplicate names and absent required names at the end of an object. Sorting
// avoids quadratic time for an object with tens of thousands of names.
func (d *jsonDecoder) compareNames(top *frame, required []string) {
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

// array reads an array and calls element for each index; element reads the value. If element is
// nil, the values are skipped. It returns the number of elements, or -1 if the value is not a
// complete array, which is noted and skipped.
func (d *jsonDecoder) array(element func(i int)) int {
	if d.next() != '[' {
		d.mismatch("must be an array")
		return -1
	}
	if !d.enter(frame{base: len(d.names)}) {
		return -1
	}
	for first := true; ; first = false {
		if d.closes(']', first) {
			break
		}
		if element == nil {
			d.skip()
		} else {
			element(d.top().index)
		}
		if d.broken {
			return -1
		}
		d.top().index++
	}
	if d.broken {
		return -1
	}
	count := d.top().index
	d.frames = d.frames[:len(d.frames)-1]
	return count
}

// enter skips the opening bracket and pushes a frame.
func (d *jsonDecoder) enter(f frame) bool {
	if len(d.frames) == d.limit {
		d.fail("is nested more than " + strconv.Itoa(maxDepth) + " levels deep")
		return false
	}
	d.pos++
	d.frames = append(d.frames, f)
	return true
}

// closes skips the end of an array or object, or the comma before its next entry, and reports
// whether there is no next entry.
func (d *jsonDecoder) closes(bracket byte, first bool) bool {
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
		d.fail("there is a trailing comma before " + string(bracket))
	}
	return d.broken
}

// skip reads and checks a value of any type.
func (d *jsonDecoder) skip() {
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

// raw reads a value of any type and returns its bytes, a slice of the text.
func (d *jsonDecoder) raw() []byte {
	d.next()
	start := d.pos
	d.skip()
	if d.broken {
		return nil
	}
	return d.text[start:d.pos:d.pos]
}

// payload is raw for the payload of an event.
func (d *jsonDecoder) payload() []byte {
	limit := d.limit
	d.limit, d.opaque = len(d.frames)+maxDepth, true
	raw := d.raw()
	d.limit, d.opaque = limit, false
	return raw
}

// end notes an error if anything follows the value.
func (d *jsonDecoder) end() {
	if !d.broken {
		d.next()
		if d.pos < len(d.text) {
			d.fail("there is data after the JSON value")
		}
	}
}

// next skips white space and returns the next byte, or 0 at the end.
func (d *jsonDecoder) next() byte {
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

func (d *jsonDecoder) literal(word string) {
	if !bytes.HasPrefix(d.text[d.pos:], []byte(word)) {
		d.fail("is neither true, false nor null")
		return
	}
	d.pos += len(word)
}

// number reads a number by the grammar of RFC 8259 §6.
func (d *jsonDecoder) number() []byte {
	start := d.pos
	if d.at(d.pos) == '-' {
		d.pos++
	}
	zero := d.at(d.pos) == '0'
	if n := d.digits(); n == 0 || zero && n > 1 {
		d.fail("is not a valid JSON number")
		return nil
	}
	if d.at(d.pos) == '.' {
		d.pos++
		if d.digits() == 0 {
			d.fail("is not a valid JSON number")
			return nil
		}
	}
	if c := d.at(d.pos); c == 'e' || c == 'E' {
		d.pos++
		if c := d.at(d.pos); c == '+' || c == '-' {
			d.pos++
		}
		if d.digits() == 0 {
			d.fail("is not a valid JSON number")
			return nil
		}
	}
	return d.text[start:d.pos]
}

func (d *jsonDecoder) digits() int {
	start := d.pos
	for isDigit(d.at(d.pos)) {
		d.pos++
	}
	return d.pos - start
}

// at returns the byte at a position, or 0 past the end.
func (d *jsonDecoder) at(pos int) byte {
	if pos < len(d.text) {
		return d.text[pos]
	}
	return 0
}

// quoted reads a string. It returns the bytes between the quotes and whether they contain escapes.
func (d *jsonDecoder) quoted() (raw []byte, escaped bool) {
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
	d.fail("ends within a string")
	return nil, false
}

// escape skips one escape sequence.
func (d *jsonDecoder) escape() bool {
	switch d.at(d.pos + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		d.pos += 2
		return true
	case 'u':
		if unit, ok := hex4(d.text[d.pos+2:]); ok {
			if unit == 0 && !d.opaque {
				d.note("contains a NUL")
			}
			d.pos += 6
			return true
		}
	}
	d.fail("contains an invalid escape sequence")
	return false
}

// mismatch notes that the value has the wrong type and skips it. At the end of the text it notes
// only that the text is not JSON.
func (d *jsonDecoder) mismatch(message string) {
	if d.broken {
		return
	}
	before := len(d.errs)
	d.skip()
	if d.broken || before >= maxFieldErrors { // the syntax error is more useful than the type error
		return
	}
	d.errs = slices.Insert(d.errs, before, webhook.FieldError{Field: d.path(), Message: message})
}
