package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// parse returns parseEvent's errors about a body as "field: message" lines.
func parse(body string) (webhook.NewEvent, []string) {
	e, err := parseEvent([]byte(body), testNow(), webhook.DefaultMaxPayload)
	if err == nil {
		return e, nil
	}
	var lines []string
	for _, f := range err.(*webhook.Error).Fields { //nolint:errorlint // parseEvent returns nothing else
		lines = append(lines, f.Field+": "+f.Message)
	}
	return e, lines
}

func TestDecoderErrorsHaveTheirPath(t *testing.T) {
	t.Parallel()
	nested := func(field string, n int) string {
		return `{"type":"a","payload":1,"` + field + `":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	for body, want := range map[string][]string{
		`{}`:                          {"type: is required", "payload: is required"},
		`{"payload":1}`:               {"type: is required"},
		`[]`:                          {"body: must be an object"},
		`null`:                        {"body: must be an object"},
		` `:                           {"body: a value is missing (byte 1)"},
		`{`:                           {"body: a name in double quotes is missing (byte 1)"},
		`{"type":"a","payload":1}x`:   {"body: there is data after the JSON value (byte 24)"},
		`{"type":"a","payload":1}{}`:  {"body: there is data after the JSON value (byte 24)"},
		`{"type":"a","payload":1,}`:   {"payload: there is a trailing comma before } (byte 24)"},
		`{"type":"a" "payload":1}`:    {"type: a comma or } is missing (byte 12)"},
		`{"type":"a","payload"1}`:     {"payload: a colon is missing (byte 21)"},
		`{"type":"a","payload":}`:     {"payload: a value is missing (byte 22)"},
		`{"type":"a","payload":01}`:   {"payload: is not a valid JSON number (byte 24)"},
		`{"type":"a","payload":-}`:    {"payload: is not a valid JSON number (byte 23)"},
		`{"type":"a","payload":1.}`:   {"payload: is not a valid JSON number (byte 24)"},
		`{"type":"a","payload":1e+}`:  {"payload: is not a valid JSON number (byte 25)"},
		`{"type":"a","payload":NaN}`:  {"payload: a value is missing (byte 22)"},
		`{"type":"a","payload":trux}`: {"payload: is neither true, false nor null (byte 22)"},
		`{"type":"a","payload":'x'}`:  {"payload: a value is missing (byte 22)"},
		`{"type":"a","payload":"x`:    {"payload: ends within a string (byte 24)"},
		"\ufeff{}":                    {"body: a value is missing (byte 0)"},

		`{"type":1,"payload":1}`:                                       {"type: must be a string"},
		`{"type":null,"payload":null}`:                                 {"type: must be a string"},
		`{"Type":"a","payload":1}`:                                     {"Type: is not a known field", "type: is required"},
		`{"type":"a","payload":1,"x.y":{"z":[0]}}`:                     {"x.y: is not a known field"},
		`{"type":"a","payload":1,"type":"a"}`:                          {"type: is given more than once"},
		`{"type":"a","payload":1,"t\u0079pe":"b"}`:                     {"type: is given more than once"},
		`{"type":"a","payload":1,"x":{"a":{"b":1,"c":2,"b":3,"b":4}}}`: {"x: is not a known field", "x.a.b: is given more than once"},
		`{"type":"a","payload":1,"x":[0,{"k":1,"k":2}]}`:               {"x: is not a known field", "x[1].k: is given more than once"},
		`{"type":"a","payload":1,"payload":2}`:                         {"payload: is given more than once"},

		`{"type":"a\u0000","payload":"\u0000"}`:           {"type: contains a NUL", "type: " + notAType},
		`{"type":"a","payload":1,"x":{"a\u0000b":[1]}}`:   {"x: is not a known field", "x: contains a NUL"},
		"{\"type\":\"a\",\"payload\":{\"a\":\"\x00\"}}":   {"payload.a: contains a NUL (byte 28)"},
		"{\"type\":\"a\",\"payload\":\"\n\"}":             {"payload: contains a control character that is not escaped (byte 23)"},
		"{\"type\":\"a\",\"payload\":\"\xff\"}":           {"payload: is not valid UTF-8 (byte 23)"},
		"{\"type\":\"a\",\"payload\":\"\xed\xa0\x80\"}":   {"payload: is not valid UTF-8 (byte 23)"},
		"{\"type\":\"a\",\"payload\":\xff}":               {"payload: a value is missing (byte 22)"},
		`{"type":"a","payload":"\x"}`:                     {"payload: contains an invalid escape sequence (byte 23)"},
		`{"type":"a","payload":"\u12g4"}`:                 {"payload: contains an invalid escape sequence (byte 23)"},
		`{"type":"a","payload":1,"external_id":"\ud83d"}`: {"external_id: contains half of a surrogate pair"},

		nested("x", 511): {"x: is not a known field"}, // the body's own object is the first of the 512
		nested("x", 512): {"x: is not a known field", "x" + strings.Repeat("[0]", 171) + "…: is nested more than 512 levels deep (byte 539)"},

		`{"type":"a b","payload":1,"external_id":"","deliver_at":"tomorrow","endpoint_ids":["ep_1",2],"z":0}`: {
			"type: " + notAType, "external_id: must be 1 to 255 printable characters", "deliver_at: " + notATime,
			"endpoint_ids[0]: is not an id of the form ep_…", "endpoint_ids[1]: must be a string",
			"z: is not a known field",
		},
	} {
		_, got := parse(body)
		require.Equal(t, want, got, "%q", body)
	}
}

func TestPayloadIsThePartOfTheBody(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"b" : 1.10, "a":"\u00e4\/ä😀"}`, `null`, `"x"`, `0`, `-0.0e-7`, `[ ]`, `{ }`, `"\ud83d"`, `"\ud83d\ude00 \udc00"`, `true`, `false`,
		`{"":{"":1}}`, `1e999`,
		`"a\u0000b"`, `{"a\u0000":["\u0000"]}`, `{"a":1,"b":{"c":0,"c":0},"a":2}`, `{"\ud800":1,"\ud800":2}`,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth),
	} {
		body := `{"type":"a", "payload" :  ` + payload + ` ,"external_id":"x"` + " \n}"
		e, errs := parse(body)
		require.Empty(t, errs)
		require.Equal(t, payload, string(e.Payload))
		require.Equal(t, "x", e.ExternalID, "what follows the payload is read as before")

		b, err := parseBatch([]byte(`{"events":[{"type":"b","payload":0},`+body+`]}`), testNow(), webhook.DefaultMaxPayload)
		require.NoError(t, err)
		require.Equal(t, payload, string(b.Events[1].Payload))
	}
}

// What is not JSON is refused within a payload too, and so is one level too many; a batch names the one event that is wrong.
func TestPayloadThatIsRefused(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for payload, message := range map[string]string{
		"\"a\x00b\"": "contains a NUL", "\"a\tb\"": "contains a control character that is not escaped", "\"\xff\"": "is not valid UTF-8",
		`"\u00g0"`: "contains an invalid escape sequence", `{"a":1,}`: "there is a trailing comma before }", deep: "is nested more than 512 levels deep",
	} {
		bad := `{"type":"a","payload":` + payload + `}`
		_, errs := parse(bad)
		require.Len(t, errs, 1)
		require.Contains(t, errs[0], message)
		require.True(t, strings.HasPrefix(errs[0], "payload"), errs[0])
		_, err := parseBatch([]byte(`{"events":[{"type":"b","payload":0},`+bad+`,{"type":"b","payload":0}]}`), testNow(), webhook.DefaultMaxPayload)
		invalid, ok := errors.AsType[*webhook.Error](err)
		require.True(t, ok)
		require.Len(t, invalid.Fields, 1)
		require.True(t, strings.HasPrefix(invalid.Fields[0].Field, "events[1].payload"), invalid.Fields[0].Field)
	}
}

func TestManyNamesAreComparedToo(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 25_000 {
		fmt.Fprintf(&b, `"%d":0,`, i)
	}
	_, errs := parse(`{"type":"a","payload":1,"x":{` + b.String() + `"last":0}}`)
	require.Equal(t, []string{"x: is not a known field"}, errs)
	_, errs = parse(`{"type":"a","payload":1,"x":{` + b.String() + `"777":0,"777":0}}`)
	require.Equal(t, []string{"x: is not a known field", "x.777: is given more than once"}, errs)
}

func TestErrorsAndPathsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 1000)
	_, errs := parse(`{"type":"a","payload":1,"` + long + `":0}`)
	require.Equal(t, []string{strings.Repeat("ä", 32) + "…: is not a known field"}, errs)

	_, errs = parse(`{"type":"a","payload":1,"endpoint_ids":[` + strings.Repeat("0,", 50_000) + `0]}`)
	require.Len(t, errs, maxFieldErrors)
}

func TestUnescapeIsEncodingJSONs(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`a\"\\\/\b\f\n\r\tz`, `\u0041\u00e4\u20AC`, `\ud83d\ude00`, `x\ud83dy`, `\udc00\ud83d`, `\ud83d\ud83d\ude00`} {
		var want string
		require.NoError(t, json.Unmarshal([]byte(`"`+text+`"`), &want))
		got, whole := unescape([]byte(text))
		require.Equal(t, !strings.ContainsRune(want, utf8.RuneError), whole, text)
		if whole {
			require.Equal(t, want, string(got))
		}
	}
}

// FuzzEventBody compares the decoder with encoding/json: it accepts no invalid JSON, refuses valid
// JSON only by its own rules, and returns the payload's bytes unchanged.
func FuzzEventBody(f *testing.F) {
	for _, seed := range []string{
		`{"type":"order.paid","payload":{"order":17},"external_id":"x"}`, `{"type":"a","payload":[1,-2.5e3,"\ud83d\ude00",null,true]}`,
		`{"type":"a","payload":{"a":1,"a":2}}`, `{"payload":"\u0000","type":"a"}`, `{"type":"a","payload":01}`, `{} {}`, `[[[`, `"`,
		`{"type":"a","payload":1,"deliver_at":"2026-02-01T00:00:00Z","endpoint_ids":["ep_06f4q2m0hhf5dd6cs7m9k2q8xw"]}`, "{\"type\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := newJSONDecoder(text)
		d.raw()
		d.end()
		valid := json.Valid(text) && utf8.Valid(text)
		if d.broken {
			tooDeep := strings.Contains(d.errs[len(d.errs)-1].Message, "levels deep")
			require.True(t, !valid || tooDeep, "refused: %q: %v", text, d.errs)
		} else {
			require.True(t, valid, "taken: %q", text)
			require.Equal(t, hasTwice(text), anyMessage(d.errs, "is given more than once"), "%q: %v", text, d.errs)
			require.Equal(t, hasNUL(text), anyMessage(d.errs, "contains a NUL"), "%q", text)
		}
		for _, e := range d.errs {
			require.NotEmpty(t, e.Field)
		}

		e, err := parseEvent(text, testNow(), webhook.DefaultMaxPayload)
		if err != nil {
			return
		}
		var want struct {
			Type       string          `json:"type"`
			Payload    json.RawMessage `json:"payload"`
			ExternalID *string         `json:"external_id"`
		}
		require.NoError(t, json.Unmarshal(text, &want))
		require.Equal(t, want.Type, e.Type)
		require.Equal(t, string(want.Payload), string(e.Payload))
		require.True(t, bytes.Contains(text, e.Payload))
		if want.ExternalID != nil {
			require.Equal(t, *want.ExternalID, e.ExternalID)
		}
	})
}

