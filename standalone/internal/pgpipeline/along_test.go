package pgpipeline_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/standalone/internal/pgpipeline"
)

// beginWith begins a transaction that takes along what goes along.
func (b bundle) beginWith(t *testing.T, along *pgpipeline.Along) *sql.Tx {
	t.Helper()
	tx, err := b.db.BeginTx(along.Take(t.Context()), nil)
	require.NoError(t, err)
	return tx
}

// held runs something in a context in which statements are held.
type held struct {
	along *pgpipeline.Along
	on    interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}
}

func (h held) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return h.on.ExecContext(h.along.Hold(ctx), query, args...)
}

// What is held, alone or in a transaction of its own, comes first in the transaction that takes it.
func TestHeldStatements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	along := &pgpipeline.Along{}
	run(t, held{along, b.db}, 1, insertItem, 1, 1, "a")
	own, err := b.db.BeginTx(along.Hold(t.Context()), nil)
	require.NoError(t, err)
	run(t, own, 2, insertItems, 2, 1, "b", 3, 1, "c")
	require.NoError(t, own.Commit())
	require.True(t, along.Left())
	require.Empty(t, b.sent.Take())

	tx := b.beginWith(t, along)
	require.True(t, along.Left())
	var data string
	require.NoError(t, tx.QueryRowContext(t.Context(), lockItem, 3).Scan(&data))
	require.Equal(t, "c", data)
	require.Equal(t, [][]string{{begin, insertItem, insertItems, lockItem}}, b.sent.Take())
	require.NoError(t, tx.Commit())
	require.False(t, along.Left())
	require.Equal(t, 3, b.count(t, "item"))

	again := b.beginWith(t, along) // it is stored once
	require.NoError(t, again.Commit())
	require.Equal(t, [][]string{{commit}}, b.sent.Take())
}

// A transaction that does nothing itself stores what is held; one that fails or is left does not.
func TestHeldIsStoredWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := func(id int) *pgpipeline.Along {
		along := &pgpipeline.Along{}
		run(t, held{along, b.db}, 1, insertItem, id, 1, "a")
		return along
	}
	require.NoError(t, b.beginWith(t, hold(11)).Commit())
	require.Equal(t, [][]string{{begin, insertItem, commit}}, b.sent.Take())
	require.Equal(t, 1, b.count(t, "item"))

	left := hold(12)
	require.NoError(t, b.beginWith(t, left).Rollback())
	require.Empty(t, b.sent.Take())
	require.True(t, left.Left())
	tx := b.beginWith(t, hold(13))
	require.ErrorIs(t, tx.QueryRowContext(t.Context(), lockItem, 14).Scan(new(string)), sql.ErrNoRows)
	require.NoError(t, tx.Rollback())
	failed := hold(11) // is there already
	tx = b.beginWith(t, failed)
	require.Equal(t, duplicateKey, sqlState(t, tx.QueryRowContext(t.Context(), lockItem, 11).Scan(new(string))))
	require.Error(t, tx.Commit())
	require.True(t, failed.Left())
	require.Error(t, b.beginWith(t, failed).Commit(), "seen by the commit itself")
	require.True(t, failed.Left())
	require.Equal(t, 1, b.count(t, "item"))
}

// What is held is not lost with a connection: the transaction that is begun on another one takes all of it.
func TestHeldOutlivesAConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	along := &pgpipeline.Along{Queries: []pgpipeline.Query{{Text: lockItem, Args: []any{int64(1)}}}}
	run(t, held{along, b.db}, 1, insertItem, 1, 1, "a")
	conn, err := b.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }() // which the pool has done by then
	lose := func() {
		var pid int
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
		_, err := b.plain.ExecContext(t.Context(), "SELECT pg_terminate_backend($1, 10000)", pid)
		require.NoError(t, err)
	}

	lose()
	begun, err := conn.BeginTx(along.Take(t.Context()), nil)
	require.NoError(t, err, "nothing was sent yet")
	require.Error(t, begun.Commit())
	_, err = conn.BeginTx(along.Take(t.Context()), nil)
	require.ErrorIs(t, err, driver.ErrBadConn) // on which database/sql takes another connection
	require.True(t, along.Left())
	b.sent.Take()

	tx := b.beginWith(t, along)
	var data string
	require.NoError(t, tx.QueryRowContext(t.Context(), lockItem, int64(1)).Scan(&data))
	require.Equal(t, "a", data)
	require.Equal(t, [][]string{{begin, insertItem, lockItem, lockItem}}, b.sent.Take())
	require.NoError(t, tx.Commit())
	require.False(t, along.Left())
	require.Equal(t, 1, b.count(t, "item"))
}

