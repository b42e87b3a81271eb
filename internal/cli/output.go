package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// record makes a request and prints the one thing that is the answer.
func (s *session) record(ctx context.Context, r request) error {
	a, err := s.do(ctx, r)
	if err != nil {
		return err
	}
	return s.show(a)
}

// show prints an answer: as it is with --json, else a line for each field.
func (s *session) show(a answer) error {
	if len(a.body) == 0 { // done, and nothing to tell of it
		return nil
	}
	if s.json {
		return s.line(string(bytes.TrimSpace(a.body)))
	}
	table := tabwriter.NewWriter(s.Stdout, 0, 0, 2, ' ', 0)
	if err := writeFields(table, a.body); err != nil {
		return err
	}
	return table.Flush() //nolint:wrapcheck // standard output
}

// line prints a line on standard output.
func (s *session) line(text string) error {
	_, err := fmt.Fprintln(s.Stdout, text)
	return err //nolint:wrapcheck // standard output
}

// writeFields writes the fields of a JSON object in the order in which they come: a
// field that a later version of the API adds is shown too. Several objects in a
// field have a line each.
func writeFields(w io.Writer, body []byte) error {
	fields, err := fieldsOf(body)
	if err != nil {
		return err
	}
	for _, f := range fields {
		var several []json.RawMessage
		if bytes.HasPrefix(f.value, []byte("[{")) && json.Unmarshal(f.value, &several) == nil {
			for i, one := range several {
				name := f.name
				if i > 0 {
					name = ""
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\n", plain(name), plain(inWords(one)))
			}
			continue
		}
		if f.name == "headers" { // an endpoint's own: they often hold its receiver's credentials
			_, _ = fmt.Fprintf(w, "%s\t%s\n", plain(f.name), plain(namesOnly(f.value)))
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\n", plain(f.name), plain(inWords(f.value)))
	}
	return nil
}

// field is a name and the JSON of its value, without white space around it.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf reads an object without losing the order of its fields.
func fieldsOf(body []byte) ([]field, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errForeign
	}
	var fields []field
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, errForeign
		}
		f := field{name: fmt.Sprint(name)}
		if err := dec.Decode(&f.value); err != nil {
			return nil, errForeign
		}
		fields = append(fields, f)
	}
	if _, err := dec.Token(); err != nil { // the end of the object
		return nil, errForeign
	}
	return fields, nil
}

// inWords is a JSON value as a person reads it: texts without quotes, nothing as
// "-", a list by commas, an object as name=value.
func inWords(value json.RawMessage) string {
	if len(value) == 0 {
		return "-"
	}
	switch value[0] {
	case 'n':
		return "-"
	case '"':
		var text string
		_ = json.Unmarshal(value, &text) // a part of what was read as JSON
		if text == "" {
			return "-"
		}
		return text
	case '[':
		var several []json.RawMessage
		_ = json.Unmarshal(value, &several) // as above
		words := make([]string, len(several))
		for i, one := range several {
			words[i] = inWords(one)
		}
		return orDash(strings.Join(words, ", "))
	case '{':
		fields, _ := fieldsOf(value) // as above
		words := make([]string, len(fields))
		for i, f := range fields {
			words[i] = f.name + "=" + inWords(f.value)
		}
		return orDash(strings.Join(words, " "))
	}
	return string(value)
}

// namesOnly is the names of an object's fields.
func namesOnly(value json.RawMessage) string {
	fields, _ := fieldsOf(value)
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name + "=…"
	}
	return orDash(strings.Join(names, " "))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// plain is a text of others as it may be printed: what could steer a terminal, end
// a line or turn the direction of writing is shown as an escape sequence.
func plain(text string) string {
	clean := true
	for _, r := range text {
		clean = clean && unicode.IsPrint(r)
	}
	if clean {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
