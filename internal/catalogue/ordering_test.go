package catalogue_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/catalogue"
)

func TestOrderingKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ payload, pointer, want string }{
		{`{"order":"17"}`, "/order", "17"},
		{` {"order" : 17 } `, "/order", "17"},
		{`{"order":-1.50}`, "/order", "-1.50"},
		{`{"order":{"id":"a\u0062c"}}`, "/order/id", "abc"},
		{`{"lines":[{"id":"x"},{"id":"y"}]}`, "/lines/1/id", "y"},
		{`[["x"]]`, "/0/0", "x"},
		{`{"a/b":{"m~n":"k"}}`, "/a~1b/m~0n", "k"},
		{`{"~1":"k"}`, "/~01", "k"},
		{`{"":"k"}`, "/", "k"},
		{`{"a":"first","a":"last"}`, "/a", "last"},
		{`{"customer":"Müller & Söhne"}`, "/customer", "Müller & Söhne"},
		{`{"a":"` + strings.Repeat("x", 128) + `"}`, "/a", strings.Repeat("x", 128)},
		// What is no key.
		{`{"a":"` + strings.Repeat("x", 129) + `"}`, "/a", ""},
		{`{"a":` + strings.Repeat("1", 129) + `}`, "/a", ""},
		{`{"a":""}`, "/a", ""},
		{`{"a":"line\nbreak"}`, "/a", ""},
		{`{"a":null}`, "/a", ""},
		{`{"a":true}`, "/a", ""},
		{`{"a":{"b":1}}`, "/a", ""},
		{`{"a":["b"]}`, "/a", ""},
		{`{"a":1}`, "/b", ""},
		{`{"a":1}`, "/a/b", ""},
		{`{"a":"x"}`, "/a/0", ""},
		{`["x"]`, "/01", ""},
		{`["x"]`, "/1", ""},
		{`["x"]`, "/-", ""},
		{`["x"]`, "/-1", ""},
		{`17`, "/a", ""},
		{`"text"`, "/a", ""},
	} {
		require.Equal(t, test.want, catalogue.OrderingKey([]byte(test.payload), test.pointer), "%s in %s", test.pointer, test.payload)
	}
}

func FuzzOrderingKey(f *testing.F) {
	f.Add([]byte(`{"a":{"b":["x"]}}`), "/a/b/0")
	f.Fuzz(func(t *testing.T, payload []byte, pointer string) {
		if !strings.HasPrefix(pointer, "/") {
			return // the API refuses it
		}
		key := catalogue.OrderingKey(payload, pointer)
		require.LessOrEqual(t, len([]rune(key)), 128)
	})
}
