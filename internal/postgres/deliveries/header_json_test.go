package deliveries_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
)

// HeaderJSON writes what json.Marshal writes, byte for byte.
func FuzzHeaderJSON(f *testing.F) {
	for _, s := range []string{"", "plain", `a "quote"`, `back\slash`, "<&>", "line\nbreak", "\x00", "é", "\xff", "\u2028", "~", "\x7f", "&", ">"} {
		f.Add("name", s, "other", "Third", 2)
		f.Add(s, "value", "name", s, 1)
		f.Add("name", "value", s, "third", 3)
	}
	for _, n := range []int{-1, 0, 4} {
		f.Add("name", "value", "other", "third", n)
	}
	f.Fuzz(func(t *testing.T, name, value, other, third string, n int) {
		single, several := map[string]string{}, map[string][]string{}
		for i, k := range []string{name, other, third} {
			if i < n {
				single[k], several[k] = value, []string{value, other, third}[:i]
			}
		}
		if n < 0 {
			single, several = nil, nil
		}
		if n > 3 {
			several[name] = nil
		}
		want, err := json.Marshal(single)
		require.NoError(t, err)
		require.Equal(t, string(want), string(deliveries.HeaderJSON(single, deliveries.AppendText)))
		want, err = json.Marshal(several)
		require.NoError(t, err)
		require.Equal(t, string(want), string(deliveries.HeaderJSON(several, deliveries.AppendTexts)))
	})
}
