package migrations

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// tableName is the table of the files that were applied. It is made before the first of
// them, in another transaction.
const tableName = "everpost_schema_version"

// MismatchError is the error for a database that this build must not use.
type MismatchError struct {
	What   string // is wrong
	Remedy string
}

func (m *MismatchError) Error() string { return m.What + ": " + m.Remedy }

// source is a migration file.
type source struct {
	version int64
	name    string
	sha256  [sha256.Size]byte
}

// readSources returns the files by their version.
func readSources(files fs.FS) (map[int64]source, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	known := make(map[int64]source, len(names))
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("read the migration %s: %w", name, err)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read the migration %s: %w", name, err)
		}
		known[version] = source{version, name, sha256.Sum256(text)}
	}
	return known, nil
}

// pending compares the files with those that the database remembers.
func pending(ctx context.Context, files fs.FS, db *sql.DB) ([]string, error) {
	known, err := readSources(files)
	if err != nil {
		return nil, err
	}
	exists, summed, err := lookForTable(ctx, db)
	if err != nil {
		return nil, err
	}
	if exists && !summed {
		return nil, &MismatchError{
			"the database was made by a build of before 00001_schema.sql, and no build brings it up to date",
			"nothing had been released; use an empty database (standalone: another --data-dir)",
		}
	}
	if exists {
		if known, err = notApplied(ctx, known, db); err != nil {
			return nil, err
		}
	}
	missing := make([]string, 0, len(known))
	for _, s := range slices.SortedFunc(maps.Values(known), func(a, b source) int { return cmp.Compare(a.version, b.version) }) {
		missing = append(missing, s.name)
	}
	return missing, nil
}

// lookForTable reports whether the table of versions exists, and whether it has checksums.
// A cast to regclass would find the table of another schema on the search_path.
func lookForTable(ctx context.Context, db database.DBTxConn) (exists, summed bool, err error) {
	err = db.QueryRowContext(ctx, `
		select count(*) > 0, coalesce(bool_or(a.attname = 'sha256'), false)
		from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = current_schema() and c.relname = $1`, tableName).Scan(&exists, &summed)
	if err != nil {
		return false, false, fmt.Errorf("look for %s: %w", tableName, err)
	}
	return exists, summed, nil
}

// notApplied returns those of the files that the database does not have.
func notApplied(ctx context.Context, known map[int64]source, db *sql.DB) (_ map[int64]source, err error) {
	rows, err := db.QueryContext(ctx, `select version_id, file, sha256 from `+tableName+` order by version_id`)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", tableName, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	rest := maps.Clone(known)
	for rows.Next() {
		var (
			version int64
			name    string
			sum     []byte
		)
		if err := rows.Scan(&version, &name, &sum); err != nil {
			return nil, fmt.Errorf("read %s: %w", tableName, err)
		}
		ours, found := known[version]
		if !found {
			return nil, &MismatchError{
				"the database has the migration " + name + ", which this build does not contain",
				"a newer build has migrated it; run that build or a later one",
			}
		}
		if !bytes.Equal(sum, ours.sha256[:]) {
			return nil, &MismatchError{
				"the migration " + name + " that was applied to the database differs from " + ours.name + " of this build",
				"run the build that applied it, or a later release; a migration that was edited has to get back its contents",
			}
		}
		delete(rest, version)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", tableName, err)
	}
	return rest, nil
}

// versionTable is goose's store of the files that it has applied. goose inserts a file in
// the transaction that applies it, or, where the file needs to run without one, after it.
type versionTable map[int64]source

func (versionTable) Tablename() string { return tableName }

func (versionTable) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	exists, _, err := lookForTable(ctx, db)
	return exists, err
}

func (versionTable) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	_, err := db.ExecContext(ctx, `
		create table `+tableName+` (
			version_id bigint      not null primary key,
			file       text        not null,
			sha256     bytea       not null check (octet_length(sha256) = 32),
			applied_at timestamptz not null default now()
		)`)
	if err != nil {
		return fmt.Errorf("make %s: %w", tableName, err)
	}
	return nil
}

func (t versionTable) Insert(ctx context.Context, db database.DBTxConn, r database.InsertRequest) error {
	if r.Version == 0 {
		return nil // goose's mark of an empty database
	}
	file, found := t[r.Version]
	if !found {
		return fmt.Errorf("there is no file of the migration %d", r.Version)
	}
	_, err := db.ExecContext(ctx, `insert into `+tableName+` (version_id, file, sha256) values ($1, $2, $3)`,
		file.version, file.name, file.sha256[:])
	if err != nil {
		return fmt.Errorf("record %s: %w", file.name, err)
	}
	return nil
}

func (versionTable) Delete(context.Context, database.DBTxConn, int64) error {
	return errors.New("migrations only go forward")
}

func (versionTable) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	var at time.Time
	err := db.QueryRowContext(ctx, `select applied_at from `+tableName+` where version_id = $1`, version).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, database.ErrVersionNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", tableName, err)
	}
	return &database.GetMigrationResult{Timestamp: at, IsApplied: true}, nil
}

func (versionTable) GetLatestVersion(ctx context.Context, db database.DBTxConn) (version int64, err error) {
	err = db.QueryRowContext(ctx, `select coalesce(max(version_id), 0) from `+tableName).Scan(&version)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", tableName, err)
	}
	return version, nil
}

func (versionTable) ListMigrations(ctx context.Context, db database.DBTxConn) (_ []*database.ListMigrationsResult, err error) {
	rows, err := db.QueryContext(ctx, `select version_id from `+tableName+` union all select 0 order by 1 desc`)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", tableName, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var all []*database.ListMigrationsResult
	for rows.Next() {
		applied := &database.ListMigrationsResult{IsApplied: true}
		if err := rows.Scan(&applied.Version); err != nil {
			return nil, fmt.Errorf("read %s: %w", tableName, err)
		}
		all = append(all, applied)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", tableName, err)
	}
	return all, nil
}
