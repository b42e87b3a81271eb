package filter

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPayloadFields(t *testing.T) {
	t.Parallel()
	f, err := Parse([]byte(`{"type":"a","payload":{"a":{"b/c":{"$gt":1},"$not":{"d":1}},"l":[{"e":1},{"f":2}]},
		"$or":[{"payload":{"$and":[{"g":{"$exists":false}}]}},{"tags":"x"}]}`))
	require.NoError(t, err)
	require.Equal(t, []Field{
		{"/payload/a", []string{"a"}}, {"/payload/a/b~1c", []string{"a", "b/c"}}, {"/payload/a/$not/d", []string{"a", "d"}},
		{"/payload/l", []string{"l"}}, {"/payload/l/0/e", []string{"l", "e"}}, {"/payload/l/1/f", []string{"l", "f"}},
		{"/$or/0/payload/$and/0/g", []string{"g"}},
	}, f.PayloadFields())
	for _, none := range []string{`{}`, `{"type":"a"}`, `{"payload":1}`} {
		f, err := Parse([]byte(none))
		require.NoError(t, err)
		require.Empty(t, f.PayloadFields(), none)
	}
	require.Empty(t, (*Filter)(nil).PayloadFields())
}
