package jsonref

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	t.Parallel()
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(`{"$defs":{"a":{"n":1},"b/c":{"n":2},"d~e":{"n":3},"f g":{"n":4},"":{"n":5},"~1":{"n":6}},
		"allOf":[{"n":7},{"n":8}],"0":{"n":9},"text":"x"}`), &document))
	for ref, want := range map[string]any{
		"#/$defs/a": 1.0, "#/$defs/b~1c": 2.0, "#/$defs/d~0e": 3.0, "#/$defs/f%20g": 4.0, "#/$defs/": 5.0, "#/$defs/~01": 6.0, "#/%24defs/a": 1.0,
		"#/allOf/0": 7.0, "#/allOf/1": 8.0, "#/0": 9.0,
		"#/allOf/2": nil, "#/allOf/-": nil, "#/allOf/01": nil, "#/allOf/-1": nil, "#/allOf/x": nil, "#/none": nil, "#/none/a": nil, "#/text/0": nil,
		"#a": nil, "": nil, "/$defs/a": nil, "other#/$defs/a": nil, "#/%zz": nil,
	} {
		found := Target(document, map[string]any{"$ref": ref})
		if want == nil {
			require.Nil(t, found, ref)
			continue
		}
		require.Equal(t, map[string]any{"n": want}, found, ref)
	}
	require.Equal(t, document, Target(document, map[string]any{"$ref": "#"}))
	require.Equal(t, "x", Find(document, "#/text"))
	require.Nil(t, Find(nil, "#/a"))
	require.Nil(t, Target(document, map[string]any{"$ref": 1}))
	require.Nil(t, Target(document, nil))
	for part, name := range map[string]string{"a": "a", "a~1b%20c": "a/b c", "~01": "~1", "%zz": "%zz"} {
		require.Equal(t, name, Name(part))
	}
}
