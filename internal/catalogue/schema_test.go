package catalogue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func compiled(t require.TestingT, schema string) *Schema {
	s, err := Compile([]byte(schema))
	require.NoError(t, err, schema)
	return s
}

// mismatches are the pointers and messages of what does not match.
func mismatches(t require.TestingT, s *Schema, payload string) []string {
	found, err := s.Validate(context.Background(), []byte(payload))
	require.NoError(t, err)
	var all []string
	for _, m := range found {
		all = append(all, m.Pointer+" "+m.Message)
	}
	return all
}

const order = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object", "required": ["id", "lines"], "additionalProperties": false,
	"properties": {
		"id": {"type": "string", "pattern": "^o_[0-9]+$", "maxLength": 10},
		"state": {"enum": ["open", "paid", 3]},
		"kind": {"const": {"a": 1}},
		"total": {"type": "number", "minimum": 0, "multipleOf": 0.01},
		"lines": {"type": "array", "minItems": 1, "uniqueItems": true, "items": {"$ref": "#/$defs/line"}},
		"extra": {"oneOf": [{"type": "string"}, {"type": "null"}]}
	},
	"$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer", "exclusiveMinimum": 0}}, "required": ["sku"]}}
}`

func TestValidate(t *testing.T) {
	t.Parallel()
	s := compiled(t, order)
	for payload, want := range map[string][]string{
		`{"id":"o_1","lines":[{"sku":"x","n":1.0}],"state":"paid","total":1.25,"extra":null,"kind":{"a":1.0}}`: nil,
		`{"id":"o_1","lines":[{"sku":"x"}],"state":3.0}`:                                                       nil,
		`7`:                   {" must be an object"},
		`{}`:                  {"/id is required", "/lines is required"},
		`{"id":1,"lines":[]}`: {"/id must be a string", "/lines must have at least 1 items"},
		`{"id":"p","lines":[{"sku":"x"},{"sku":"x"}]}`: {
			"/id must match the pattern ^o_[0-9]+$",
			"/lines must have different items; 0 and 1 are equal",
		},
		`{"id":"o_1","lines":[{"n":0},{"sku":1,"n":1.5}]}`: {
			"/lines/0/n must be above 0",
			"/lines/0/sku is required",
			"/lines/1/n must be an integer",
			"/lines/1/sku must be a string",
		},
		`{"id":"o_1","lines":[{"sku":"x"}],"state":"x","total":0.001}`: {`/state must be one of "open", "paid", 3`, "/total must be a multiple of 0.01"},
		`{"id":"o_1","lines":[{"sku":"x"}],"extra":1,"kind":{"a":2}}`:  {"/extra must match one of the alternatives", `/kind must be {"a":1}`},
		`{"id":"o_1","lines":[{"sku":"x"}],"a/b~c":1}`:                 {"/a~1b~0c is not a property of the schema"},
		`{"id":"o_1","id":1,"lines":[{"sku":"x"}]}`:                    {"/id must be a string"},
	} {
		require.Equal(t, want, mismatches(t, s, payload), payload)
	}
}

func TestDraft7(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"type":"string","format":"date-time"}},
		"properties":{"at":{"$ref":"#/definitions/a"},"two":{"items":[{"type":"string"},{"type":"integer"}],"additionalItems":false}},
		"dependencies":{"at":["two"]}}`)
	require.Equal(t, []string{"/at must have the format date-time", "/two is required"}, mismatches(t, s, `{"at":"yesterday"}`))
	require.Equal(t, []string{"/two has 1 more items than the schema allows", "/two/0 must be a string"}, mismatches(t, s, `{"two":[1,2,3]}`))
	require.Empty(t, mismatches(t, s, `{"at":"2026-01-31T09:30:00Z","two":["a",1]}`))
	// In 2020-12 a format is a remark.
	require.Empty(t, mismatches(t, compiled(t, `{"format":"date-time"}`), `"yesterday"`))
}

