package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
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
func (s *session) show(a client.Answer) error {
	if len(a.Body) == 0 { // nothing to print
		return nil
	}
	if s.json {
		return s.line(string(bytes.TrimSpace(a.Body)))
	}
	table := tabwriter.NewWriter(s.Stdout, 0, 0, 2, ' ', 0)
	if err := writeFields(table, a.Body); err != nil {
		return err
	}
	return table.Flush()
}

// line prints a line on standard output.
func (s *session) line(text string) error {
	_, err := fmt.Fprintln(s.Stdout, text)
	return err
}

// writeFields writes the fields of a JSON object in their order, including fields that a
// later version of the API adds. A list of objects takes one line for each.
func writeFields(w io.Writer, body []byte) error {
	fields, err := printable.Fields(body)
	if err != nil {
		return errNotEverpost
	}
	for _, f := range fields {
		var several []json.RawMessage
		if bytes.HasPrefix(f.Value, []byte("[{")) && json.Unmarshal(f.Value, &several) == nil {
			for i, one := range several {
				name := f.Name
				if i > 0 {
					name = ""
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\n", printable.Text(name), printable.Text(printable.JSON(one)))
			}
			continue
		}
		if f.Name == "headers" { // they often contain credentials of the receiver
			_, _ = fmt.Fprintf(w, "%s\t%s\n", printable.Text(f.Name), printable.Text(printable.Names(f.Value)))
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\n", printable.Text(f.Name), printable.Text(printable.JSON(f.Value)))
	}
	return nil
}
