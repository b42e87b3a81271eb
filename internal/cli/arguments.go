package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/everpost/everpost/internal/webhook"
)

// maxArgument bounds what is read from a file or standard input: the largest payload of any
// installation with white space around it. The API knows the limit of its own.
const maxArgument = webhook.LargestMaxPayload + 64<<10

// source is a JSON argument: the JSON itself, @file, or - for standard input.
type source string

// Decode implements kong.MapperValue: kong's own string mapper replaces bytes that are not
// UTF-8.
func (s *source) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("JSON")
	if err != nil {
		return err //nolint:wrapcheck // kong adds the flag
	}
	*s = source(fmt.Sprint(token.Value))
	return nil
}

// read returns the JSON as given, without surrounding white space. name is the argument's
// name in errors, which contain nothing of the JSON.
func (s *source) read(p Process, name string) ([]byte, error) {
	var (
		text []byte
		err  error
	)
	switch file, isFile := strings.CutPrefix(string(*s), "@"); {
	case *s == "-":
		text, err = readBounded(p.stdin())
	case isFile:
		text, err = readFile(file)
	default:
		text = []byte(*s)
	}
	if err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	text = bytes.Trim(text, " \t\r\n")
	if err := checkJSON(text); err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	return text, nil
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // named by the caller
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened for reading
	return readBounded(file)
}

func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxArgument+1))
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	if len(text) > maxArgument {
		return nil, fmt.Errorf("is larger than %d bytes", webhook.LargestMaxPayload)
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), nil // the byte order mark that editors of Windows write
}

// checkJSON reports where a text is not valid JSON. The API has stricter rules (duplicate
// names, NUL, depth) and reports violations itself.
func checkJSON(text []byte) error {
	if len(text) == 0 {
		return errors.New("is empty; it must be JSON, if only {} or null")
	}
	if len(text) > webhook.LargestMaxPayload {
		return fmt.Errorf("is larger than %d bytes", webhook.LargestMaxPayload)
	}
	if !utf8.Valid(text) {
		return errors.New("is not valid UTF-8")
	}
	var value json.RawMessage
	err := json.Unmarshal(text, &value)
	if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
		before := text[:max(bad.Offset-1, 0)]
		line := bytes.Count(before, []byte("\n")) + 1
		column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
		return fmt.Errorf("is not JSON: %w (line %d, column %d); a text needs its double quotes", err, line, column)
	}
	return err //nolint:wrapcheck // no other error is known
}

// withPayload adds a payload to a JSON object without changing its bytes: encoding/json
// would re-encode it. Without a payload it returns the object unchanged; a nil head is an
// empty object.
func withPayload(head, payload []byte) []byte {
	if payload == nil {
		return head
	}
	b := []byte("{")
	if len(head) > len("{}") {
		b = append(bytes.Clone(head[:len(head)-1]), ',')
	}
	return fmt.Appendf(b, `"payload":%s}`, payload)
}

// stdin returns the given reader, or os.Stdin.
func (p Process) stdin() io.Reader {
	if p.Stdin != nil {
		return p.Stdin
	}
	return os.Stdin
}

// instant is a point in time on the command line: RFC 3339, or a duration relative to now.
type instant struct {
	at     time.Time
	offset time.Duration // relative to now, if not fixed
	given  bool
	fixed  bool // at is set, not offset
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *instant) UnmarshalText(text []byte) error {
	if at, err := time.Parse(time.RFC3339, string(text)); err == nil {
		*i = instant{at: at, given: true, fixed: true}
		return nil
	}
	offset, ok := webhook.ParseAge(string(text))
	if !ok {
		return errors.New("is neither a time such as 2026-01-31T09:30:00Z nor a duration such as 90m or 7d")
	}
	*i = instant{offset: offset, given: true}
	return nil
}

// fromNow returns the time in the API's format; a duration counts from now into the future.
// It returns "" when no time was given.
func (i instant) fromNow(now time.Time) string { return i.text(now.Add(i.offset)) }

// ago is fromNow for a duration that counts into the past.
func (i instant) ago(now time.Time) string { return i.text(now.Add(-i.offset)) }

func (i instant) text(counted time.Time) string {
	switch {
	case !i.given:
		return ""
	case i.fixed:
		return i.at.UTC().Format(time.RFC3339Nano)
	}
	return counted.UTC().Format(time.RFC3339Nano)
}

// object returns the fields of a JSON object; an empty map when none was given.
func (s *source) object(p Process, name string) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if *s == "" {
		return fields, nil
	}
	text, err := s.read(p, name)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(text, &fields) != nil || fields == nil {
		return nil, usage(name + ": must be a JSON object")
	}
	return fields, nil
}