// What would not wait in a transaction is not held.
func TestNotHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	along := &pgpipeline.Along{}
	run(t, held{along, b.db}, 1, strict, 1, 1)
	require.Equal(t, [][]string{{begin, strict}, {commit}}, b.sent.Take())
	_, err := held{along, b.db}.ExecContext(t.Context(), strict, 1, 1)
	require.Equal(t, duplicateKey, sqlState(t, err))
	own, err := b.db.BeginTx(along.Hold(t.Context()), nil)
	require.NoError(t, err)
	run(t, own, 1, insertItem, 2, 1, "b")
	run(t, own, 1, removeItem, 1)
	require.NoError(t, own.Commit())
	require.False(t, along.Left())
	require.Equal(t, 1, b.count(t, "item"))
	b.sent.Take()

	left, err := b.db.BeginTx(along.Hold(t.Context()), nil)
	require.NoError(t, err)
	run(t, left, 1, insertItem, 3, 1, "c")
	require.NoError(t, left.Rollback())
	require.False(t, along.Left())
	require.Empty(t, b.sent.Take())
	run(t, b.db, 1, insertItem, 3, 1, "c") // without the context it is as ever
	require.Equal(t, 2, b.count(t, "item"))

	options, err := b.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	b.sent.Take()
	run(t, held{along, options}, 1, insertItem, 4, 1, "d")
	require.Equal(t, [][]string{{insertItem}}, b.sent.Take())
	require.NoError(t, options.Commit())
	require.False(t, along.Left())
	require.Equal(t, 3, b.count(t, "item"))
}

// What is held waits for the disk as its transaction does.
func TestHeldAndTheDisk(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		statement string
		want      []string
	}{
		"lazy":    {insertNote, []string{begin, insertNote, dontWait, commit}},
		"durable": {"INSERT INTO item (id) VALUES ($1)", []string{begin, "INSERT INTO item (id) VALUES ($1)", commit}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			along := &pgpipeline.Along{}
			run(t, held{along, b.db}, 1, test.statement, 1)
			require.NoError(t, b.beginWith(t, along).Commit())
			require.Equal(t, [][]string{test.want}, b.sent.Take())
		})
	}
}

// Queries are sent along with the first statement that is sent, and their rows are locked as if they had been asked for.
func TestQueriesGoAlong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run(t, b.db, 2, insertItems, 1, 1, "a", 2, 1, "b")
	b.sent.Take()
	along := &pgpipeline.Along{Queries: []pgpipeline.Query{
		{Text: lockItem, Args: []any{int64(1)}}, {Text: lockItem, Args: []any{int64(2)}}, {Text: lockOwner, Args: []any{int64(9)}},
	}}
	tx := b.beginWith(t, along)
	read := func(id int64, want string) {
		var data string
		require.NoError(t, tx.QueryRowContext(t.Context(), lockItem, id).Scan(&data))
		require.Equal(t, want, data)
	}
	require.ErrorIs(t, tx.QueryRowContext(t.Context(), readNote, 1).Scan(new(int)), sql.ErrNoRows)
	require.Equal(t, [][]string{{begin, readNote, lockItem, lockItem, lockOwner}}, b.sent.Take())
	read(2, "b")
	read(1, "a")
	require.ErrorIs(t, tx.QueryRowContext(t.Context(), lockOwner, int64(9)).Scan(new(int)), sql.ErrNoRows)
	require.Empty(t, b.sent.Take())
	run(t, tx, 1, updateItem, "c", int64(1)) // waits: it is known to be there
	require.Empty(t, b.sent.Take())
	read(2, "b") // is given out once
	require.Equal(t, [][]string{{updateItem, lockItem}}, b.sent.Take())
	require.NoError(t, tx.Commit())
	require.Equal(t, [][]string{{commit}}, b.sent.Take())
}

// An answer is not given out after something that may have changed it.
func TestQueriesThatAreTooOld(t *testing.T) {
	t.Parallel()
	const joined = "SELECT a.data FROM item a INNER JOIN note n ON n.id = a.id WHERE a.id = $1"
	for name, test := range map[string]struct {
		write string
		args  []any
		want  []string // is sent of lockItem and joined
	}{
		"nothing":               {"", nil, nil},
		"another table":         {insertNote, []any{5}, []string{joined}},
		"the same table":        {insertItem, []any{5, 1, "x"}, []string{lockItem, joined}},
		"a write like no other": {"UPDATE note SET id = id + 1", nil, []string{lockItem, joined}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			run(t, b.db, 1, insertItem, 1, 1, "a")
			run(t, b.db, 1, insertNote, 1)
			args := []any{int64(1)}
			tx := b.beginWith(t, &pgpipeline.Along{Queries: []pgpipeline.Query{{Text: lockItem, Args: args}, {Text: joined, Args: args}}})
			require.NoError(t, tx.QueryRowContext(t.Context(), readNote, int64(1)).Scan(new(int)))
			if test.write != "" {
				_, err := tx.ExecContext(t.Context(), test.write, test.args...)
				require.NoError(t, err)
			}
			b.sent.Take()
			var sent []string
			for _, query := range []string{lockItem, joined} {
				var data string
				_ = tx.QueryRowContext(t.Context(), query, int64(1)).Scan(&data) // the note may be another by now
				for _, trip := range b.sent.Take() {
					sent = append(sent, trip[len(trip)-1])
				}
			}
			require.Equal(t, test.want, sent)
			require.NoError(t, tx.Rollback())
		})
	}
}

// When a query fails, so does the statement that it goes along with.
func TestQueryThatFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.beginWith(t, &pgpipeline.Along{Queries: []pgpipeline.Query{{Text: "SELECT id FROM nowhere"}}})
	require.Equal(t, "42P01", sqlState(t, tx.QueryRowContext(t.Context(), readNote, 1).Scan(new(int))))
	require.Error(t, tx.Commit())
	b.leavesNothing(t)
}
