package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
)

const (
	pageSize   = 250    // the API's largest page
	maxEntries = 10_000 // entries of a list, which is kept in memory

	clockTime = "15:04:05.000" // of progress lines; UTC, like all times in the output
)

// paging limits a list.
type paging struct {
	Limit  int    `default:"50" help:"Maximum of entries, 1 to 10000; newest first." placeholder:"N"`
	Cursor string `help:"Continue an earlier list: its next_cursor in --json." placeholder:"CURSOR"`
}

// column is a column of a table of T.
type column[T any] struct {
	title string
	cell  func(T) string
}

// opener is a command that calls the API.
type opener interface {
	open(p Process) (*session, error)
}

// with opens a session for the time of a call.
func with(p Process, c opener, call func(*session) error) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	return call(s)
}

// readable makes a request and prints the response as JSON with --json, else as show does.
func readable[T any](ctx context.Context, p Process, c opener, r request, show func(s *session, body []byte, answer T) error) error {
	return with(p, c, func(s *session) error {
		a, err := s.do(ctx, r)
		if err != nil {
			return err
		}
		if s.json {
			return s.show(a)
		}
		answer, err := decode[T](a)
		if err != nil {
			return err
		}
		return show(s, a.Body, answer)
	})
}

// removed makes a DELETE, whose response has no body, and prints what it has deleted.
func removed(ctx context.Context, p Process, c opener, r request, what string) error {
	return with(p, c, func(s *session) error {
		if _, err := s.do(ctx, r); err != nil || s.json {
			return err
		}
		return s.line("deleted " + what)
	})
}

// listOf opens a session and prints a list.
func listOf[T any](ctx context.Context, p Process, c opener, noun string, r request, page paging, columns []column[T]) error {
	return with(p, c, func(s *session) error { return printList(ctx, s, noun, r, page, columns) })
}

// printList prints a list of the API as a table, or with --json as one page with all
// entries. noun names the entries in messages.
func printList[T any](ctx context.Context, s *session, noun string, r request, p paging, columns []column[T]) error {
	entries, next, err := s.collect(ctx, r, p)
	if err != nil {
		return err
	}
	if s.json {
		page := map[string]any{"data": entries, "next_cursor": nil}
		if next != "" {
			page["next_cursor"] = next
		}
		return s.line(string(marshal(page)))
	}
	if len(entries) == 0 {
		_, _ = fmt.Fprintln(s.Stderr, "no "+noun)
		return nil
	}
	rows := make([][]string, len(entries)+1)
	for _, c := range columns {
		rows[0] = append(rows[0], c.title)
	}
	for i, raw := range entries {
		entry, err := decode[T](client.Answer{Body: raw})
		if err != nil {
			return err
		}
		for _, c := range columns {
			rows[i+1] = append(rows[i+1], c.cell(entry))
		}
	}
	if err := printable.Table(s.Stdout, rows); err != nil {
		return err
	}
	if next != "" {
		_, _ = fmt.Fprintf(s.Stderr, "there are more %s; --limit shows more of them\n", noun)
	}
	return nil
}

// collect follows next_cursor until the limit is reached, and returns the cursor of the
// remaining entries, "" if there are none.
func (s *session) collect(ctx context.Context, r request, p paging) (entries []json.RawMessage, next string, err error) {
	if p.Limit < 1 || p.Limit > maxEntries {
		return nil, "", usagef("--limit: must be a whole number from 1 to %d", maxEntries)
	}
	r.method, next = http.MethodGet, p.Cursor
	if r.query == nil {
		r.query = url.Values{}
	}
	entries = []json.RawMessage{}
	for {
		r.query.Set("limit", strconv.Itoa(min(p.Limit-len(entries), pageSize)))
		if next != "" {
			r.query.Set("cursor", next)
		}
		a, err := s.do(ctx, r)
		if err != nil {
			return nil, "", err
		}
		page, err := decode[client.Page[json.RawMessage]](a)
		if err != nil {
			return nil, "", err
		}
		entries, next = append(entries, page.Data...), page.NextCursor
		if next == "" || len(entries) >= p.Limit || len(page.Data) == 0 {
			return entries, next, nil
		}
	}
}

// optionalTime formats an optional time, "-" when there is none.
func optionalTime(t client.Time) string {
	if t.IsZero() {
		return "-"
	}
	return formatTime(t.Time)
}
