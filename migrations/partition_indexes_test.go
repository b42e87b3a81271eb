package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/migrations"
)

// An index that a migration makes on a partitioned table only is built on its partitions, and taken over from an earlier try that has ended halfway.
// Partitions that are made later have it.
func TestIndexesOfPartitionedTables(t *testing.T) {
	t.Parallel()
	db := open(t, postgrestest.NewEmpty(t))
	require.NoError(t, migrations.Up(t.Context(), db, discard()))
	exec := func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	partition := func(name, day string) {
		t.Helper()
		exec(`create table ` + name + ` (like deliveries including all)`)
		exec(`alter table deliveries attach partition ` + name + ` for values from ('0190` + day + `00-0000-0000-0000-000000000000') to ('0190` + day +
			`ff-0000-0000-0000-000000000000')`)
	}
	valid := func() (n int) {
		t.Helper()
		require.NoError(t, db.QueryRowContext(t.Context(), `
			select count(*) from pg_index where indrelid in (
				select 'deliveries'::regclass union all select inhrelid from pg_inherits where inhparent = 'deliveries'::regclass)
			and indisvalid and pg_get_indexdef(indexrelid) like '%(reason) WHERE (state = 2)'`).Scan(&n))
		return n
	}
	partition("deliveries_20240101", "01")
	partition("deliveries_20240102", "02")
	exec(`create index deliveries_test on only deliveries (reason) where state = 2`)
	exec(`create index on deliveries_20240102 (reason) where state = 2`)
	require.Equal(t, 1, valid())
	require.NoError(t, migrations.Up(t.Context(), db, discard()))
	require.Equal(t, 4, valid(), "of the table, its two days and the rest")
	partition("deliveries_20240103", "03")
	require.Equal(t, 5, valid())
	require.NoError(t, migrations.Up(t.Context(), db, discard()))
	require.Equal(t, 5, valid())
}
