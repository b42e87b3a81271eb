package pgpipeline_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // to compare with
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/standalone/internal/pgpipeline"
	"github.com/everpost/everpost/standalone/internal/pgpipeline/pgpipelinetest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m).Run()) }

// The statements of the tests.
const (
	insertItem  = "INSERT INTO item (id, owner, data) VALUES ($1, $2, $3)"
	insertItems = "INSERT INTO item (id, owner, data) VALUES ($1, $2, $3), ($4, $5, $6)"
	insertNote  = "INSERT INTO note (id) VALUES ($1)" // lazy
	removeNote  = "DELETE FROM note WHERE id = $1"    // lazy, and not to wait
	lockItem    = "SELECT data FROM item WHERE id = $1 FOR UPDATE"
	lockOwner   = "SELECT id FROM item WHERE owner = $1 FOR UPDATE"
	updateItem  = "UPDATE item SET data = $1 WHERE id = $2"
	updateOwner = "UPDATE item SET data = $1 WHERE owner = $2"
	removeItem  = "DELETE FROM item WHERE id = $1"
	readItem    = "SELECT data FROM item WHERE id = $1"
	readNote    = "SELECT id FROM note WHERE id = $1"
	strict      = "INSERT INTO item (id, owner) VALUES ($1, $2)" // does not wait

	begin    = "begin"
	commit   = "commit"
	rollback = "rollback"
	dontWait = "set local synchronous_commit to off"
)

type bundle struct {
	db    *sql.DB                  // under test
	sent  *pgpipelinetest.Recorder // what it sends
	plain *sql.DB                  // pgx's own
}

// setup makes tables of which one records how each commit that touches item or note waits for the disk.
func setup(t *testing.T) bundle {
	t.Helper()
	address := postgrestest.NewEmpty(t) + "&synchronous_commit=on" // which the test server has off
	plain, err := sql.Open("pgx", address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	_, err = plain.ExecContext(t.Context(), `
		CREATE TABLE item (id bigint PRIMARY KEY, owner int, data text);
		CREATE TABLE note (id bigint PRIMARY KEY);
		CREATE TABLE waited (relation text, how text);
		CREATE FUNCTION record_wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO waited VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER waits AFTER INSERT OR UPDATE OR DELETE ON item DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION record_wait();
		CREATE CONSTRAINT TRIGGER waits AFTER INSERT OR UPDATE OR DELETE ON note DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION record_wait();`)
	require.NoError(t, err)

	sent := pgpipelinetest.New(t, address)
	db, err := pgpipeline.Open(pgpipeline.Options{
		URL:   sent.URL(),
		Later: func(query string) bool { return query != strict },
		Lazy:  func(query string) bool { return query == insertNote || query == removeNote },
		Ahead: map[string][]string{readItem: {readNote}},
	})
	require.NoError(t, err)
	db.SetMaxOpenConns(1) // who does not give a connection back is found out
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return bundle{db: db, sent: sent, plain: plain}
}

func (b bundle) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := b.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	return tx
}

// run runs a statement that is to affect some rows.
func run(t *testing.T, on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, rows int64, query string, args ...any,
) {
	t.Helper()
	result, err := on.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
	got, err := result.RowsAffected()
	require.NoError(t, err)
	require.Equal(t, rows, got, query)
}

// count is how many rows a table really has.
func (b bundle) count(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, b.plain.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func sqlState(t *testing.T, err error) string {
	t.Helper()
	pgErr, ok := err.(*pgconn.PgError) //nolint:errorlint // Temporal looks for it this way
	require.True(t, ok, "%T: %v", err, err)
	return pgErr.Code
}

const duplicateKey = "23505"

func TestInsertsWaitForCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin(t)
	run(t, tx, 1, insertItem, 1, 1, "a")
	run(t, tx, 2, insertItems, 2, 1, "b", 3, 1, "c")
	require.Empty(t, b.sent.Take())
	require.NoError(t, tx.Commit())
	require.Equal(t, [][]string{{begin, insertItem, insertItems, commit}}, b.sent.Take())
	require.Equal(t, 3, b.count(t, "item"))
}

func TestWaitingGoesAlongInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin(t)
	run(t, tx, 1, insertItem, 1, 1, "a")
	var data string
	require.NoError(t, tx.QueryRowContext(t.Context(), readItem, 1).Scan(&data))
	require.Equal(t, "a", data)
	require.Equal(t, [][]string{{begin, insertItem, readItem}}, b.sent.Take())
	run(t, tx, 1, removeItem, 1)
	require.Equal(t, [][]string{{removeItem}}, b.sent.Take())
	run(t, tx, 0, removeItem, 1)
	run(t, tx, 1, strict, 2, 2)
	require.Equal(t, [][]string{{removeItem}, {strict}}, b.sent.Take())
	require.NoError(t, tx.Commit())
	require.Equal(t, [][]string{{commit}}, b.sent.Take())
}

func TestPreparedStatementsWaitToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin(t)
	statement, err := tx.PrepareContext(t.Context(), insertItem)
	require.NoError(t, err)
	for i := range 2 {
		_, err := statement.ExecContext(t.Context(), i, 1, "a")
		require.NoError(t, err)
	}
	require.NoError(t, statement.Close()) //nolint:sqlclosecheck // closing sends nothing, which is seen below
	require.NoError(t, tx.Commit())
	require.Equal(t, [][]string{{begin, insertItem, insertItem, commit}}, b.sent.Take())
}

func TestUpdateWaitsForRowsThatAreLocked(t *testing.T) {
	t.Parallel()
	lock := func(t *testing.T, tx *sql.Tx, query string, arg any) {
		rows, err := tx.QueryContext(t.Context(), query, arg)
		require.NoError(t, err)
		require.NoError(t, rows.Close()) //nolint:sqlclosecheck // of a lock, which has nothing to read
		require.NoError(t, rows.Err())
	}
	tests := []struct {
		name string
		run  func(t *testing.T, tx *sql.Tx)
		want [][]string
	}{
		{"locked", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, lockItem, 1)
			run(t, tx, 1, updateItem, "x", 1)
		}, [][]string{{begin, lockItem}, {updateItem, commit}}},
		{"more than one", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, lockOwner, 1)
			run(t, tx, 2, updateOwner, "x", 1)
		}, [][]string{{begin, lockOwner}, {updateOwner, commit}}},
		{"of two locks", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, lockItem, 1)
			lock(t, tx, lockItem, 2)
			run(t, tx, 1, updateItem, "x", 1)
			run(t, tx, 1, updateItem, "x", 2)
		}, [][]string{{begin, lockItem}, {lockItem}, {updateItem, updateItem, commit}}},
		{"after an insert", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, lockItem, 1)
			run(t, tx, 1, insertItem, 9, 9, "")
			run(t, tx, 1, updateItem, "x", 1)
		}, [][]string{{begin, lockItem}, {insertItem, updateItem}, {commit}}},
		{"not locked", func(t *testing.T, tx *sql.Tx) {
			run(t, tx, 1, updateItem, "x", 1)
		}, [][]string{{begin, updateItem}, {commit}}},
		{"another row", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, lockItem, 1)
			run(t, tx, 1, updateItem, "x", 2)
		}, [][]string{{begin, lockItem}, {updateItem}, {commit}}},
		{"by another column", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, lockItem, 1)
			run(t, tx, 2, updateOwner, "x", 1)
		}, [][]string{{begin, lockItem}, {updateOwner}, {commit}}},
		{"nothing was there", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, lockItem, 7)
			run(t, tx, 0, updateItem, "x", 7)
		}, [][]string{{begin, lockItem}, {updateItem}, {commit}}},
		{"read only", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, readItem, 1)
			run(t, tx, 1, updateItem, "x", 1)
		}, [][]string{{begin, readItem}, {updateItem}, {commit}}},
		{"removed", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, lockItem, 1)
			run(t, tx, 1, removeItem, 1)
			run(t, tx, 0, updateItem, "x", 1)
		}, [][]string{{begin, lockItem}, {removeItem}, {updateItem}, {commit}}},
		{"a function", func(t *testing.T, tx *sql.Tx) {
			lock(t, tx, lockItem, 1)
			lock(t, tx, "SELECT pg_advisory_xact_lock_shared($1)", 1)
			run(t, tx, 1, updateItem, "x", 1)
		}, [][]string{{begin, lockItem}, {"SELECT pg_advisory_xact_lock_shared($1)"}, {updateItem}, {commit}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, err := b.plain.ExecContext(t.Context(), insertItems, 1, 1, "a", 2, 1, "b")
			require.NoError(t, err)
			tx := b.begin(t)
			test.run(t, tx)
			require.NoError(t, tx.Commit())
			require.Equal(t, test.want, b.sent.Take())
		})
	}
}

