// Package pgpipeline is a database/sql driver for PostgreSQL on top of pgx that needs fewer round trips and fewer
// flushes to disk, for programs that were written against database/sql and cannot use pgx's batches themselves.
//
// In a transaction BEGIN is not sent at once, and neither is a statement that the caller allows to wait and whose answer
// is known beforehand. They go along with the next one that has to be answered, or with COMMIT, in one round trip
// (PostgreSQL's pipeline mode). Known beforehand is the answer to
//
//   - an INSERT of VALUES that either stores them all or fails: it affects as many rows as it has;
//   - an UPDATE of the rows that the same transaction has locked with SELECT … FOR UPDATE and the same WHERE.
//
// Everything else is sent at once, with what waits before it, in order. What changes for the caller is when an error is
// seen: one of a statement that waited is returned by the call that sent it, at the latest by Commit, and nothing of the
// transaction is stored. A number of rows that turns out to be another one, which a trigger could bring about, is an
// error too; if Commit returns it, then the transaction may be stored, as when the connection is lost.
//
// Queries that always follow one another can be read in one round trip, see Options. Everything else outside of
// transactions, and transactions with options, are pgx's own driver for database/sql.
package pgpipeline

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Options say how to connect.
type Options struct {
	// URL is the database's, as pgx reads it. Required.
	URL string

	// Later reports whether it does not matter by which call an error of a statement in a transaction is returned. It
	// matters where the caller makes something of a certain error, such as a key that is there already. Nil means that
	// it always does: then only BEGIN waits.
	Later func(query string) bool

	// Lazy reports whether a statement that writes may be lost in a crash as long as nothing committed after it has
	// reached the disk. A transaction of such statements only, or one outside of any, is committed without waiting for
	// the disk (synchronous_commit=off). There is one write-ahead log for all databases of a PostgreSQL, and it is
	// flushed in order: whoever has seen a later, usual commit succeed has this one too. Nil means none.
	Lazy func(query string) bool

	// Ahead are queries that follow a query, with the same arguments, outside of transactions. They are sent along with
	// it, and their answers kept for a second, until they are asked for on any connection. So what they answer is as old
	// as the answer to the first: nobody may rely on one of them being newer.
	Ahead map[string][]string
}

// Open returns a pool of such connections. None is made yet.
func Open(o Options) (*sql.DB, error) {
	config, err := pgx.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	never := func(string) bool { return false }
	if o.Later == nil {
		o.Later = never
	}
	if o.Lazy == nil {
		o.Lazy = never
	}
	return sql.OpenDB(&connector{
		Connector: stdlib.GetConnector(*config, stdlib.OptionAfterConnect(durations)), options: o,
		ahead: newAhead(o.Ahead), shapes: &shapes{byText: map[string]shape{}},
	}), nil
}

type connector struct {
	driver.Connector

	options Options
	ahead   *ahead
	shapes  *shapes
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // database/sql and its callers look for pgx's errors
	}
	inner, ok := base.(*stdlib.Conn)
	if !ok {
		return nil, fmt.Errorf("pgx made a %T where a *stdlib.Conn is expected", base)
	}
	return &conn{Conn: inner, later: c.options.Later, lazy: c.options.Lazy, ahead: c.ahead, shapes: c.shapes}, nil
}

// durations makes a connection send a time.Duration as its number of nanoseconds instead of as an interval, as
// database/sql does.
func durations(_ context.Context, conn *pgx.Conn) error {
	conn.TypeMap().RegisterDefaultPgType(time.Duration(0), "int8")
	conn.TypeMap().RegisterDefaultPgType((*time.Duration)(nil), "int8")
	return nil
}
