package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Field is a name and its JSON value, without surrounding white space.
type Field struct {
	Name  string
	Value json.RawMessage
}

var errNoObject = errors.New("not a JSON object")

// Fields parses an object and keeps the order of its fields.
func Fields(body []byte) ([]Field, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errNoObject
	}
	var fields []Field
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, errNoObject
		}
		f := Field{Name: fmt.Sprint(name)}
		if err := dec.Decode(&f.Value); err != nil {
			return nil, errNoObject
		}
		fields = append(fields, f)
	}
	if _, err := dec.Token(); err != nil { // the end of the object
		return nil, errNoObject
	}
	return fields, nil
}

// JSON formats a JSON value for people: texts without quotes, null as "-", a list with commas, an
// object as name=value. Its result still needs Text.
func JSON(value json.RawMessage) string {
	if len(value) == 0 {
		return "-"
	}
	switch value[0] {
	case 'n':
		return "-"
	case '"':
		var text string
		_ = json.Unmarshal(value, &text) // part of a valid JSON text
		return OrDash(text)
	case '[':
		var several []json.RawMessage
		_ = json.Unmarshal(value, &several) // as above
		words := make([]string, len(several))
		for i, one := range several {
			words[i] = JSON(one)
		}
		return OrDash(strings.Join(words, ", "))
	case '{':
		fields, _ := Fields(value) // as above
		words := make([]string, len(fields))
		for i, f := range fields {
			words[i] = f.Name + "=" + JSON(f.Value)
		}
		return OrDash(strings.Join(words, " "))
	}
	return string(value)
}

// Names returns the names of an object's fields.
func Names(value json.RawMessage) string {
	fields, _ := Fields(value)
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name + "=…"
	}
	return OrDash(strings.Join(names, " "))
}

// OrDash returns the text, "-" for an empty one.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
