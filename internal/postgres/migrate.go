package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everpost/everpost/migrations"
)

const (
	// A migration may rewrite an index, but must not queue behind a long transaction:
	// everything behind it in the lock's queue waits, too.
	migrateLockTimeout = 10 * time.Second
	migrateConns       = 3 // one holds the lock, one migrates
)

// MismatchError is the error for a database whose migrations are not those of this build.
type MismatchError = migrations.MismatchError

// Migrated returns nil when the database has the tables that this release needs, and otherwise
// a *MismatchError, which says what to do, or the database's error.
func (s *Core) Migrated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	versions := stdlib.OpenDBFromPool(s.pool)
	defer func() { _ = versions.Close() }()
	const remedy = "run 'everpost migrate'"
	missing, err := migrations.Pending(ctx, versions)
	mismatch, mismatched := errors.AsType[*MismatchError](err)
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case mismatched:
		return mismatch
	case errors.Is(err, errNoRole):
		return err
	case answered && pg.Code == "42501":
		return &MismatchError{What: "this login may not see which migrations the database has", Remedy: remedy}
	case err != nil:
		return Translate("look at the database's version", err)
	case len(missing) == 1:
		return &MismatchError{What: "the database lacks the migration " + missing[0], Remedy: remedy}
	case len(missing) > 1:
		return &MismatchError{What: fmt.Sprintf("the database lacks %d migrations, the first is %s", len(missing), missing[0]), Remedy: remedy}
	}
	return nil
}

// CheckEncoding returns a *MismatchError unless the database is encoded in UTF-8: in another encoding some texts could not be
// stored, and would be refused only when they come.
func (s *Core) CheckEncoding(ctx context.Context) error { return checkEncoding(ctx, s.login) }

func checkEncoding(ctx context.Context, pool *pgxpool.Pool) error {
	var encoding string
	err := pool.QueryRow(ctx, `select pg_encoding_to_char(encoding) from pg_database where datname = current_database()`).Scan(&encoding)
	if err != nil {
		return Translate("read the database's encoding", err)
	}
	if encoding != "UTF8" {
		return &MismatchError{
			What:   "the database's encoding is " + encoding + " and has to be UTF8",
			Remedy: "create it anew: create database … encoding 'UTF8' template template0",
		}
	}
	return nil
}

// Migrate brings the database of a connection string up to date and makes the
// partitions of the days around today. Several processes may call it at once.
func Migrate(ctx context.Context, url string, logger *slog.Logger) error {
	config, err := poolConfig(Config{URL: url, MaxConns: migrateConns})
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["statement_timeout"] = "0"
	config.ConnConfig.RuntimeParams["lock_timeout"] = Milliseconds(migrateLockTimeout)
	if err := checkSessions(ctx, config.ConnConfig.Copy()); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()

	if err := checkEncoding(ctx, pool); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	missing, err := migrations.Pending(ctx, db)
	if err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	if err := migrations.Up(ctx, db, logger); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	if err := ensurePartitions(ctx, pool, logger, time.Now()); err != nil || len(missing) == 0 {
		return err
	}
	if err := analyze(ctx, pool, 0); err != nil { // nothing needs it, and retention tries again
		logger.WarnContext(ctx, "the tables were not analyzed", slog.Any("error", err))
	}
	return nil
}