// What is stored and shown has no value of the payload, and what is stored no name either.
func TestMismatchesHoldNothingOfThePayload(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"properties":{"users":{"additionalProperties":{"properties":{"mail":{"pattern":"^x","minLength":99,"format":"email"}}}}}}`)
	found, err := s.Validate(t.Context(), []byte(`{"users":{"anna@example.com":{"mail":"secret"}}}`))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, m := range found {
		require.Equal(t, "/users/anna@example.com/mail", m.Pointer)
		require.Equal(t, "/users/*/mail", m.Known)
		require.NotContains(t, m.String(), "anna")
		require.NotContains(t, m.Message, "secret")
	}
	found, err = s.Validate(t.Context(), []byte(`{"users":{"49170123456":{"mail":"secret"}}}`))
	require.NoError(t, err)
	require.Equal(t, "/users/*/mail", found[0].Known)
	found, err = compiled(t, `{"additionalProperties":false}`).Validate(t.Context(), []byte(`{"a\u0000b\u202e😀":1}`))
	require.NoError(t, err)
	require.Equal(t, `/a\u0000b\u202e😀`, found[0].Pointer, "no byte that text cannot hold or that misleads")
	require.Equal(t, "/* is not a property of the schema", found[0].String())
}

func TestAtMostTenMismatchesAreReturned(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"items":{"type":"string"}}`)
	require.Len(t, mismatches(t, s, "["+strings.Repeat("1,", 5000)+"1]"), MaxMismatches)
	require.Equal(t, []string{" does not match the schema; it is too large for a list of what is wrong"},
		mismatches(t, s, "["+strings.Repeat("1,", 100_000)+"1]"))
}

func TestBadSchemas(t *testing.T) {
	t.Parallel()
	nested := strings.Repeat(`{"not":`, 70) + `{}` + strings.Repeat(`}`, 70)
	for schema, want := range map[string]string{
		`true`:                                  "must be an object",
		`{"type":"text"}`:                       `at /type: must match one of the alternatives`,
		`{"properties":{"a":{"minLength":-1}}}`: "at /properties/a/minLength: must be at least 0",
		`{"properties":{"a":{"pattern":"(?=x)"}}}`:                "at /properties/a/pattern: the pattern is not one of RE2: invalid or unsupported Perl",
		`{"pattern":"` + strings.Repeat("a", 1100) + `"}`:         "at /pattern: the pattern is longer than 1024 bytes",
		`{"patternProperties":{"(abcd){900}":{}}}`:                "at /patternProperties/(abcd){900}: the pattern is too large",
		`{"$ref":"#/$defs/none"}`:                                 "$ref leads to #/$defs/none, which does not exist",
		`{"$ref":"#none"}`:                                        "$ref leads to the anchor #none, which does not exist",
		`{"$ref":"https://example.com/x.json"}`:                   `$ref leads to "https://example.com/x.json": only parts of the same schema`,
		`{"$ref":"file:///etc/passwd"}`:                           `$ref leads to "file:///etc/passwd": only parts of the same schema`,
		`{"items":{"$ref":"other.json"}}`:                         `$ref leads to "other.json"`,
		`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`: `$ref leads to "https://json-schema.org/draft/2020-12/schema": only parts`,
		`{"$schema":"http://json-schema.org/draft-04/schema#"}`:   `at /$schema: must be "https://json-schema.org/draft/2020-12/schema" or "`,
		`{"$schema":"https://example.com/mine"}`:                  "at /$schema: must be",
		`{"$schema":7}`:                                           "at /$schema: must be",
		`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/$defs/a"}}},"items":{"$ref":"#/$defs/a"}}`: "refers to itself for the same value",
		`{"$ref":"#"}`:        "refers to itself for the same value, without end",
		`{"$dynamicRef":"#"}`: "has $dynamicRef, which is not supported: use $ref",
		`{"enum":[1e999999]}`: "at /enum/0: is a number of more than 100 characters, or with an exponent above 400",
		nested:                "applies more than 64 schemas in a row to the same value",
		strings.Repeat(`{"items":`, 200) + `{}` + strings.Repeat(`}`, 200):                                 "is nested more than 128 levels deep",
		`{"allOf":[` + strings.Repeat(`{},`, 3000) + `{}]}`:                                                "has more than 2000 objects and booleans",
		`{"description":"` + strings.Repeat("x", MaxSchema) + `"}`:                                         "is larger than 65536 bytes",
		`{"items":{"$id":"u:b","$schema":"https://json-schema.org/draft/2019-09/schema","type":"string"}}`: "only 2020-12 and draft-07 are supported",
	} {
		_, err := Compile([]byte(schema))
		var bad *SchemaError
		require.ErrorAs(t, err, &bad, schema[:min(len(schema), 200)])
		require.Contains(t, err.Error(), want, schema[:min(len(schema), 200)])
	}
}