func TestErrorsOfWhatWaited(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		next func(t *testing.T, tx *sql.Tx) error
		want []string
	}{
		{"by commit", func(_ *testing.T, tx *sql.Tx) error { return tx.Commit() }, []string{begin, insertItem, insertItem, commit}},
		{"by the next query", func(t *testing.T, tx *sql.Tx) error {
			return tx.QueryRowContext(t.Context(), readItem, 1).Scan(new(string))
		}, []string{begin, insertItem, insertItem, readItem}},
		{"by the next statement", func(t *testing.T, tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), removeItem, 1)
			return err
		}, []string{begin, insertItem, insertItem, removeItem}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			run(t, b.plain, 1, insertItem, 2, 1, "there")
			tx := b.begin(t)
			run(t, tx, 1, insertItem, 1, 1, "a")
			run(t, tx, 1, insertItem, 2, 1, "b")
			require.Equal(t, duplicateKey, sqlState(t, test.next(t, tx)))
			require.Equal(t, test.want, b.sent.Take()[0])

			if test.name != "by commit" { // nothing more is taken, or sent
				_, err := tx.ExecContext(t.Context(), insertItem, 3, 1, "c")
				require.Equal(t, duplicateKey, sqlState(t, err))
				_, err = tx.QueryContext(t.Context(), readItem, 1) //nolint:sqlclosecheck,rowserrcheck,gocritic // there are no rows
				require.Equal(t, duplicateKey, sqlState(t, err))
				require.Empty(t, b.sent.Take())
				require.NoError(t, tx.Rollback())
				require.Equal(t, [][]string{{rollback}}, b.sent.Take())
			}
			require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
			require.Equal(t, 1, b.count(t, "item"), "nothing is stored")

			run(t, b.db, 1, insertItem, 4, 1, "d") // the connection is of use again
			require.Equal(t, 1, b.db.Stats().OpenConnections)
		})
	}
}

func TestCommitAfterAnError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin(t)
	run(t, tx, 1, insertItem, 1, 1, "a")
	_, err := tx.ExecContext(t.Context(), "DELETE FROM nothing_of_the_kind")
	require.Error(t, err)
	require.Equal(t, sqlState(t, err), sqlState(t, tx.Commit()))
	require.Zero(t, b.count(t, "item"))
	run(t, b.db, 1, insertItem, 1, 1, "a")
}

func TestNothingIsSentForNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.begin(t).Commit())
	require.NoError(t, b.begin(t).Rollback())
	tx := b.begin(t)
	run(t, tx, 1, insertItem, 1, 1, "a")
	require.NoError(t, tx.Rollback())
	require.Empty(t, b.sent.Take())
	run(t, b.db, 1, insertItem, 1, 1, "a") // nor does it stay
	require.Equal(t, 1, b.count(t, "item"))
}

func TestWhatWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		run  func(t *testing.T, b bundle)
		want []string // how each row's commit waited
		sent [][]string
	}{
		{"lazy alone", func(t *testing.T, b bundle) {
			run(t, b.db, 1, insertNote, 1)
		}, []string{"note off"}, [][]string{{begin, dontWait, insertNote, commit}}},
		{"lazy, with nothing to do", func(t *testing.T, b bundle) {
			run(t, b.db, 0, removeNote, 1)
		}, nil, [][]string{{begin, dontWait, removeNote, commit}}},
		{"lazy transaction", func(t *testing.T, b bundle) {
			tx := b.begin(t)
			run(t, tx, 1, insertNote, 1)
			run(t, tx, 1, insertNote, 2)
			require.NoError(t, tx.Commit())
		}, []string{"note off", "note off"}, [][]string{{begin, insertNote, insertNote, dontWait, commit}}},
		{"lazy transaction that reads", func(t *testing.T, b bundle) {
			tx := b.begin(t)
			run(t, tx, 1, insertNote, 1)
			require.ErrorIs(t, tx.QueryRowContext(t.Context(), lockItem, 1).Scan(new(string)), sql.ErrNoRows)
			require.NoError(t, tx.Commit())
		}, []string{"note off"}, [][]string{{begin, insertNote, lockItem}, {dontWait, commit}}},
		{"usual alone", func(t *testing.T, b bundle) {
			run(t, b.db, 1, insertItem, 1, 1, "a")
		}, []string{"item on"}, [][]string{{insertItem}}},
		{"usual transaction", func(t *testing.T, b bundle) {
			tx := b.begin(t)
			run(t, tx, 1, insertItem, 1, 1, "a")
			require.NoError(t, tx.Commit())
		}, []string{"item on"}, [][]string{{begin, insertItem, commit}}},
		{"lazy, then usual", func(t *testing.T, b bundle) {
			tx := b.begin(t)
			run(t, tx, 1, insertNote, 1)
			run(t, tx, 1, insertItem, 1, 1, "a")
			require.NoError(t, tx.Commit())
		}, []string{"note on", "item on"}, [][]string{{begin, insertNote, insertItem, commit}}},
		{"usual, then lazy", func(t *testing.T, b bundle) {
			tx := b.begin(t)
			run(t, tx, 1, insertItem, 1, 1, "a")
			run(t, tx, 1, insertNote, 1)
			require.NoError(t, tx.Commit())
		}, []string{"item on", "note on"}, [][]string{{begin, insertItem, insertNote, commit}}},
		{"lazy, and a query that writes", func(t *testing.T, b bundle) {
			tx := b.begin(t)
			run(t, tx, 1, insertNote, 1)
			require.NoError(t, tx.QueryRowContext(t.Context(), insertItem+" RETURNING id", 1, 1, "a").Scan(new(int)))
			require.NoError(t, tx.Commit())
		}, []string{"note on", "item on"}, [][]string{{begin, insertNote, insertItem + " RETURNING id"}, {commit}}},
		{"usual after lazy", func(t *testing.T, b bundle) {
			run(t, b.db, 1, insertNote, 1)
			run(t, b.db, 1, insertItem, 1, 1, "a")
		}, []string{"note off", "item on"}, [][]string{{begin, dontWait, insertNote, commit}, {insertItem}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			test.run(t, b)
			require.Equal(t, test.sent, b.sent.Take())
			var got sql.NullString
			require.NoError(t, b.plain.QueryRowContext(t.Context(), `SELECT string_agg(relation || ' ' || how, ',' ORDER BY ctid) FROM waited`).Scan(&got))
			require.Equal(t, strings.Join(test.want, ","), got.String)
		})
	}
}

func TestErrorOfLazy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run(t, b.db, 1, insertNote, 1)
	_, err := b.db.ExecContext(t.Context(), insertNote, 1)
	require.Equal(t, duplicateKey, sqlState(t, err))
	run(t, b.db, 1, insertNote, 2)
	require.Equal(t, 2, b.count(t, "note"))
	require.Equal(t, 1, b.db.Stats().OpenConnections)
}

