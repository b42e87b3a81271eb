// Package migrations contains the database schema as numbered SQL files and migrates a
// database to it.
//
// Migrations only go forward, and each is safe on a running system: a process of the
// previous release keeps working on the newer schema until it is replaced. The files name
// no schema, so all objects, including the table of versions, are created in the first
// schema of the connection's search_path.
//
// A file is never edited once it may have been applied somewhere: a database remembers the
// checksum of each file, and is refused where it differs (see Pending).
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"time"

	"github.com/pressly/goose/v3"
)

// FS are the migrations: files named 00001_what_it_does.sql in goose's format.
//
//go:embed *.sql
var FS embed.FS

const (
	// lockPoll is how often a process checks whether another one has finished migrating. It
	// polls because a session that blocks in pg_advisory_lock holds a snapshot, and CREATE
	// INDEX CONCURRENTLY waits for every snapshot: that would be a deadlock.
	lockPoll = 50 * time.Millisecond

	unlockTimeout = 5 * time.Second
)

// Up applies the missing migrations, each in its own transaction. Several processes may
// call it at once: one migrates, the others wait for it. On a current database it costs four
// small queries.
//
// It needs two connections of db at a time. Migrations take longer than ordinary
// statements, so db should have no statement timeout; a lock timeout is useful.
//
// It returns a *MismatchError as Pending does, ctx's error, or the database's error with the
// name of the migration that failed; the migrations before that one stay applied.
func Up(ctx context.Context, db *sql.DB, logger *slog.Logger) error { return up(ctx, FS, db, logger) }

// Pending returns the names of the files that Up would apply, in order. It returns a
// *MismatchError for a database to which other files were applied than this build contains.
func Pending(ctx context.Context, db *sql.DB) ([]string, error) { return pending(ctx, FS, db) }

func up(ctx context.Context, files fs.FS, db *sql.DB, logger *slog.Logger) error {
	if err := apply(ctx, files, db, logger); err != nil {
		return err
	}
	return completeIndexes(ctx, db)
}

// apply applies the missing files.
func apply(ctx context.Context, files fs.FS, db *sql.DB, logger *slog.Logger) (err error) {
	missing, err := pending(ctx, files, db)
	if err != nil || len(missing) == 0 {
		return err
	}

	unlock, err := lock(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	known, err := readSources(files)
	if err != nil {
		return err
	}
	provider, err := newProvider(files, versionTable(known), db)
	if err != nil {
		return err
	}
	applied, err := provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		return fmt.Errorf("migrate to %s: %w", path.Base(partial.Failed.Source.Path), partial.Err)
	}
	if err != nil {
		return fmt.Errorf("migrate to %s: %w", missing[0], err)
	}
	for _, m := range applied {
		logger.InfoContext(ctx, "database migrated",
			slog.String("migration", path.Base(m.Source.Path)), slog.Duration("took", m.Duration))
	}
	return nil
}

// newProvider makes a provider of the files. Branches are merged in any order, so a file
// may have a lower number than one that is applied already.
func newProvider(files fs.FS, applied versionTable, db *sql.DB) (*goose.Provider, error) {
	provider, err := goose.NewProvider(goose.DialectCustom, db, files, goose.WithStore(applied),
		goose.WithDisableGlobalRegistry(true), goose.WithAllowOutofOrder(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
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