// What a schema may use of references.
func TestLocalReferences(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"}}}},"$ref":"#/$defs/node"}`,
		`{"type":"object","properties":{"next":{"$ref":"#"}}}`,
		`{"$id":"https://example.com/a.json","type":"object","properties":{"next":{"$ref":"a.json"}}}`,
		`{"$defs":{"n":{"$anchor":"node","type":"object","properties":{"next":{"$ref":"#node"}}}},"$ref":"#node"}`,
	} {
		s := compiled(t, schema)
		require.Empty(t, mismatches(t, s, `{"next":{"next":{"next":{}}}}`), schema)
		require.Equal(t, []string{"/next/next must be an object"}, mismatches(t, s, `{"next":{"next":1}}`), schema)
	}
}

// bombs are schemas and payloads that would take minutes, or gigabytes, without bounds.
func bombs() map[string][2]string {
	doubling := func(keyword, leaf string) string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/a30","$defs":{"a0":` + leaf)
		for i := 1; i <= 30; i++ {
			fmt.Fprintf(&b, `,"a%d":{%s}`, i, strings.ReplaceAll(keyword, "X", fmt.Sprintf(`{"$ref":"#/$defs/a%d"}`, i-1)))
		}
		return b.String() + `}}`
	}
	inNot := func(bomb string) string {
		return `{"not":{"$ref":"#/$defs/a30"},` + strings.TrimPrefix(bomb, `{"$ref":"#/$defs/a30",`)
	}
	deep := func(depth int, leaf string) string {
		return strings.Repeat(`{"n":`, depth) + leaf + strings.Repeat(`}`, depth)
	}
	many := func(item string, n int) string { return "[" + strings.Repeat(item+",", n) + item + "]" }
	numbers := make([]string, 10_000)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	fields := make([]string, 20_000)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"f%d":1`, i)
	}
	object := "{" + strings.Join(fields, ",") + "}"
	return map[string][2]string{
		"all of twice":          {doubling(`"allOf":[X,X]`, `{"type":"string"}`), `"x"`},
		"any of twice, failing": {doubling(`"anyOf":[X,X]`, `false`), `1`},
		"any of twice, in not": {
			inNot(doubling(`"anyOf":[X,X]`, `{"type":"string"}`)),
			`1`,
		},
		"dependent schemas": {inNot(doubling(`"dependentSchemas":{"a":X,"b":X}`, `false`)), `{"a":1,"b":2}`},
		"three patterns a level": {
			`{"not":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"object",
				"patternProperties":{"^n":{"$ref":"#/$defs/n"},"n$":{"$ref":"#/$defs/n"},"n":{"$ref":"#/$defs/n"}}}}}`,
			deep(300, "1"),
		},
		"twice a level": {
			`{"$defs":{"n":{"allOf":[{"properties":{"n":{"$ref":"#/$defs/n"}}},{"properties":{"n":{"$ref":"#/$defs/n"}}}]}},"$ref":"#/$defs/n"}`,
			deep(300, "1"),
		},
		"items and contains": {
			`{"$defs":{"n":{"items":{"$ref":"#/$defs/n"},"contains":{"$ref":"#/$defs/n"},"minItems":1}},"$ref":"#/$defs/n"}`,
			strings.Repeat("[", 300) + "1" + strings.Repeat("]", 300),
		},
		"unevaluated of many": {`{"unevaluatedProperties":false,"allOf":` + many(`true`, 1900) + `}`, object},
		"numbers of an enum":  {`{"items":{"enum":[` + strings.Join(numbers, ",") + `]}}`, many("99999", 40_000)},
		"a large pattern":     {`{"items":{"pattern":"(a|b|ab){1,150}c(x|y){1,100}z"}}`, many(`"`+strings.Repeat("ab", 4000)+`"`, 30)},
		"unique at each level": {
			`{"$defs":{"n":{"uniqueItems":true,"items":{"$ref":"#/$defs/n"}}},"$ref":"#/$defs/n"}`,
			strings.Repeat("[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,", 400) + "1" + strings.Repeat("]", 400),
		},
		"errors with long paths": {
			`{"$defs":{"n":{"properties":{"n":{"$ref":"#/$defs/n"},"m":{"items":{"type":"string","minimum":5}}}}},"$ref":"#/$defs/n"}`,
			deep(400, `{"m":`+many("1", 100_000)+`}`),
		},
		"huge numbers":           {`{"items":{"type":"integer","minimum":3,"multipleOf":7}}`, many("1e999999", 20_000)},
		"numbers of many digits": {`{"items":{"minimum":3}}`, many(strings.Repeat("7", 100_000), 1)},
		"regular expressions":    {`{"$schema":"http://json-schema.org/draft-07/schema#","items":{"format":"regex"}}`, many(`"(abcdefgh){200}"`, 15_000)},
		"a chain of references":  {doubling(`"allOf":[X],"anyOf":[X,X]`, `false`), `[]`},
	}
}

func TestBombsAreBounded(t *testing.T) {
	t.Parallel()
	for name, bomb := range bombs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.True(t, json.Valid([]byte(bomb[0])), bomb[0])
			require.True(t, json.Valid([]byte(bomb[1])))
			begun := time.Now()
			s := compiled(t, bomb[0])
			require.Less(t, time.Since(begun), 5*time.Second, "compile")
			begun = time.Now()
			found := mismatches(t, s, bomb[1])
			took := time.Since(begun)
			t.Logf("%s: %.80v", took, found)
			// A busy machine takes longer; without bounds most of them would run for years.
			require.Less(t, took, 30*time.Second)
		})
	}
}

// Validations wait for one another beyond a number, and a caller that leaves waits no longer.
func TestValidationsOfASchemaAreLimited(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"type":"string"}`)
	var taken []*checker
	for range MaxCheckers {
		c, err := s.take(t.Context())
		require.NoError(t, err)
		taken = append(taken, c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Validate(ctx, []byte(`1`))
	require.ErrorIs(t, err, context.Canceled)
	s.free <- taken[0]
	require.Equal(t, []string{" must be a string"}, mismatches(t, s, `1`))
}

// anyJSON draws a value with names and values that schemas below speak of.
func anyJSON(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		switch n := rapid.IntRange(0, 8).Draw(t, "kind"); {
		case n == 0:
			return nil
		case n == 1:
			return rapid.Bool().Draw(t, "bool")
		case n == 2:
			return json.Number(rapid.SampledFrom([]string{"0", "1", "-1", "1.0", "1.5", "2e0", "100"}).Draw(t, "number"))
		case n <= 4 || depth == 0:
			return rapid.SampledFrom([]string{"", "a", "ab", "abc", "b"}).Draw(t, "text")
		case n <= 6:
			items := []any{}
			for range rapid.IntRange(0, 3).Draw(t, "length") {
				items = append(items, anyJSON(depth-1).Draw(t, "item"))
			}
			return items
		}
		object := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			object[rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")] = anyJSON(depth-1).Draw(t, "value")
		}
		return object
	})
}

