package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	poolerTimeout  = 15 * time.Second // for the whole check
	poolerPatience = 2 * time.Second  // for one statement of it, which takes no time
	poolerBesides  = 4                // transactions that are held
)

// ErrPooled is the error for a database that is reached through a pooler in transaction or statement mode. Roles,
// locks and notifications belong to a session, so that statements would run with the rights of others.
var ErrPooled = errors.New("EVERPOST_DATABASE_URL leads to a pooler in transaction mode, which gives each transaction another session: " +
	"use session mode or a direct connection")

// CheckSessions returns ErrPooled unless a connection is a session of PostgreSQL of its own. It opens up to five
// connections besides those of the pools.
func (s *Core) CheckSessions(ctx context.Context) error {
	return checkSessions(ctx, s.login.Config().ConnConfig)
}

// checkSessions takes a lock in a session while others are in transactions: a pooler then has to give the next
// transaction to another session, which lacks the lock, or lets it wait.
func checkSessions(ctx context.Context, config *pgx.ConnConfig) error {
	const op = "check the sessions of the database"
	ctx, cancel := context.WithTimeout(ctx, poolerTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return Translate(op, err)
	}
	defer closeConn(ctx, conn)
	// Poolers lose prepared statements: nothing is prepared here.
	key := rand.Int64() // that others do not use
	var session uint32
	err = conn.QueryRow(ctx, `select pg_backend_pid() from pg_try_advisory_lock($1)`, pgx.QueryExecModeSimpleProtocol, key).Scan(&session)
	if err != nil {
		return Translate(op, err)
	}
	var held []*pgx.Conn
	defer func() {
		for _, besides := range held {
			closeConn(ctx, besides)
		}
	}()
	for range poolerBesides {
		besides, its, err := holdTransaction(ctx, config)
		if besides != nil {
			held = append(held, besides)
		}
		if err != nil {
			return Translate(op, err)
		}
		if its == session {
			return ErrPooled
		}
		if its == 0 {
			break
		}
	}
	for range 2 {
		var same bool
		err := within(ctx, poolerPatience, func(ctx context.Context) error {
			return conn.QueryRow(ctx, `
				select pg_backend_pid() = $1 and exists (
					select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and objsubid = 1
						and (classid::bigint << 32) | objid::bigint = $2)`, pgx.QueryExecModeSimpleProtocol, int64(session), key).Scan(&same)
		})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return Translate(op, err)
		}
		if err != nil || !same {
			return ErrPooled
		}
	}
	return nil
}

// holdTransaction begins a transaction on a connection of its own, and returns its session; 0 if the server has no
// connection left for it.
func holdTransaction(ctx context.Context, config *pgx.ConnConfig) (conn *pgx.Conn, session uint32, err error) {
	err = within(ctx, poolerPatience, func(ctx context.Context) (err error) {
		if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			return err
		}
		if _, err = conn.Exec(ctx, `begin`, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("begin a transaction: %w", err)
		}
		return conn.QueryRow(ctx, `select pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&session)
	})
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return conn, session, nil
	case answered && conn != nil && pg.Code[:2] == "08": // PgBouncer in statement mode refuses to begin
		return conn, 0, ErrPooled
	case answered && pg.Code[:2] != "53":
		return conn, 0, err
	}
	return conn, 0, nil
}
