package catalogue

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProperties(t *testing.T) {
	t.Parallel()
	const order = `{"properties":{"amount":{},"lines":{"items":{"$ref":"#/$defs/line"}},"extra":true,"no":false},
		"$defs":{"line":{"allOf":[{"properties":{"sku":{}}},{"anyOf":[{"properties":{"n/m":{}}},{"$ref":"#/$defs/line"}]}]}}}`
	for _, c := range []struct {
		schemas []string
		path    string
		lack    bool
	}{
		{[]string{order}, "amount", false}, {[]string{order}, "amout", true},
		{[]string{order}, "lines sku", false}, {[]string{order}, "lines n/m", false}, {[]string{order}, "lines sky", true},
		{[]string{order}, "amout x", false}, // only the first name that is not there is one too many
		{[]string{order}, "amount x", false}, {[]string{order}, "extra x y", false}, {[]string{order}, "no", true},
		// A type whose schema says nothing may have anything; one of several is enough.
		{[]string{order, `{}`}, "amout", false}, {[]string{`{}`}, "a", false}, {nil, "a", false},
		{[]string{order, `{"properties":{"amout":{}}}`}, "amout", false}, {[]string{order, `{"properties":{"a":{}}}`}, "amout", true},
		{[]string{order, `{"properties":{"amount":{"properties":{"cents":{}}}}}`}, "amount x", false},
		// What a schema leaves open.
		{[]string{`{"properties":{"a":{}},"additionalProperties":false}`}, "b", true},
		{[]string{`{"properties":{"a":{}},"additionalProperties":true}`}, "b", false},
		{[]string{`{"properties":{"a":{}},"additionalProperties":{"type":"string"}}`}, "b", false},
		{[]string{`{"properties":{"a":{}},"patternProperties":{"^x":{}}}`}, "b", false},
		{[]string{`{"properties":{"a":{}},"allOf":[{"unevaluatedProperties":{}}]}`}, "b", false},
		{[]string{`{"properties":{"a":{}},"$ref":"#other"}`}, "b", false}, {[]string{`{"properties":{"a":{}},"$dynamicRef":"#x"}`}, "b", false},
		// Further ways in which schemas apply to the same value.
		{[]string{`{"properties":{"a":{}},"if":{"properties":{"b":{}}},"then":{"properties":{"c":{}}}}`}, "c", false},
		{[]string{`{"properties":{"a":{}},"dependentSchemas":{"a":{"properties":{"d":{}}}}}`}, "d", false},
		{[]string{`{"properties":{"a":{}},"dependencies":{"a":{"properties":{"d":{}}},"b":["a"]}}`}, "d", false},
		{[]string{`{"properties":{"a":{}},"dependencies":{"a":["d"]}}`}, "d", true},
		{[]string{`{"$id":"urn:a","properties":{"a":{"$id":"urn:b","properties":{"b":{}}}}}`}, "a c", false},
		{[]string{`{"$id":"urn:a","properties":{"a":{"$ref":"#"}}}`}, "a c", true},
		{[]string{`{"properties":{"a":{"oneOf":[{"type":"null"},{"$ref":"#"}]}}}`}, "a b", true},
		{[]string{`{"properties":{"a":{"prefixItems":[{"properties":{"b":{}}}]}}}`}, "a b", false},
		{[]string{`{"properties":{"a":{"items":[{"properties":{"b":{}}}]}}}`}, "a c", true},
	} {
		var texts [][]byte
		for _, s := range c.schemas {
			texts = append(texts, []byte(s))
		}
		require.Equal(t, c.lack, NewProperties(texts).Lack(strings.Fields(c.path)), "%s of %s", c.path, c.schemas)
	}
}

// Schemas that refer to themselves, and many of them, take a bounded time.
func TestPropertiesAreBounded(t *testing.T) {
	t.Parallel()
	var wide strings.Builder
	wide.WriteString(`{"$ref":"#/$defs/n","$defs":{"n":{"anyOf":[`)
	for i := range 900 {
		wide.WriteString(`{"properties":{"p` + strconv.Itoa(i) + `":{"$ref":"#/$defs/n"}}},`)
	}
	wide.WriteString(`{"$ref":"#"}]}}}`)
	var texts [][]byte
	for range 100 {
		texts = append(texts, []byte(wide.String()))
	}
	begun := time.Now()
	p := NewProperties(texts)
	require.True(t, p.Lack([]string{"none"}))
	for i := range 800 {
		p.Lack([]string{"p1", "p" + strconv.Itoa(i), "p2", "none"})
	}
	require.Greater(t, p.steps, maxLooked)
	require.Less(t, time.Since(begun), 20*time.Second)
}
