package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/everpost/everpost/internal/cli/printable"
	"github.com/everpost/everpost/internal/client"
)

// record makes a request and prints the response.
func (s *session) record(ctx context.Context, r request) error {
	a, err := s.do(ctx, r)
	if err != nil {
		return err
	}
	return s.show(a)
}

// show prints a response: unchanged with --json, else one line for each field.
func (s *session) show(a answer) error {
	if len(a.body) == 0 { // nothing to print
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

// writeFields writes the fields of a JSON object in their order, including fields that a
// later version of the API adds. A list of objects takes one line for each.
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
				_, _ = fmt.Fprintf(w, "%s\t%s\n", printable.Text(name), printable.Text(readableJSON(one)))
			}
			continue
		}
		if f.name == "headers" { // they often contain credentials of the receiver
			_, _ = fmt.Fprintf(w, "%s\t%s\n", printable.Text(f.name), printable.Text(namesOnly(f.value)))
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\n", printable.Text(f.name), printable.Text(readableJSON(f.value)))
	}
	return nil
}

// field is a name and its JSON value, without surrounding white space.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf parses an object and keeps the order of its fields.
func fieldsOf(body []byte) ([]field, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, client.ErrNotEverpost
	}
	var fields []field
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, client.ErrNotEverpost
		}
		f := field{name: fmt.Sprint(name)}
		if err := dec.Decode(&f.value); err != nil {
			return nil, client.ErrNotEverpost
		}
		fields = append(fields, f)
	}
	if _, err := dec.Token(); err != nil { // the end of the object
		return nil, client.ErrNotEverpost
	}
	return fields, nil
}

// readableJSON formats a JSON value for people: texts without quotes, null as "-", a list
// with commas, an object as name=value.
func readableJSON(value json.RawMessage) string {
	if len(value) == 0 {
		return "-"
	}
	switch value[0] {
	case 'n':
		return "-"
	case '"':
		var text string
		_ = json.Unmarshal(value, &text) // part of a valid JSON text
		if text == "" {
			return "-"
		}
		return text
	case '[':
		var several []json.RawMessage
		_ = json.Unmarshal(value, &several) // as above
		words := make([]string, len(several))
		for i, one := range several {
			words[i] = readableJSON(one)
		}
		return orDash(strings.Join(words, ", "))
	case '{':
		fields, _ := fieldsOf(value) // as above
		words := make([]string, len(fields))
		for i, f := range fields {
			words[i] = f.name + "=" + readableJSON(f.value)
		}
		return orDash(strings.Join(words, " "))
	}
	return string(value)
}

// namesOnly returns the names of an object's fields.
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
