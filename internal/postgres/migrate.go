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

// Migrated returns nil when the database has the tables that this release needs. Its error
// says what to do: migrate a database of an older release, or run the release of a newer one.
func (s *Core) Migrated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	versions := stdlib.OpenDBFromPool(s.pool)
	defer func() { _ = versions.Close() }()
	current, newest, err := migrations.Version(ctx, versions)
	if errors.Is(err, migrations.ErrNewer) || errors.Is(err, errNoRole) {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" {
		return errors.New("the database is of a release before roles, or its schema is not the login's: run 'everpost migrate'")
	}
	if err != nil {
		return Translate("look at the database's version", err)
	}
	if current < newest {
		return fmt.Errorf("the database is at version %d and has to be at %d: run 'everpost migrate'", current, newest)
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
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()

	if err := migrations.Up(ctx, db, logger); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	return ensurePartitions(ctx, pool, logger, time.Now())
}
