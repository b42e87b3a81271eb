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

// maxArgument bounds what is read from a file or standard input: the largest payload
// with some white space around it.
const maxArgument = webhook.MaxPayloadBytes + 64<<10

// source is an argument that stands for JSON: itself, @file, or - for standard input.
type source string

// Decode implements kong.MapperValue: the parser's own way to a string replaces bytes
// that are not UTF-8.
func (s *source) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("JSON")
	if err != nil {
		return err //nolint:wrapcheck // the parser adds the flag
	}
	*s = source(fmt.Sprint(token.Value))
	return nil
}

// read is the JSON: the bytes as they were given, without the white space around them.
// name is what errors call it; they show nothing of it.
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
		return nil, err //nolint:wrapcheck // names the file
	}
	defer func() { _ = file.Close() }() // only read
	return readBounded(file)
}

func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxArgument+1))
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	if len(text) > maxArgument {
		return nil, fmt.Errorf("is larger than %d bytes", webhook.MaxPayloadBytes)
	}
	return text, nil
}

// checkJSON says where a text stops being JSON. The API is stricter (names given
// twice, NUL, depth) and names the place itself.
func checkJSON(text []byte) error {
	if len(text) == 0 {
		return errors.New("is empty; it must be JSON, if only {} or null")
	}
	if len(text) > webhook.MaxPayloadBytes {
		return fmt.Errorf("is larger than %d bytes", webhook.MaxPayloadBytes)
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

// withPayload adds a payload to an object, with its bytes as they are: encoding/json
// would write them anew. Without one the object stays as it is; nil is an empty one.
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

// stdin is what was given, or the process's own.
func (p Process) stdin() io.Reader {
	if p.Stdin != nil {
		return p.Stdin
	}
	return os.Stdin
}

// instant is a point in time on the command line: RFC 3339, or how far it is away.
type instant struct {
	at    time.Time
	away  time.Duration // from now, when there is no at
	given bool
	fixed bool // at is given
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *instant) UnmarshalText(text []byte) error {
	if at, err := time.Parse(time.RFC3339, string(text)); err == nil {
		*i = instant{at: at, given: true, fixed: true}
		return nil
	}
	away, err := time.ParseDuration(string(text))
	if err != nil || away < 0 {
		return errors.New("is neither a time such as 2026-01-31T09:30:00Z nor a duration such as 90m")
	}
	*i = instant{away: away, given: true}
	return nil
}

// ahead is the time as the API reads it, a duration counted from now into the
// future; "" when none was given.
func (i instant) ahead(now time.Time) string { return i.text(now.Add(i.away)) }

// ago is the same for the past.
func (i instant) ago(now time.Time) string { return i.text(now.Add(-i.away)) }

func (i instant) text(counted time.Time) string {
	switch {
	case !i.given:
		return ""
	case i.fixed:
		return i.at.UTC().Format(time.RFC3339Nano)
	}
	return counted.UTC().Format(time.RFC3339Nano)
}

// replayID is a replay's id, rpl_….
type replayID string

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *replayID) UnmarshalText(text []byte) error {
	rest, ok := strings.CutPrefix(string(text), "rpl_")
	if !ok || rest == "" || strings.ContainsFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') }) {
		return errors.New("is not an id of the form rpl_…")
	}
	*id = replayID(text)
	return nil
}

// object is a JSON object that was given, by its fields; an empty one when none was.
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
