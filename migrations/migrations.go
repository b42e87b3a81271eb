// Package migrations contains the database schema as numbered SQL files and migrates a
// database to it.
//
// Migrations only go forward, and each is safe on a running system: a process of the
// previous release keeps working on the newer schema until it is replaced. The files name
// no schema, so all objects, including the table of versions, are created in the first
// schema of the connection's search_path.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"github.com/pressly/goose/v3"
)

// FS are the migrations: files named 00001_what_it_does.sql in goose's format.
//
//go:embed *.sql
var FS embed.FS

// ErrNewer reports that a newer release has migrated the database: this release must not
// use it.
var ErrNewer = errors.New("the database's schema is of a newer release")

const (
	versionTable = "everpost_schema_version"

	// lockPoll is how often a process checks whether another one has finished migrating. It
	// polls because a session that blocks in pg_advisory_lock holds a snapshot, and CREATE
	// INDEX CONCURRENTLY waits for every snapshot: that would be a deadlock.
	lockPoll = 50 * time.Millisecond

	unlockTimeout = 5 * time.Second
)

// Up applies the missing migrations, each in its own transaction. Several processes may
// call it at once: one migrates, the others wait for it. On a current database it costs two
// small queries.
//
// It needs two connections of db at a time. Migrations take longer than ordinary
// statements, so db should have no statement timeout; a lock timeout is useful.
//
// It returns ErrNewer, ctx's error, or the database's error with the name of the migration
// that failed; the migrations before that one stay applied.
func Up(ctx context.Context, db *sql.DB, logger *slog.Logger) (err error) {
	current, newest, err := Version(ctx, db)
	if err != nil {
		return err
	}
	if current == newest {
		return nil
	}

	unlock, err := lock(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	applied, err := provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		return fmt.Errorf("migrate to %s: %w", path.Base(partial.Failed.Source.Path), partial.Err)
	}
	if err != nil {
		return fmt.Errorf("migrate from version %d to %d: %w", current, newest, err)
	}
	for _, m := range applied {
		logger.InfoContext(ctx, "database migrated",
			slog.String("migration", path.Base(m.Source.Path)), slog.Duration("took", m.Duration))
	}
	return nil
}

// Version returns the database's version, 0 before the first migration, and the version
// after Up. It returns ErrNewer when the database's version is higher than that.
func Version(ctx context.Context, db *sql.DB) (current, newest int64, err error) {
	newest, err = newestVersion(db)
	if err != nil {
		return 0, 0, err
	}
	var exists bool
	// to_regclass would find the table of another schema on the search_path.
	err = db.QueryRowContext(ctx, `
		select exists (select from pg_tables where schemaname = current_schema() and tablename = $1)`, versionTable).Scan(&exists)
	if err != nil {
		return 0, newest, fmt.Errorf("look for %s: %w", versionTable, err)
	}
	if !exists {
		return 0, newest, nil
	}
	err = db.QueryRowContext(ctx, `select coalesce(max(version_id), 0) from `+versionTable).Scan(&current)
	if err != nil {
		return 0, newest, fmt.Errorf("read %s: %w", versionTable, err)
	}
	if current > newest {
		return current, newest, fmt.Errorf("version %d, known up to %d: %w", current, newest, ErrNewer)
	}
	return current, newest, nil
}

func newestVersion(db *sql.DB) (int64, error) {
	provider, err := newProvider(db)
	if err != nil {
		return 0, err
	}
	sources := provider.ListSources()
	return sources[len(sources)-1].Version, nil
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	provider, err := goose.NewProvider(goose.DialectPostgres, db, FS,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, fmt.Errorf("read the embedded migrations: %w", err)
	}
	return provider, nil
}

// lock prevents other processes from migrating the same schema. goose's own lock does not
// cover the creation of its version table, and polls every 5 s.
func lock(ctx context.Context, db *sql.DB) (unlock func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock the schema: %w", err)
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()

	// Two schemas of one database are migrated independently.
	const key = `(hashtextextended('everpost/migrations/' || current_schema(), 0))`
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		var locked bool
		if err := conn.QueryRowContext(ctx, `select pg_try_advisory_lock`+key).Scan(&locked); err != nil {
			return nil, fmt.Errorf("lock the schema: %w", err)
		}
		if locked {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another process that migrates: %w", ctx.Err())
		}
	}

	return func() error {
		// Unlock also when ctx is done: the connection may return to a pool.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
		defer cancel()
		_, err := conn.ExecContext(ctx, `select pg_advisory_unlock`+key)
		if err = errors.Join(err, conn.Close()); err != nil {
			return fmt.Errorf("unlock the schema: %w", err)
		}
		return nil
	}, nil
}
