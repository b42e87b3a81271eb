package pgpipeline

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	begin    = "begin"
	commit   = "commit"
	rollback = "rollback"
	dontWait = "set local synchronous_commit to off"

	rollbackPatience = 5 * time.Second
)

// conn is one connection. Like every driver.Conn it is used by one goroutine at a time.
type conn struct {
	*stdlib.Conn // what is not done here

	later, lazy func(query string) bool // see Options
	ahead       *ahead
	shapes      *shapes
	tx          *tx // the one that is open, nil outside of any
}

var (
	_ driver.Conn               = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
)

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

// BeginTx implements driver.ConnBeginTx. With options it is pgx's.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o != (driver.TxOptions{}) {
		return c.Conn.BeginTx(ctx, o) //nolint:wrapcheck // as in all of this file: callers look for pgx's errors
	}
	if c.Conn.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	c.tx = beginTx(ctx, c)
	return c.tx, nil
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) { return prepared{c, query}, nil }

// PrepareContext implements driver.ConnPrepareContext. Every statement is prepared when it is first used, and kept.
func (c *conn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return prepared{c, query}, nil
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Result, error) {
	s := statement{query: query, args: values(named), rows: unknown}
	switch {
	case c.tx != nil:
		return c.tx.exec(ctx, s)
	case holder(ctx) != nil && c.idle():
		return c.execHeld(ctx, s)
	case c.lazy(query) && c.idle():
		return c.execLazily(ctx, s)
	default:
		return c.Conn.ExecContext(ctx, query, named) //nolint:wrapcheck // see above
	}
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Rows, error) {
	args := values(named)
	if c.tx != nil {
		return c.tx.query(ctx, statement{query: query, args: args, rows: unknown})
	}
	if c.idle() {
		if got, ok := c.ahead.take(query, args); ok {
			return &rows{answer: got}, nil
		}
		if follow := c.ahead.follows[query]; follow != nil {
			return c.queryAhead(ctx, query, follow, args)
		}
	}
	return c.Conn.QueryContext(ctx, query, named) //nolint:wrapcheck // see above
}

// queryAhead runs a query and those that will follow it, in one round trip.
func (c *conn) queryAhead(ctx context.Context, query string, follow []string, args []any) (driver.Rows, error) {
	all := []statement{{query: query, args: args, rows: unknown}}
	for _, q := range follow {
		all = append(all, statement{query: q, args: args, rows: unknown})
	}
	number := c.ahead.asked.Add(1)
	answers, err := c.send(ctx, all)
	if err != nil {
		return nil, unsent(err)
	}
	if len(answers[0].values) > 0 { // else nobody asks for more
		c.ahead.keep(number, follow, args, answers[1:])
	}
	return &rows{answer: answers[0]}, nil
}

// execHeld holds a statement by holding a transaction that has nothing else in it.
func (c *conn) execHeld(ctx context.Context, s statement) (driver.Result, error) {
	t := beginTx(ctx, c)
	result, err := t.exec(ctx, s)
	if err != nil {
		return nil, unsent(c.abandonAfter(err)) //nolint:contextcheck // that of a call that failed may be over
	}
	return result, t.Commit() //nolint:contextcheck // driver.Tx takes none
}

// execLazily runs a statement in a transaction of its own that does not wait for the disk, in one round trip.
func (c *conn) execLazily(ctx context.Context, s statement) (driver.Result, error) {
	all := []statement{{query: begin}, {query: dontWait}, s, {query: commit}}
	answers, err := c.send(ctx, all)
	if err != nil {
		return nil, unsent(c.abandonAfter(err)) //nolint:contextcheck // that of a call that failed may be over
	}
	return driver.RowsAffected(answers[2].tag.RowsAffected()), nil
}

// statement is one that is to be sent.
type statement struct {
	query string
	args  []any
	rows  int64 // how many it was said to affect, or unknown
}

const unknown = -1

// answer is what came back for one.
type answer struct {
	tag     pgconn.CommandTag
	columns []string
	values  [][]driver.Value
}

