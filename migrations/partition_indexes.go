package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// missingIndex is an index of a partitioned table that one of its partitions lacks.
type missingIndex struct{ index, definition, partition string }

// superseded ends the name of a partitioned table's index that a migration has replaced by another one.
const superseded = "_superseded"

// completeIndexes builds the indexes that a migration has made on a partitioned table only, on each of its partitions. CREATE INDEX
// CONCURRENTLY, which lets others write, does not take a partitioned table, and the partitions are not the same in all databases. Then it
// drops the superseded indexes, which have served until now.
//
// PostgreSQL marks the parent's index as valid once all partitions have it. So what is left undone, by an error or by the end of the process,
// is done by the next call.
func completeIndexes(ctx context.Context, db *sql.DB) (err error) {
	missing, err := missingIndexes(ctx, db)
	if err != nil {
		return err
	}
	old, err := supersededIndexes(ctx, db)
	if err != nil || len(missing) == 0 && len(old) == 0 {
		return err
	}
	unlock, err := lock(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if missing, err = missingIndexes(ctx, db); err != nil { // another process may have built some
		return err
	}
	for _, m := range missing {
		if err := m.build(ctx, db); err != nil {
			return fmt.Errorf("build the index %s on %s: %w", m.index, m.partition, err)
		}
	}
	for _, name := range old {
		if _, err := db.ExecContext(ctx, `drop index if exists `+pgx.Identifier{name}.Sanitize()); err != nil {
			return fmt.Errorf("drop the index %s: %w", name, err)
		}
	}
	return nil
}

// supersededIndexes are the names of the indexes that are to be dropped.
func supersededIndexes(ctx context.Context, db *sql.DB) (names []string, err error) {
	rows, err := db.QueryContext(ctx, `
		select relname from pg_class where relkind = 'I' and relnamespace = current_schema()::regnamespace and right(relname, length($1)) = $1
		order by relname`, superseded)
	if err != nil {
		return nil, fmt.Errorf("look for indexes to drop: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("look for indexes to drop: %w", err)
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

func missingIndexes(ctx context.Context, db *sql.DB) (all []missingIndex, err error) {
	rows, err := db.QueryContext(ctx, `
		select parent.relname, pg_get_indexdef(parent.oid), child.relname
		from pg_index i
		join pg_class parent on parent.oid = i.indexrelid and parent.relkind = 'I' and parent.relnamespace = current_schema()::regnamespace
		join pg_inherits h on h.inhparent = i.indrelid
		join pg_class child on child.oid = h.inhrelid
		where not i.indisvalid and not exists (
			select from pg_inherits attached join pg_index of_child on of_child.indexrelid = attached.inhrelid
			where attached.inhparent = parent.oid and of_child.indrelid = child.oid)
		order by parent.relname, child.relname`)
	if err != nil {
		return nil, fmt.Errorf("look for indexes to build: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var m missingIndex
		if err := rows.Scan(&m.index, &m.definition, &m.partition); err != nil {
			return nil, fmt.Errorf("look for indexes to build: %w", err)
		}
		all = append(all, m)
	}
	return all, rows.Err()
}

// build builds the index under the name that PostgreSQL chooses, as it does for partitions that are made later.
func (m missingIndex) build(ctx context.Context, db *sql.DB) error {
	quote := func(name string) string { return pgx.Identifier{name}.Sanitize() }
	_, how, _ := strings.Cut(m.definition, " USING ")
	name, valid, err := m.built(ctx, db, how)
	if err == nil && name != "" && !valid { // an earlier try was interrupted
		_, err = db.ExecContext(ctx, `drop index `+quote(name))
		name = ""
	}
	if err == nil && name == "" {
		if _, err = db.ExecContext(ctx, `create index concurrently on `+quote(m.partition)+` using `+how); err == nil {
			name, _, err = m.built(ctx, db, how)
		}
	}
	if err == nil {
		_, err = db.ExecContext(ctx, `alter index `+quote(m.index)+` attach partition `+quote(name))
	}
	return err //nolint:wrapcheck // the caller names the index
}

// built is the partition's index of this definition that belongs to no index of its parent; "" for none.
func (m missingIndex) built(ctx context.Context, db *sql.DB, how string) (name string, valid bool, err error) {
	err = db.QueryRowContext(ctx, `
		select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
		where i.indrelid = to_regclass($1) and split_part(pg_get_indexdef(c.oid), ' USING ', 2) = $2
		and not exists (select from pg_inherits h where h.inhrelid = c.oid)`, pgx.Identifier{m.partition}.Sanitize(), how).Scan(&name, &valid)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return name, valid, err //nolint:wrapcheck // as attach
}
