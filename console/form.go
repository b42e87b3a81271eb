package console

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/everpost/everpost/client"
)

// form is a form as it is shown: with what was typed and what is wrong with it, after the API refused it.
type form struct {
	Values  url.Values
	Problem string // what is wrong with the whole, or with a field that the form does not show
	errors  map[string]string
	known   []string
	stale   bool // it was refused because another has changed what it shows
}

// newForm is a form with initial values, as name, value, name, value, …. Its fields are those names.
func newForm(pairs ...string) form {
	f := form{Values: url.Values{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		f.Values.Set(pairs[i], pairs[i+1])
		f.known = append(f.known, pairs[i])
	}
	return f
}

// refused is the form again with what was typed, and why it was refused. It returns the error itself if
// that is not about what was typed.
func (f form) refused(typed url.Values, err error) (form, error) {
	known, ok := errors.AsType[*problem](err)
	if !ok {
		return f, err
	}
	switch known.Status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
		http.StatusServiceUnavailable:
	default:
		return f, err
	}
	f = f.kept(typed) // "once", too: the change may have been made all the same
	f.errors, f.stale = map[string]string{}, known.stale
	for _, bad := range known.Errors {
		name, words := f.fieldOf(bad.Field), bad.Message
		switch {
		case name == "":
			f.Problem += bad.Place() + " " + words + ". "
			continue
		case bad.Pointer != "":
			words = bad.Pointer + ": " + words
		}
		f.errors[name] = strings.TrimPrefix(f.errors[name]+"; "+words, "; ")
	}
	if len(known.Errors) == 0 {
		f.Problem = sentence(known.Detail)
	}
	return f, nil
}

// kept is the form with what was typed.
func (f form) kept(typed url.Values) form {
	f.Values = url.Values{"once": typed["once"]}
	for _, name := range f.known {
		f.Values[name] = typed[name]
	}
	return f
}

// withTypes is the form with further event types that are typed.
func (f form) withTypes(types []string) form {
	if now := listed(f.Value("event_types")); len(types) > 0 {
		f.Values.Set("event_types", strings.Join(append(now, types...), "\n"))
	}
	return f
}

// listed are the words of a list that is typed, one per line or between commas.
func listed(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \r\n\t", r) })
}

// fieldOf is the form's field that a path of the API is about: retry_policy.base is in retry_policy.
func (f form) fieldOf(path string) string {
	if slices.Contains(f.known, path) {
		return path
	}
	for _, name := range f.known {
		if strings.HasPrefix(path, name+".") || strings.HasPrefix(path, name+"[") {
			return name
		}
	}
	return ""
}

// Value is what a field holds.
func (f form) Value(name string) string { return f.Values.Get(name) }

// Once is the value of the field "once": see page.create.
func (f form) Once() string { return cmp.Or(f.Value("once"), rand.Text()) }

// Error is what is wrong with a field; "" for nothing.
func (f form) Error(name string) string { return f.errors[name] }

// Any reports whether one of the fields holds anything.
func (f form) Any(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return f.Value(name) != "" })
}

// Failed reports whether the form was refused.
func (f form) Failed() bool { return f.Problem != "" || len(f.errors) > 0 }

// status is the status of the page with the form.
func (f form) status() int {
	if f.Failed() {
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// fieldView is one field of a form, for the templates "input", "area" and "choice".
type fieldView struct {
	Name, Label, Hint, Value, Error string
	Options                         []string
}

// newInput is a field of a form. Further texts are the options of a choice.
func newInput(f form, name, label, hint string, options ...string) fieldView {
	return fieldView{name, label, hint, f.Value(name), f.Error(name), options}
}

// sentence makes a sentence of a clause.
func sentence(clause string) string {
	if clause == "" {
		return ""
	}
	text := strings.ToUpper(clause[:1]) + clause[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// number is a text as a number of JSON; nil for "". Any other text stays as it is: the API says what is wrong with it.
func number(text string) any {
	if text == "" {
		return nil
	}
	if n := json.Number(text); json.Valid([]byte(text)) {
		if _, err := n.Float64(); err == nil {
			return n
		}
	}
	return text
}

// notJSON is what is wrong with a payload.
const notJSON = "is not valid JSON"

// withPayload is the JSON object of fields and a payload, whose bytes stay as they are.
func withPayload(fields map[string]any, payload []byte) (json.RawMessage, error) {
	return withJSON(fields, "payload", payload)
}

// withJSON is the JSON object of fields and one more, whose bytes stay as they are.
func withJSON(fields map[string]any, name string, text []byte) (json.RawMessage, error) {
	head, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode a form: %w", err)
	}
	head = bytes.TrimSuffix(head, []byte("}"))
	if len(fields) > 0 {
		head = append(head, ',')
	}
	return append(append(append(head, `"`+name+`":`...), text...), '}'), nil
}

// seenAt is when a thing that a form shows was changed last; "" for a new one.
func seenAt(t client.Time) string {
	if t.IsZero() {
		return ""
	}
	return rfc3339(t.Time)
}

// changedMeanwhile returns the refusal of a form that showed what another has changed since: when the form was made,
// the thing had last been changed at seen.
func changedMeanwhile(thing, seen string, updatedAt client.Time) error {
	if seen == "" || seen == seenAt(updatedAt) {
		return nil
	}
	return changedByAnother(thing)
}

// changedByAnother is the refusal of a form that another was faster than.
func changedByAnother(thing string) error {
	of := refusal(http.StatusConflict,
		"the "+thing+" was changed in the meantime, so nothing was saved; check the values below, which are yours, and save again")
	of.stale = true
	return of
}

// shows is the mark, in the field of that name, of what the form shows: now for a new form, and for one that was refused because it is stale. A form that
// is shown again for another reason keeps the mark that it was sent with: its reader has not been told of a change since.
func (f form) shows(typed url.Values, name, now string) string {
	if f.stale {
		return now
	}
	return cmp.Or(typed.Get(name), now)
}
