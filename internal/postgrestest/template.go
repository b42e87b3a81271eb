package postgrestest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/migrations"
)

// schema is where New's databases have their tables. It is not "public", so that a statement that ignores the
// search_path fails.
const schema = "everpost_test"

// New returns the address of a new database with all migrations applied, in the schema that its connections use. The
// database is dropped when the test ends. Only DEFAULT partitions exist.
//
// It is a copy of a template, which the first test makes: migrating takes four times as long as copying.
//
// Keep pools small: all running tests share the server's connections.
func New(t testing.TB) string {
	t.Helper()
	base, err := serverURL()
	require.NoError(t, err)
	template.once.Do(func() { template.name = makeTemplate(t, base) })
	require.NotEmpty(t, template.name, "the template could not be made; an earlier test says why")

	database := "test_" + strings.ToLower(rand.Text())
	execute(t, base, `create database `+database+` template `+template.name+` strategy file_copy`)
	t.Cleanup(func() { execute(t, base, `drop database `+database+` with (force)`) })
	return addressOf(t, base, database, schema)
}

// template is the template of this test process.
var template struct { // a global: the tests of a package share nothing else
	once sync.Once
	name string
}

// makeTemplate makes a migrated database, if no other test process has made it, and returns its name, which follows
// from the migrations. One process at a time makes it; it gets its name when it is complete.
func makeTemplate(t testing.TB, base string) (name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setUpTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, base)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }() // releases the lock, too
	_, err = conn.Exec(ctx, `select pg_advisory_lock(hashtextextended('everpost/tests/template', 0))`)
	require.NoError(t, err)

	complete := "template_" + hashOfMigrations(t)
	var exists bool
	require.NoError(t, conn.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, complete).Scan(&exists))
	if exists {
		return complete
	}
	unfinished := complete + "_unfinished"
	execute(t, base, `drop database if exists `+unfinished+` with (force)`)
	execute(t, base, `create database `+unfinished)
	address := addressOf(t, base, unfinished, schema)
	execute(t, address, `create schema `+schema)
	migrate(ctx, t, address)
	_, err = conn.Exec(ctx, `alter database `+unfinished+` rename to `+complete)
	require.NoError(t, err)
	return complete
}

func migrate(ctx context.Context, t testing.TB, address string) {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, migrations.Up(ctx, db, slog.New(slog.DiscardHandler)))
}

func hashOfMigrations(t testing.TB) string {
	t.Helper()
	sum := sha256.New()
	require.NoError(t, fs.WalkDir(migrations.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := migrations.FS.ReadFile(path)
		_, _ = fmt.Fprintf(sum, "%s %d %s", path, len(text), text)
		return err
	}))
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