// TestOptionsArePgxs: in a transaction with options nothing waits, is read ahead, or committed by itself.
func TestOptionsArePgxs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), insertItem, 1, 1, "a")
	require.Equal(t, "25006", sqlState(t, err), "read only")
	require.NoError(t, tx.Rollback())

	run(t, b.plain, 1, insertItem, 1, 1, "a")
	tx, err = b.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	var isolation, data string
	require.NoError(t, tx.QueryRowContext(t.Context(), "SHOW transaction_isolation").Scan(&isolation))
	require.Equal(t, "serializable", isolation)
	b.sent.Take()
	require.NoError(t, tx.QueryRowContext(t.Context(), readItem, 1).Scan(&data))
	run(t, tx, 1, insertNote, 1)
	require.Equal(t, [][]string{{readItem}, {insertNote}}, b.sent.Take())
	require.NoError(t, tx.Rollback())
	require.Zero(t, b.count(t, "note"))
}

func TestCancelledTransaction(t *testing.T) {
	t.Parallel()
	for _, sent := range []bool{false, true} {
		b := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := b.db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, insertItem, 1, 1, "a")
		require.NoError(t, err)
		if sent {
			require.ErrorIs(t, tx.QueryRowContext(ctx, lockItem, 2).Scan(new(string)), sql.ErrNoRows)
		}
		cancel()
		require.Error(t, tx.Commit())
		b.leavesNothing(t)
	}
}

func TestCancelledStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx, err := b.db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, insertItem, 1, 1, "a")
	require.NoError(t, err)
	var pid int
	require.NoError(t, tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid))
	ended := make(chan error, 1)
	go func() {
		_, err := tx.ExecContext(ctx, "SELECT pg_sleep($1)", 600)
		ended <- err
	}()
	require.Eventually(t, func() bool {
		var sleeps bool
		err := b.plain.QueryRowContext(t.Context(), `SELECT coalesce(wait_event = 'PgSleep', false) FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&sleeps)
		return err == nil && sleeps
	}, 10*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Error(t, tx.Commit())
	b.leavesNothing(t)
}

// leavesNothing waits until the pool's one connection is free, and looks that no transaction has been left on it.
func (b bundle) leavesNothing(t *testing.T) {
	t.Helper()
	conn, err := b.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.Eventually(t, func() bool { // PostgreSQL may still be told
		var open int
		err := b.plain.QueryRowContext(t.Context(),
			`SELECT count(*) FROM pg_locks WHERE relation = 'item'::regclass AND pid <> pg_backend_pid() AND mode = 'RowExclusiveLock'`).Scan(&open)
		return err == nil && open == 0
	}, 10*time.Second, time.Millisecond)
	run(t, conn, 1, insertItem, 1, 1, "b")
	require.Equal(t, 1, b.count(t, "item"))
}

// TestLostConnection: what was lost is told, and the pool makes another.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin(t)
	var pid int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	run(t, tx, 1, insertItem, 1, 1, "a")
	_, err := b.plain.ExecContext(t.Context(), "SELECT pg_terminate_backend($1, 10000)", pid)
	require.NoError(t, err)
	require.Error(t, tx.Commit())
	require.Zero(t, b.count(t, "item"))
	run(t, b.db, 1, insertItem, 1, 1, "a")
}

// TestSameValues compares what comes out of a transaction, and what was read ahead, with pgx's own driver.
func TestSameValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const query = `SELECT * FROM (VALUES
		(1, 9223372036854775807::bigint, (-2147483648)::int, 7::smallint, '\x00ff'::bytea, 'ä'::varchar(9), 'x'::text, '2026-01-02 03:04:05.678901'::timestamp,
			'2026-01-02 03:04:05.678901+02'::timestamptz, true, 1.5::float8, 0.25::real, 12.30::numeric, '2026-01-02'::date),
		(2, 0, 0, 0, '', '', '', '0001-01-01 00:00:00', '0001-01-01 00:00:00+00', false, 0, 0, 0, '0001-01-01'),
		(3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)
	) AS v WHERE column1 = $1`
	scan := func(rows *sql.Rows, err error) (names []string, values []any) {
		require.NoError(t, err)
		defer func() { require.NoError(t, rows.Close()) }()
		names, err = rows.Columns()
		require.NoError(t, err)
		require.True(t, rows.Next())
		values = make([]any, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		require.False(t, rows.Next())
		require.NoError(t, rows.Err())
		return names, values
	}
	for row := 1; row <= 3; row++ {
		wantNames, want := scan(b.plain.QueryContext(t.Context(), query, row)) //nolint:rowserrcheck // scan does
		tx := b.begin(t)
		names, got := scan(tx.QueryContext(t.Context(), query, row)) //nolint:rowserrcheck // scan does
		require.NoError(t, tx.Commit())
		require.Equal(t, wantNames, names)
		require.Equal(t, want, got)
	}
	tx := b.begin(t)
	_, err := tx.QueryContext(t.Context(), "SELECT '{1,2}'::int[]") //nolint:sqlclosecheck,rowserrcheck,gocritic // there are no rows
	require.ErrorContains(t, err, "not supported")
	require.NoError(t, tx.Rollback())
}

func TestReadsAhead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run(t, b.plain, 1, insertItem, 1, 1, "a")
	run(t, b.plain, 1, insertNote, 1)
	first := func(id int64) error { return b.db.QueryRowContext(t.Context(), readItem, id).Scan(new(string)) }
	second := func(id int64) error { return b.db.QueryRowContext(t.Context(), readNote, id).Scan(new(int)) }

	require.NoError(t, first(1))
	require.Equal(t, [][]string{{readItem, readNote}}, b.sent.Take())
	require.ErrorIs(t, second(2), sql.ErrNoRows)
	require.Equal(t, [][]string{{readNote}}, b.sent.Take(), "of other arguments nothing is known")
	require.NoError(t, second(1))
	require.Empty(t, b.sent.Take())
	require.NoError(t, second(1))
	require.Equal(t, [][]string{{readNote}}, b.sent.Take(), "once")

	require.NoError(t, first(1))
	run(t, b.plain, 1, removeNote, 1)
	require.NoError(t, first(1))
	require.Equal(t, [][]string{{readItem, readNote}, {readItem, readNote}}, b.sent.Take())
	require.ErrorIs(t, second(1), sql.ErrNoRows)
	require.Empty(t, b.sent.Take(), "the newer answer, which is that there is none")

	require.ErrorIs(t, first(2), sql.ErrNoRows)
	require.ErrorIs(t, second(2), sql.ErrNoRows)
	require.Equal(t, [][]string{{readItem, readNote}, {readNote}}, b.sent.Take(), "nothing is kept for what is not there")

	require.NoError(t, first(1))
	b.sent.Take()
	tx := b.begin(t)
	require.ErrorIs(t, tx.QueryRowContext(t.Context(), readNote, int64(1)).Scan(new(int)), sql.ErrNoRows)
	require.NoError(t, tx.QueryRowContext(t.Context(), readItem, int64(1)).Scan(new(string)))
	require.NoError(t, tx.Commit())
	require.Equal(t, [][]string{{begin, readNote}, {readItem}, {commit}}, b.sent.Take(), "transactions read for themselves")
}

// TestByDefaultOnlyBeginWaits is Options with nothing but a URL.
func TestByDefaultOnlyBeginWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db, err := pgpipeline.Open(pgpipeline.Options{URL: b.sent.URL()})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	run(t, tx, 1, insertNote, 1)
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, db.QueryRowContext(t.Context(), readItem, 1).Scan(new(string)), sql.ErrNoRows)
	require.Equal(t, [][]string{{begin, insertNote}, {commit}, {readItem}}, b.sent.Take())

	_, err = pgpipeline.Open(pgpipeline.Options{URL: "postgres://%"})
	require.ErrorContains(t, err, "database URL")
}

// TestDurations: they are their number of nanoseconds, as with database/sql, even where PostgreSQL is not asked first
// what it expects.
func TestDurations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db, err := pgpipeline.Open(pgpipeline.Options{URL: b.sent.URL() + "&default_query_exec_mode=simple_protocol"})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	minute := time.Minute
	run(t, db, 1, insertNote, minute)
	run(t, db, 1, removeNote, &minute)
}