func anyMessage(errs []webhook.FieldError, message string) bool {
	for _, e := range errs {
		if e.Message == message {
			return true
		}
	}
	return false
}

// hasTwice finds duplicate names with encoding/json's tokens. Names with unpaired surrogates, which
// become the same replacement character there, are ignored.
func hasTwice(text []byte) bool {
	type open struct {
		names map[string]bool // nil for an array
		value bool            // the next token is a value, not a name
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var stack []*open
	twice := false
	for {
		token, err := dec.Token()
		if err != nil {
			return twice
		}
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if len(stack) > 0 {
			if top := stack[len(stack)-1]; top.names != nil {
				if !top.value {
					name := token.(string)
					twice = twice || top.names[name] && !strings.ContainsRune(name, utf8.RuneError)
					top.names[name], top.value = true, true
					continue
				}
				top.value = false
			}
		}
		switch {
		case isDelim && delim == '{':
			stack = append(stack, &open{names: map[string]bool{}})
		case isDelim:
			stack = append(stack, &open{})
		}
	}
}

func hasNUL(text []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return false
		}
		if s, ok := token.(string); ok && strings.ContainsRune(s, 0) {
			return true
		}
	}
}

func BenchmarkParseEvent(b *testing.B) {
	var fields strings.Builder
	for i := range 30 {
		fmt.Fprintf(&fields, `"field_%d":{"text":"some ordinary text of a field","n":%d},`, i, i*1000)
	}
	body := []byte(`{"type":"order.paid","external_id":"order-17-paid","payload":{` + fields.String() + `"end":true}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseEvent(body, testNow(), webhook.DefaultMaxPayload); err != nil {
			b.Fatal(err)
		}
	}
}