// send runs statements in one round trip and returns their answers, in order. After the first that fails none is run.
func (c *conn) send(ctx context.Context, all []statement) (_ []answer, err error) {
	pg := c.Conn.Conn()
	if pg.IsClosed() {
		return nil, driver.ErrBadConn
	}
	batch := &pgx.Batch{}
	for _, s := range all {
		batch.Queue(s.query, s.args...)
	}
	results := pg.SendBatch(ctx, batch)
	defer func() {
		if closing := results.Close(); err == nil {
			err = plain(closing)
		}
	}()
	answers := make([]answer, len(all))
	for i, s := range all {
		if answers[i], err = receive(results); err != nil {
			return nil, plain(err)
		}
		if affected := answers[i].tag.RowsAffected(); s.rows != unknown && affected != s.rows {
			return nil, fmt.Errorf("a statement affected %d rows, where %d were certain: %s", affected, s.rows, s.query)
		}
	}
	return answers, nil
}

// receive reads the answer to one statement.
func receive(results pgx.BatchResults) (answer, error) {
	rows, err := results.Query()
	if err != nil {
		return answer{}, err //nolint:wrapcheck // see above
	}
	defer rows.Close()
	var a answer
	for _, field := range rows.FieldDescriptions() {
		a.columns = append(a.columns, field.Name)
	}
	for rows.Next() {
		row, err := rows.Values()
		if err != nil {
			return answer{}, err //nolint:wrapcheck // see above
		}
		out := make([]driver.Value, len(row))
		for i, v := range row {
			if out[i], err = value(v); err != nil {
				return answer{}, fmt.Errorf("column %s: %w", a.columns[i], err)
			}
		}
		a.values = append(a.values, out)
	}
	rows.Close()
	a.tag = rows.CommandTag()
	return a, rows.Err()
}

// abandon leaves a transaction that cannot be committed. It is over already where the connection is lost, or where BEGIN
// was not reached.
func (c *conn) abandon() error {
	pg := c.Conn.Conn()
	if pg.IsClosed() || pg.PgConn().TxStatus() == 'I' {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackPatience)
	defer cancel()
	_, err := pg.Exec(ctx, rollback)
	return plain(err)
}

// abandonAfter is abandon after an error, which stays what it is unless there is another.
func (c *conn) abandonAfter(err error) error {
	if abandoned := c.abandon(); abandoned != nil {
		return errors.Join(err, abandoned)
	}
	return err
}

// idle reports whether the connection is outside of any transaction, those that pgx has begun included.
func (c *conn) idle() bool { return c.Conn.Conn().PgConn().TxStatus() == 'I' }

// unsent is the error by which database/sql takes another connection and tries again, where nothing was sent.
func unsent(err error) error {
	if pgconn.SafeToRetry(err) {
		return driver.ErrBadConn
	}
	return err
}

// plain is the error without what pgx put around PostgreSQL's own: callers of database/sql look for that by its type.
func plain(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr
	}
	return err
}

// values are the arguments as pgx takes them.
func values(named []driver.NamedValue) []any {
	all := make([]any, len(named))
	for i, n := range named {
		all[i] = n.Value
	}
	return all
}

// prepared is a statement by its text.
type prepared struct {
	conn  *conn
	query string
}

var (
	_ driver.StmtExecContext  = prepared{}
	_ driver.StmtQueryContext = prepared{}
)

var errNoContext = errors.New("pgpipeline: a statement needs a context")

// Close implements driver.Stmt. What pgx has prepared stays for the next time.
func (prepared) Close() error { return nil }

// NumInput implements driver.Stmt: PostgreSQL checks it.
func (prepared) NumInput() int { return -1 }

// Exec implements driver.Stmt. database/sql uses ExecContext.
func (prepared) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }

// Query implements driver.Stmt. database/sql uses QueryContext.
func (prepared) Query([]driver.Value) (driver.Rows, error) { return nil, errNoContext }

// ExecContext implements driver.StmtExecContext.
func (p prepared) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return p.conn.ExecContext(ctx, p.query, args)
}

// QueryContext implements driver.StmtQueryContext.
func (p prepared) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return p.conn.QueryContext(ctx, p.query, args)
}