// anySchema draws a schema of a few keywords.
func anySchema(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if depth == 0 || rapid.IntRange(0, 9).Draw(t, "boolean") == 0 {
			return rapid.SampledFrom([]any{
				true, false, map[string]any{"type": "string"}, map[string]any{"type": "object"}, map[string]any{"type": "integer"},
			}).Draw(t, "leaf")
		}
		sub := func() any { return anySchema(depth-1).Draw(t, "schema") }
		list := func() any { return []any{sub(), sub()} }
		keywords := map[string]func() any{
			"type": func() any {
				return rapid.SampledFrom([]any{"string", "integer", "number", "object", "array", []any{"null", "boolean"}}).Draw(t, "type")
			},
			"enum":    func() any { return []any{anyJSON(1).Draw(t, "one"), anyJSON(1).Draw(t, "two")} },
			"const":   func() any { return anyJSON(1).Draw(t, "const") },
			"minimum": func() any { return json.Number("1") }, "maxLength": func() any { return json.Number("2") },
			"pattern": func() any { return "^a" }, "required": func() any { return []any{"a"} },
			"properties":           func() any { return map[string]any{"a": sub(), "b": sub()} },
			"patternProperties":    func() any { return map[string]any{"^[bc]$": sub()} },
			"additionalProperties": sub, "propertyNames": sub, "items": sub, "contains": sub, "prefixItems": list, "uniqueItems": func() any { return true },
			"allOf": list, "anyOf": list, "oneOf": list, "not": sub, "if": sub, "then": sub, "else": sub,
			"dependentSchemas": func() any { return map[string]any{"a": sub()} }, "dependentRequired": func() any { return map[string]any{"a": []any{"b"}} },
			"unevaluatedProperties": sub, "unevaluatedItems": sub,
			"minProperties": func() any { return json.Number("1") }, "maxItems": func() any { return json.Number("2") },
		}
		names := make([]string, 0, len(keywords))
		for name := range keywords {
			names = append(names, name)
		}
		object := map[string]any{}
		for range rapid.IntRange(1, 3).Draw(t, "keywords") {
			name := rapid.SampledFrom(sorted(names)).Draw(t, "keyword")
			object[name] = keywords[name]()
		}
		return object
	})
}

