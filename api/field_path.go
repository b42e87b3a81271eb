package api

import (
	"strconv"
	"unicode/utf8"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	maxFieldErrors = 50  // errors in one response; later ones are dropped
	maxPathName    = 64  // bytes of a field name in a path
	maxPath        = 512 // bytes of a path
)

// fieldErrors collects what is wrong with a JSON text, by the path of the value that is being read.
type fieldErrors struct {
	pos    int     // in the text
	frames []frame // the open arrays and objects
	errs   []webhook.FieldError
	broken bool // the text is not JSON: decoding has ended
}

// frame is an open array or object and the current position in it.
type frame struct {
	name  []byte // the current field's, unescaped; nil before the first and in arrays
	index int    // of the current element; -1 in objects
	base  int    // start of the object's names in jsonDecoder.names
}

// top is the innermost open array or object, until the next one is opened: that may move all of them.
func (e *fieldErrors) top() *frame { return &e.frames[len(e.frames)-1] }

// note adds an error about the current value.
func (e *fieldErrors) note(message string) {
	if !e.broken && len(e.errs) < maxFieldErrors {
		e.errs = append(e.errs, webhook.FieldError{Field: e.path(), Message: message})
	}
}

// noteAt adds an error about a part of the current value, at a JSON pointer; "" for the value itself.
func (e *fieldErrors) noteAt(pointer, message string) {
	known := len(e.errs)
	e.note(message)
	if len(e.errs) > known {
		e.errs[known].Pointer = pointer
	}
}

// fail adds an error and ends the decoding.
func (e *fieldErrors) fail(message string) {
	if e.broken {
		return
	}
	e.errs = append(e.errs, webhook.FieldError{Field: e.path(), Message: message + " (byte " + strconv.Itoa(e.pos) + ")"})
	e.broken = true
}

// path is the path of the current value in API errors: "events[3].type", and "body" for the whole
// text.
func (e *fieldErrors) path() string {
	var b []byte
	for i := range e.frames {
		f := &e.frames[i]
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
func (e *fieldErrors) noteParent(message string) {
	top := e.top()
	kept := *top
	top.name, top.index = nil, -1
	e.note(message)
	*top = kept
}

// noteIn adds an error about a part of the current value: a dotted path, or "" for the value
// itself.
func (e *fieldErrors) noteIn(field, message string) {
	if e.broken || len(e.errs) >= maxFieldErrors {
		return
	}
	at := e.path()
	if field != "" {
		at += "." + field
	}
	e.errs = append(e.errs, webhook.FieldError{Field: at, Message: message})
}

// problem returns the collected errors as one error.
func (e *fieldErrors) problem() error {
	if len(e.errs) == 0 {
		return nil
	}
	return &webhook.Error{Code: webhook.CodeInvalid, Message: invalidRequest, Fields: e.errs}
}

const invalidRequest = "the request is not valid"
