package schema

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lines are fields in a line each, indented by their depth.
func lines(fields []Field) string {
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, "%s%s %v", strings.Repeat(" ", f.Depth), f.Name, f.Types)
		if f.Items != nil {
			fmt.Fprintf(&b, " of %v", f.Items)
		}
		if f.Required {
			b.WriteString(" required")
		}
		if f.Deprecated {
			b.WriteString(" deprecated")
		}
		if f.Format != "" || f.Values != nil {
			fmt.Fprintf(&b, " %s%v", f.Format, f.Values)
		}
		if f.Description != "" {
			b.WriteString(": " + f.Description)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestFields(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{}`: "", `[]`: "", `true`: "", `{`: "", `{"type":"string"}`: "",
		`{"properties":{"b":{"type":"integer","description":"How many."},"a":{"type":["string","null"],"format":"date-time"}},"required":["b","c"]}`: "" +
			"a [string null] date-time[]\nb [integer] required: How many.\n",
		`{"properties":{"lines":{"items":{"properties":{"sku":{"const":"x"}},"required":["sku"]}},"to":{"properties":{"city":{"type":"string"}}}}}`: "" +
			"lines [array] of [object]\n sku [] required [\"x\"]\nto [object]\n city [string]\n",
		`{"$defs":{"a/b":{"type":"object","properties":{"n":{"enum":[1,null,"<b>"]}}}},"properties":{"at":{"$ref":"#/$defs/a~1b","deprecated":true}}}`: "" +
			"at [object] deprecated\n n [] [1 null \"<b>\"]\n",
		`{"allOf":[{"properties":{"a":{"type":"string"}}},{"required":["a"]}],"properties":{"b":{"oneOf":[{"type":"string"},{"$ref":"#/$defs/n"}]}},` +
			`"$defs":{"n":{"type":"number"}}}`: "a [string] required\nb [string number]\n",
		`{"properties":{"a":true,"b":{"$ref":"other.json"},"c":{"$ref":"#/no/where"},"d":7}}`: "a []\nb []\nc []\nd []\n",
	} {
		fields, more := Fields([]byte(schema))
		require.Equal(t, want, lines(fields), schema)
		require.False(t, more)
	}
}

// A schema that refers to itself, or has more fields than a table, ends at a bound.
func TestFieldsAreBounded(t *testing.T) {
	t.Parallel()
	fields, more := Fields([]byte(`{"properties":{"child":{"$ref":"#"}}}`))
	require.True(t, more)
	require.Len(t, fields, MaxDepth)
	fields, more = Fields([]byte(`{"$ref":"#","properties":{"a":{"allOf":[{"$ref":"#/properties/a"}]}}}`))
	require.False(t, more)
	require.Len(t, fields, 1)

	var wide strings.Builder
	for i := range 300 {
		fmt.Fprintf(&wide, `%s"n%03d":{"$ref":"#"}`, strings.Repeat(",", min(i, 1)), i)
	}
	fields, more = Fields([]byte(`{"properties":{` + wide.String() + `}}`))
	require.True(t, more)
	require.Len(t, fields, MaxFields)

	fields, _ = Fields([]byte(`{"properties":{"n":{"enum":[1,2,3,4,5,6,7,8,9]}}}`))
	require.Len(t, fields[0].Values, MaxValues)
	require.True(t, fields[0].MoreValues)

	// Each of these doubles the one before.
	var deep strings.Builder
	for i := range 40 {
		fmt.Fprintf(&deep, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	Fields([]byte(`{"$defs":{` + deep.String() + `"d40":{}},"properties":{"a":{"$ref":"#/$defs/d0"}}}`))
}

// Many ways to the same wide object cost a bounded number of steps.
func TestFieldsSpendStepsOnNames(t *testing.T) {
	t.Parallel()
	refs := func(name string) string {
		return strings.TrimSuffix(strings.Repeat(`{"$ref":"#/$defs/`+name+`"},`, 300), ",")
	}
	var names strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&names, `"p%d":{},`, i)
	}
	schema := `{"allOf":[` + refs("a") + `],"$defs":{"a":{"allOf":[` + refs("b") + `]},"b":{"properties":{` + names.String() + `"x":{}}}}}`
	begun := time.Now()
	fields, more := Fields([]byte(schema))
	require.True(t, more)
	require.Len(t, fields, MaxFields)
	require.Less(t, time.Since(begun), 2*time.Second)
}
