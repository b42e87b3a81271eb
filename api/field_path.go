package api

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/everpost/everpost/internal/webhook"
)

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

// note adds an error about the current value.
func (d *jsonDecoder) note(message string) {
	if !d.broken && len(d.errs) < maxFieldErrors {
		d.errs = append(d.errs, webhook.FieldError{Field: d.path(), Message: message})
	}
}

// fail adds an error and ends the decoding.
func (d *jsonDecoder) fail(message string) {
	if d.broken {
		return
	}
	d.errs = append(d.errs, webhook.FieldError{Field: d.path(), Message: message + " (byte " + strconv.Itoa(d.pos) + ")"})
	d.broken = true
}

// path is the path of the current value in API errors: "events[3].type", and "body" for the whole
// text.
func (d *jsonDecoder) path() string {
	var b []byte
	for i := range d.frames {
		f := &d.frames[i]
		if len(b) > maxPath {
			b = append(b, "…"...)
			break
		}
		switch {
		case f.index >= 0:
			b = append(b, '[')
			b = strconv.AppendInt(b, int64(f.index), 10)
			b = append(b, ']')
		case f.name != nil:
			if len(b) > 0 {
				b = append(b, '.')
			}
			b = appendName(b, f.name)
		}
	}
	if len(b) == 0 {
		return "body"
	}
	return string(b)
}

// appendName appends a name, cut between two runes if it is too long.
func appendName(b, name []byte) []byte {
	if len(name) <= maxPathName {
		return append(b, name...)
	}
	cut := maxPathName
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return append(append(b, name[:cut]...), "…"...)
}

// noteParent adds an error about the current object or array.
func (d *jsonDecoder) noteParent(message string) {
	top := d.top()
	kept := *top
	top.name, top.index = nil, -1
	d.note(message)
	*top = kept
}

// noteIn adds an error about a part of the current value: a dotted path, or "" for the value
// itself.
func (d *jsonDecoder) noteIn(field, message string) {
	if d.broken || len(d.errs) >= maxFieldErrors {
		return
	}
	at := d.path()
	if field != "" {
		at += "." + field
	}
	d.errs = append(d.errs, webhook.FieldError{Field: at, Message: message})
}

// problem returns the collected errors as one error.
func (d *jsonDecoder) problem() error {
	if len(d.errs) == 0 {
		return nil
	}
	return &webhook.Error{Code: webhook.CodeInvalid, Message: invalidRequest, Fields: d.errs}
}

const invalidRequest = "the request is not valid"
