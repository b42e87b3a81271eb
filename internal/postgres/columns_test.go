package postgres

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What is sent once is in every row, and nothing else is changed: not by a null beside values,
// and not by a value that is only the first row's.
func TestRowsOfAStatement(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	type row struct {
		N       int
		Word    string
		Perhaps *int
		Raw     []byte
		At      time.Time
	}
	columns := rowsOf[row]{
		whole("n int", func(r row) int { return r.N }),
		each("word text", func(r row) string { return r.Word }),
		eachOptional("perhaps int", func(r row) *int { return r.Perhaps }),
		eachBytes("raw bytea", func(r row) []byte { return r.Raw }),
		each("at timestamptz", func(r row) time.Time { return r.At }),
	}
	times := []time.Time{time.UnixMicro(1).UTC(), time.UnixMicro(2).UTC()}
	rapid.Check(t, func(rt *rapid.T) {
		var rows []row
		// Few values, so that columns are often equal throughout.
		for i := range rapid.IntRange(0, 4).Draw(rt, "rows") {
			rows = append(rows, row{
				N: i, Word: rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "word"),
				Raw:     rapid.SampledFrom([][]byte{nil, {}, {}, []byte("x")}).Draw(rt, "raw"),
				Perhaps: rapid.SampledFrom([]*int{nil, new(1), new(1), new(2)}).Draw(rt, "perhaps"), At: rapid.SampledFrom(times).Draw(rt, "at"),
			})
		}
		result, err := s.login.Query(t.Context(), columns.query(1)+" order by n", columns.args(rows)...)
		require.NoError(rt, err)
		got, err := pgx.CollectRows(result, func(found pgx.CollectableRow) (r row, err error) {
			err = found.Scan(&r.N, &r.Word, &r.Perhaps, &r.Raw, &r.At)
			r.At = r.At.UTC()
			return r, err
		})
		require.NoError(rt, err)
		require.Len(rt, got, len(rows))
		for i := range rows {
			require.Equal(rt, rows[i], got[i])
		}
	})
}

// Only a column with the same value in every row is sent once.
func TestColumnsAreSentOnce(t *testing.T) {
	t.Parallel()
	texts := each("t text", func(s string) string { return s }).values
	require.Equal(t, []string(nil), texts(nil))
	require.Equal(t, []string{"a", "b", "a"}, texts([]string{"a", "b", "a"}))
	require.Equal(t, []string{"a", "a", "b"}, texts([]string{"a", "a", "b"}))
	require.Contains(t, fmt.Sprint(texts([]string{"a", "a"})), "[a]", "one of them")
	require.NotContains(t, fmt.Sprint(texts([]string{"a", "a"})), "a a")
	require.Equal(t, []string{"a", "a"}, whole("t text", func(s string) string { return s }).values([]string{"a", "a"}), "says how many rows there are")
	numbers := eachOptional("n int", func(n *int) *int { return n }).values
	require.Equal(t, []*int{new(1), nil}, numbers([]*int{new(1), nil}))
	require.NotEqual(t, []*int{nil, nil}, numbers([]*int{nil, nil}))
}

// headerJSON writes what json.Marshal writes, byte for byte.
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
		require.Equal(t, string(want), string(headerJSON(single, appendText)))
		want, err = json.Marshal(several)
		require.NoError(t, err)
		require.Equal(t, string(want), string(headerJSON(several, appendTexts)))
	})
}
