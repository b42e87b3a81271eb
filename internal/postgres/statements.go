package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// withConn makes statements as c, each by itself, on one connection. An error of
// fn that is not the domain's is translated.
func (c caller) withConn(ctx context.Context, op string, fn func(ctx context.Context, db querier) error) error {
	return c.use(ctx, op, func(ctx context.Context, conn *pgxpool.Conn) error { return fn(ctx, c.on(conn)) })
}

// inTx runs fn in a transaction as c and commits it when fn returns nil. An error
// of fn that is not the domain's is translated. After an error of the commit itself it is
// not known whether it was made.
func (c caller) inTx(ctx context.Context, op string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return c.transact(ctx, op, "", fn)
}

// inSnapshot is inTx for reads of one moment.
func (c caller) inSnapshot(ctx context.Context, op string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return c.transact(ctx, op, "read only, isolation level repeatable read", fn)
}

func (c caller) transact(ctx context.Context, op, mode string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return c.use(ctx, op, func(ctx context.Context, conn *pgxpool.Conn) error {
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: c.begin(mode)})
		if err != nil {
			return err
		}
		// Also when fn panics; after a commit it does nothing.
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

// use gives fn a connection, in the bounds of one call.
func (c caller) use(ctx context.Context, op string, fn func(ctx context.Context, conn *pgxpool.Conn) error) error {
	if err := c.check(); err != nil {
		return translate(op, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := c.acquire(ctx)
	if err != nil {
		return translate(op, err)
	}
	defer conn.Release()
	return translate(op, fn(ctx, conn))
}

// queryAll reads all rows of one statement, in the bounds of withConn.
func queryAll[T any](ctx context.Context, c caller, op string, scan pgx.RowToFunc[T], sql string, args ...any) (found []T, err error) {
	err = c.withConn(ctx, op, func(ctx context.Context, db querier) error {
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, scan)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// acquire waits a bounded time for a connection, so that an exhausted pool turns
// into "come back later" and not into a pile of waiting requests.
func (c caller) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	return c.pool.Acquire(ctx)
}