// Whether a payload matches is what the library says without our assertions and bounds.
func TestTheBoundsDoNotChangeResults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		schema := anySchema(3).Draw(t, "schema")
		if _, object := schema.(map[string]any); !object {
			t.Skip("not an object")
		}
		text, err := json.Marshal(schema)
		require.NoError(t, err)
		ours := compiled(t, string(text))
		doc, err := decode(text)
		require.NoError(t, err)
		plain := jsonschema.NewCompiler()
		require.NoError(t, plain.AddResource("urn:plain", doc))
		theirs, err := plain.Compile("urn:plain")
		require.NoError(t, err)
		for range 5 {
			payload, err := json.Marshal(anyJSON(3).Draw(t, "payload"))
			require.NoError(t, err)
			value, err := decode(payload)
			require.NoError(t, err)
			require.Equal(t, theirs.Validate(value) == nil, len(mismatches(t, ours, string(payload))) == 0, "%s against %s", payload, text)
		}
	})
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(order), []byte(`{"id":"o_1","lines":[]}`))
	f.Add([]byte(`{"$ref":"#"}`), []byte(`1`))
	f.Fuzz(func(t *testing.T, schema, payload []byte) {
		if !json.Valid(schema) || !json.Valid(payload) || len(schema) > MaxSchema || len(payload) > 64<<10 {
			t.Skip()
		}
		s, err := Compile(schema)
		if err != nil {
			var bad *SchemaError
			require.ErrorAs(t, err, &bad)
			return
		}
		_, err = s.Validate(t.Context(), payload)
		require.NoError(t, err)
	})
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
