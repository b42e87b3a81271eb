package migrations_test

import (
	"database/sql"
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

// The index that another one replaces serves until that is built on all partitions.
func TestSupersededIndexes(t *testing.T) {
	t.Parallel()
	address := postgrestest.NewEmpty(t)
	db := open(t, address)
	require.NoError(t, migrations.Up(t.Context(), db, discard()))
	count := func(like string) (n int) {
		t.Helper()
		require.NoError(t, db.QueryRowContext(t.Context(),
			`select count(*) from pg_class where relnamespace = current_schema()::regnamespace and relname like $1`, like).Scan(&n))
		return n
	}
	require.Zero(t, count("%superseded"), "of the migrations")
	exec := func(on *sql.Conn, statement string) {
		t.Helper()
		_, err := on.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	other, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	exec(other, `create index deliveries_old_superseded on deliveries (reason) where state = 2`)
	exec(other, `create index deliveries_new on only deliveries (reason, id) where state = 2`)
	exec(other, `begin`)
	exec(other, `lock table deliveries in share row exclusive mode`)

	impatient := open(t, address+"&lock_timeout=100ms")
	require.ErrorContains(t, migrations.Up(t.Context(), impatient, discard()), "build the index deliveries_new")
	require.Equal(t, 1, count("deliveries_old_superseded"), "the new one is not built")
	exec(other, `rollback`)
	require.NoError(t, migrations.Up(t.Context(), db, discard()))
	require.Zero(t, count("deliveries_old_superseded"))
	require.Equal(t, 1, count("deliveries_new"))
}
