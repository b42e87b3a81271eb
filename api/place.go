package api

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/everpost/everpost/internal/webhook"
)

// mismatch notes that the value has the wrong type and steps over it. At the end
// of the text there is no value: that is not JSON.
func (d *door) mismatch(message string) {
	if d.broken {
		return
	}
	before := len(d.errs)
	d.skip()
	if d.broken || before >= maxFieldErrors { // where the JSON breaks says more than the type it would have had
		return
	}
	d.errs = slices.Insert(d.errs, before, webhook.FieldError{Field: d.path(), Message: message})
}

// note adds an error about the value at the present place.
func (d *door) note(message string) {
	if !d.broken && len(d.errs) < maxFieldErrors {
		d.errs = append(d.errs, webhook.FieldError{Field: d.path(), Message: message})
	}
}

// fail adds an error and ends the reading.
func (d *door) fail(message string) {
	if d.broken {
		return
	}
	d.errs = append(d.errs, webhook.FieldError{Field: d.path(), Message: message + " (byte " + strconv.Itoa(d.pos) + ")"})
	d.broken = true
}

// path is the present place as the API writes it: "events[3].type", and "body" for
// the text as a whole.
func (d *door) path() string {
	var b []byte
	for i := range d.frames {
		f := &d.frames[i]
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

// appendName shortens a name that is too long to be shown, between two runes.
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

// noteParent adds an error about the object or array that is being read.
func (d *door) noteParent(message string) {
	top := &d.frames[len(d.frames)-1]
	kept := *top
	top.name, top.index = nil, -1
	d.note(message)
	*top = kept
}

// noteIn adds an error about a place within the value at the present place: a
// dotted path, or "" for the value itself.
func (d *door) noteIn(field, message string) {
	if d.broken || len(d.errs) >= maxFieldErrors {
		return
	}
	at := d.path()
	if field != "" {
		at += "." + field
	}
	d.errs = append(d.errs, webhook.FieldError{Field: at, Message: message})
}

// problem is what was noted, as the error to be returned.
func (d *door) problem() error {
	if len(d.errs) == 0 {
		return nil
	}
	return &webhook.Error{Code: webhook.CodeInvalid, Message: invalidRequest, Fields: d.errs}
}

const invalidRequest = "the request is not valid"
