package migrations_test

import (
	"context"
	"database/sql"
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

func open(t *testing.T, address string) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// names are those of the files, in order.
func names(t *testing.T) []string {
	t.Helper()
	all, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	return all
}

func tables(t *testing.T, db *sql.DB) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), `select count(*) from pg_tables where schemaname = current_schema()`).Scan(&n))
	return n
}

func TestUpStaysInItsSchemaAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	db, neighbour := open(t, postgrestest.NewEmpty(t)), open(t, postgrestest.NewEmpty(t))

	missing, err := migrations.Pending(t.Context(), db)
	require.NoError(t, err)
	require.Equal(t, names(t), missing)
	require.Zero(t, tables(t, db), "asking makes nothing")

	require.NoError(t, migrations.Up(t.Context(), db, discard()))
	missing, err = migrations.Pending(t.Context(), db)
	require.NoError(t, err)
	require.Empty(t, missing)
	before := tables(t, db)
	require.Greater(t, before, 5)
	require.Zero(t, tables(t, neighbour))

	require.NoError(t, migrations.Up(t.Context(), db, discard()))
	require.Equal(t, before, tables(t, db))
	require.NoError(t, migrations.Up(t.Context(), neighbour, discard()))
}

func TestManyProcessesMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	address := postgrestest.NewEmpty(t)
	var group errgroup.Group
	for range 8 {
		db := open(t, address)
		group.Go(func() error { return migrations.Up(t.Context(), db, discard()) })
	}
	require.NoError(t, group.Wait())

	db := open(t, address)
	var applied int
	require.NoError(t, db.QueryRowContext(t.Context(), `select count(*) from everpost_schema_version`).Scan(&applied))
	require.Len(t, names(t), applied, "each migration ran once")

	var locks int
	require.NoError(t, db.QueryRowContext(t.Context(), `
		select count(*) from pg_locks l join pg_stat_activity a using (pid)
		where locktype = 'advisory' and l.objid = (hashtextextended('everpost/migrations/' || current_schema(), 0) & 4294967295)::oid`).Scan(&locks))
	require.Zero(t, locks, "the lock was given back")
}

func TestUpWaitsForAnotherMigrationOnlyAsLongAsAsked(t *testing.T) {
	t.Parallel()
	address := postgrestest.NewEmpty(t)
	holder, err := open(t, address).Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, holder.Close()) }()
	_, err = holder.ExecContext(t.Context(), `select pg_advisory_lock(hashtextextended('everpost/migrations/' || current_schema(), 0))`)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	db := open(t, address)
	require.ErrorIs(t, migrations.Up(ctx, db, discard()), context.DeadlineExceeded)
	require.Zero(t, tables(t, db))
}

func TestUpOnACurrentDatabaseIsFast(t *testing.T) {
	t.Parallel()
	db := open(t, postgrestest.New(t))
	best := time.Hour
	for range 10 { // the best of ten: the machine may be busy with other tests
		start := time.Now()
		require.NoError(t, migrations.Up(t.Context(), db, discard()))
		best = min(best, time.Since(start))
	}
	require.Less(t, best, 20*time.Millisecond)
}
