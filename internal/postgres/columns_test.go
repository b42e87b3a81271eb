package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
)

// What is sent once is in every row, and nothing else is changed: not by a null among values,
// and not by a value that is only the first row's.
func TestRowsOfAStatement(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	type row struct {
		N       int
		Word    string
		Perhaps *int
		Raw     []byte
		At      time.Time
	}
	columns := postgres.RowsOf[row]{
		postgres.Whole("n int", func(r row) int { return r.N }),
		postgres.Each("word text", func(r row) string { return r.Word }),
		postgres.EachOptional("perhaps int", func(r row) *int { return r.Perhaps }),
		postgres.EachBytes("raw bytea", func(r row) []byte { return r.Raw }),
		postgres.Each("at timestamptz", func(r row) time.Time { return r.At }),
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
		result, err := s.Pool().Query(t.Context(), columns.Query(1)+" order by n", columns.Args(rows)...)
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
	texts := postgres.Each("t text", func(s string) string { return s }).Values
	require.Equal(t, []string(nil), texts(nil))
	require.Equal(t, []string{"a", "b", "a"}, texts([]string{"a", "b", "a"}))
	require.Equal(t, []string{"a", "a", "b"}, texts([]string{"a", "a", "b"}))
	require.Contains(t, fmt.Sprint(texts([]string{"a", "a"})), "[a]", "one of them")
	require.NotContains(t, fmt.Sprint(texts([]string{"a", "a"})), "a a")
	require.Equal(t, []string{"a", "a"}, postgres.Whole("t text", func(s string) string { return s }).Values([]string{"a", "a"}),
		"says how many rows there are")
	numbers := postgres.EachOptional("n int", func(n *int) *int { return n }).Values
	require.Equal(t, []*int{new(1), nil}, numbers([]*int{new(1), nil}))
	require.NotEqual(t, []*int{nil, nil}, numbers([]*int{nil, nil}))
}
