package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// WithConn runs statements as c on one connection, each in a transaction of its own. It
// translates an error of fn unless that is a *webhook.Error.
func (c Caller) WithConn(ctx context.Context, op string, fn func(ctx context.Context, db Querier) error) error {
	return c.use(ctx, op, func(ctx context.Context, conn *pgxpool.Conn) error { return fn(ctx, c.on(conn)) })
}

// InTx runs fn in a transaction as c and commits it when fn returns nil. It translates an
// error of fn unless that is a *webhook.Error. After an error of the commit itself it is
// unknown whether the transaction was committed.
func (c Caller) InTx(ctx context.Context, op string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return c.transact(ctx, op, "", fn)
}

// InSnapshot is InTx for several reads that must see the same state.
func (c Caller) InSnapshot(ctx context.Context, op string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return c.transact(ctx, op, "read only, isolation level repeatable read", fn)
}

func (c Caller) transact(ctx context.Context, op, mode string, fn func(ctx context.Context, tx pgx.Tx) error) error {
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

// use gives fn a connection, for callTimeout at most.
func (c Caller) use(ctx context.Context, op string, fn func(ctx context.Context, conn *pgxpool.Conn) error) error {
	if err := c.check(); err != nil {
		return Translate(op, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := c.acquire(ctx)
	if err != nil {
		return Translate(op, err)
	}
	defer conn.Release()
	return Translate(op, fn(ctx, conn))
}

// QueryAll reads all rows of one statement, as WithConn does.
func QueryAll[T any](ctx context.Context, c Caller, op string, scan pgx.RowToFunc[T], sql string, args ...any) (found []T, err error) {
	err = c.WithConn(ctx, op, func(ctx context.Context, db Querier) error {
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

// acquire waits a bounded time for a connection: when the pool stays exhausted, callers get an
// error and retry later, and requests do not pile up.
func (c Caller) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	return c.pool.Acquire(ctx)
}

// ErrUnchanged rolls back the transaction of a change that changes nothing.
var ErrUnchanged = errors.New("nothing changed")
