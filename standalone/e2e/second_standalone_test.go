package e2e_test

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/localpg"
)

// soleKey is the advisory lock of a standalone installation: "everpost" in ASCII.
const soleKey = 0x65766572706f7374

// Two installations on one PostgreSQL would run two Temporals on the same databases: the second does not start,
// whichever database of the server it names, and the first stops when another one has got hold of the lock.
func TestTwoStandalonesOnOneDatabase(t *testing.T) {
	t.Parallel()
	first := ownHome(t) // which may wait for its place
	ctx := contextFor(t, 2*startPatience)
	database, err := localpg.Start(t.Context(), localpg.Options{Dir: filepath.Join(first.home, "database"), Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		if first.process != nil {
			first.process.Kill()
		}
		if err := database.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	admin, err := pgx.Connect(ctx, database.URL("everpost"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	_, err = admin.Exec(ctx, `create database other`)
	require.NoError(t, err)

	fresh := first.env // with ports of its own
	first.env = first.env.With(settings{"EVERPOST_DATABASE_URL": database.URL("everpost")})
	require.NoError(t, first.start(ctx))
	for _, name := range []string{"everpost", "other"} {
		second := fresh.With(settings{"EVERPOST_DATABASE_URL": database.URL(name), "EVERPOST_DATA_DIR": filepath.Join(first.home, "second")})
		f, err := runToEnd(ctx, second, "standalone")
		require.NoError(t, err)
		requireOneLine(t, f, "PostgreSQL cannot be used: another everpost standalone (", "uses this database: stop that one")
	}
	f, err := runToEnd(ctx, first.env, "migrate") // what else uses the database is free to
	require.NoError(t, err)
	require.Zero(t, f.Code, f.Stderr)

	// A start right after the first was killed.
	first.kill9()
	first.restart(t)

	// Its connection breaks, and another one is quicker to take the lock.
	thief, err := pgx.Connect(ctx, database.URL("everpost_temporal"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = thief.Close(context.Background()) })
	stolen := make(chan error, 1)
	go func() {
		_, err := thief.Exec(ctx, `select pg_advisory_lock($1)`, int64(soleKey))
		stolen <- err
	}()
	eventually(ctx, t, func() string {
		var n int
		require.NoError(t, admin.QueryRow(ctx, `select count(*) from pg_locks where locktype = 'advisory' and not granted`).Scan(&n))
		if n == 0 {
			return "nobody waits for the lock"
		}
		return ""
	})
	_, err = admin.Exec(ctx, `select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database
		where l.locktype = 'advisory' and l.granted and d.datname = 'everpost_temporal'`)
	require.NoError(t, err)
	require.NoError(t, <-stolen)
	select {
	case <-first.process.Exited():
	case <-time.After(patience):
		require.Fail(t, "it goes on without the lock")
	}
	require.Equal(t, 1, first.process.Command.ProcessState.ExitCode())
	require.Contains(t, first.tail(0), "everpost: PostgreSQL cannot be used any more: another everpost standalone")
}

// A database elsewhere is spoken to with TLS, or the URL says that it is not.
func TestDatabaseInTheClear(t *testing.T) {
	t.Parallel()
	const elsewhere = "postgres://someone:canary@db.example.invalid/everpost"
	data := filepath.Join(t.TempDir(), "data")
	for _, command := range []string{"standalone", "serve", "api", "worker", "migrate", "keys list", "keys rewrap"} {
		f, err := runToEnd(contextFor(t, patience), settings{
			"EVERPOST_DATABASE_URL": elsewhere, "EVERPOST_KEK": "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk=", "EVERPOST_DATA_DIR": data,
		}, strings.Fields(command)...)
		require.NoError(t, err)
		requireUsage(t, f, "EVERPOST_DATABASE_URL: PostgreSQL at db.example.invalid, port 5432, is not on this machine",
			"sslmode=verify-full", "sslmode=disable")
		require.NotContains(t, f.Stderr, "canary", command)
		require.NoDirExists(t, data, "nothing was started")
	}
	u, err := url.Parse(elsewhere)
	require.NoError(t, err)
	u.RawQuery = "sslmode=disable"
	f, err := runToEnd(contextFor(t, patience), settings{"EVERPOST_DATABASE_URL": u.String()}, "keys", "list")
	require.NoError(t, err)
	require.NotContains(t, f.Stderr, "sslmode", "it was tried")
}
