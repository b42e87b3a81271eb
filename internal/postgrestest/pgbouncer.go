package postgrestest

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/programtest"
)

// NewPgBouncer runs a PgBouncer with so many sessions in front of the database of New, until the test ends, and returns
// the database's address through it. mode is its pool_mode. Without the program the test is skipped, but not in CI.
func NewPgBouncer(t testing.TB, address, mode string, sessions int) (through string) {
	t.Helper()
	program := programtest.Find(t, "pgbouncer", "pgbouncer")
	config, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	// The search_path cannot go through it: it is one of the database.
	execute(t, address, `alter database `+config.Database+` set search_path = `+schema)

	dir := t.TempDir()
	// It is below one that only root enters.
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711)) //nolint:gosec // holds a test's data only
	require.NoError(t, os.Chmod(dir, 0o711))               //nolint:gosec // the same
	pooler := programtest.PgBouncer{
		Program: program, Dir: dir, Server: config.Host, Host: config.Host, Port: config.Port, Database: config.Database, User: config.User,
		Mode: mode, Sessions: sessions,
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	at, ended, err := pooler.Start(ctx)
	t.Cleanup(func() {
		cancel()
		if ended != nil {
			<-ended
		}
	})
	require.NoError(t, err)
	return (&url.URL{
		Scheme: "postgres", User: url.User(config.User), Host: at, Path: config.Database, RawQuery: "sslmode=disable",
	}).String()
}
