package catalogue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after string
		want          Change
	}{
		{`{}`, `{}`, Change{}},
		{``, `{"required":["a"]}`, Change{Required: []string{"/a"}}},
		{`{"properties":{"a":{},"b":{}}}`, `{"properties":{"b":{},"c":{}}}`, Change{Removed: []string{"/a"}}},
		{`{"properties":{"a":{}}}`, `{"properties":{"a":{}},"required":["a"]}`, Change{Required: []string{"/a"}}},
		{`{"required":["a"]}`, `{"required":["a"],"properties":{"a":{}}}`, Change{}},
		{`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{"type":["null","string"]}}}`, Change{Retyped: []string{"/a"}}},
		{`{"properties":{"a":{"type":["string","null"]}}}`, `{"properties":{"a":{"type":["null","string"]}}}`, Change{}},
		// Of an object that is gone only that.
		{`{"properties":{"a":{"properties":{"b":{"properties":{"c":{}}}}}}}`, `{}`, Change{Removed: []string{"/a"}}},
		// Items, references and allOf.
		{
			`{"properties":{"lines":{"items":{"$ref":"#/$defs/line"}}},"$defs":{"line":{"allOf":[{"properties":{"sku":{},"n/m":{}}}]}}}`,
			`{"properties":{"lines":{"items":{"properties":{"sku":{}},"required":["id"]}}}}`,
			Change{Removed: []string{"/lines/*/n~1m"}, Required: []string{"/lines/*/id"}},
		},
		{
			`{"properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"type":"string"}}}`,
			`{"properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"type":"integer"}}}`, Change{Retyped: []string{"/a"}},
		},
	} {
		require.Equal(t, c.want, Compare([]byte(c.before), []byte(c.after)), "%s → %s", c.before, c.after)
	}
}

// A recursive schema has no last level, and one that refers to itself none at all.
func TestCompareIsBounded(t *testing.T) {
	t.Parallel()
	var wide strings.Builder
	wide.WriteString(`{"$ref":"#/$defs/n","$defs":{"n":{"properties":{`)
	for i := range 40 {
		if i > 0 {
			wide.WriteByte(',')
		}
		wide.WriteString(`"p` + strings.Repeat("x", i) + `":{"$ref":"#/$defs/n"}`)
	}
	wide.WriteString(`}}}}`)
	begun := time.Now()
	for _, schema := range []string{wide.String(), `{"$ref":"#"}`, `{"allOf":[{"$ref":"#"},{"$ref":"#"}]}`, `{"properties":{"n":{"$ref":"#"}}}`} {
		require.True(t, Compare([]byte(schema), []byte(schema)).IsZero())
	}
	require.Less(t, time.Since(begun), 20*time.Second)
}

// Many ways to the same wide object are gone once, and what differs is still found.
func TestCompareSpendsStepsOnProperties(t *testing.T) {
	t.Parallel()
	refs := func(name string) string {
		return strings.TrimSuffix(strings.Repeat(`{"$ref":"#/$defs/`+name+`"},`, 300), ",")
	}
	hostile := func(last string) []byte {
		var names strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&names, `"p%d":{},`, i)
		}
		return []byte(`{"allOf":[` + refs("a") + `],"$defs":{"a":{"allOf":[` + refs("b") + `]},"b":{"properties":{` + names.String() + `"` + last + `":{}}}}}`)
	}
	before := hostile("x")
	require.Less(t, len(before), MaxSchema)
	require.Equal(t, Change{Removed: []string{"/x"}}, Compare(before, hostile("y")))
	require.Less(t, newOutline(before).steps, 5000)

	// Long pointers cost more: they are kept.
	var wide strings.Builder
	for i := range 500 {
		fmt.Fprintf(&wide, `{"$ref":"#/$defs/b","properties":{"q%d":{"$ref":"#/$defs/b"}}},`, i)
	}
	o := newOutline([]byte(`{"allOf":[` + wide.String() +
		`{}],"$defs":{"b":{"properties":{"` + strings.Repeat("n", 9000) + `":{"$ref":"#"}},"required":["r1","r2","r3"]}}}`))
	size := 0
	for at := range o.properties {
		size += len(at)
	}
	require.Less(t, size, 4<<20)
}
