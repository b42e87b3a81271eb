package pgpipeline

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
)

// tx is a transaction. It is begun with the first statement that is sent.
type tx struct {
	conn    *conn
	ctx     context.Context //nolint:containedctx // driver.Tx has none to give to Commit; database/sql's own drivers do the same
	waiting []statement     // not sent yet, BEGIN first
	holder  *Along          // takes what waits instead of it being committed, where there is one
	along   *Along          // what goes along
	queries []Query         // of that, to be sent along with the first statement
	early   []early         // what they were answered
	sent    bool            // so BEGIN has been too
	writes  bool            // something is to be stored
	durable bool            // and of that, something must not be lost
	locked  []locked
	failed  error // PostgreSQL takes nothing more after an error, and so do we
	over    bool
}

// locked are the rows that a SELECT … FOR UPDATE returned.
type locked struct {
	where selection
	args  []any
	rows  int64
}

// early is the answer to a query that was sent before it was asked for.
type early struct {
	Query

	answer
}

// beginTx begins a transaction with what goes along.
func beginTx(ctx context.Context, c *conn) *tx {
	t := &tx{conn: c, ctx: ctx, holder: holder(ctx), along: taken(ctx), waiting: []statement{{query: begin, rows: 0}}}
	t.queries = t.along.Queries
	for _, s := range t.along.held {
		t.waiting = append(t.waiting, s)
		t.write(s.query)
	}
	return t
}

func (t *tx) exec(ctx context.Context, s statement) (driver.Result, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	t.write(s.query)
	shape := t.conn.shapes.of(s.query)
	t.forget(shape)
	if s.rows = t.known(shape, s.args); s.rows != unknown && t.conn.later(s.query) {
		t.waiting = append(t.waiting, s)
		if shape.kind == insert { // which may have added rows to those that are locked
			t.locked = slices.DeleteFunc(t.locked, func(l locked) bool { return l.where.table == shape.table })
		}
		return driver.RowsAffected(s.rows), nil
	}
	if s.rows == unknown {
		t.locked = nil // it may have deleted or changed them
	}
	got, err := t.flush(ctx, s)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(got.tag.RowsAffected()), nil
}

func (t *tx) query(ctx context.Context, s statement) (driver.Rows, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	shape := t.conn.shapes.of(s.query)
	if shape.kind == other {
		t.writes, t.durable, t.locked, t.early = true, true, nil, nil // it may do anything: INSERT … RETURNING, a function
	}
	got, there := t.takeEarly(s)
	if !there {
		var err error
		if got, err = t.flush(ctx, s); err != nil {
			return nil, err
		}
	}
	if shape.kind == lock && len(got.values) > 0 {
		t.locked = append(t.locked, locked{where: shape.selection, args: s.args, rows: int64(len(got.values))})
	}
	return &rows{answer: got}, nil
}

// write notes that a statement writes.
func (t *tx) write(query string) {
	t.writes = true
	t.durable = t.durable || !t.conn.lazy(query)
}

// forget drops the early answers that a statement may have changed.
func (t *tx) forget(s shape) {
	t.early = slices.DeleteFunc(t.early, func(e early) bool {
		of := t.conn.shapes.of(e.Text)
		return s.kind == other || of.kind != lock || of.table == s.table
	})
}

func (t *tx) takeEarly(s statement) (answer, bool) {
	for i, e := range t.early {
		if e.Text == s.query && reflect.DeepEqual(e.Args, s.args) {
			t.early = slices.Delete(t.early, i, i+1)
			return e.answer, true
		}
	}
	return answer{}, false
}

// known is how many rows a statement affects, where that is certain.
func (t *tx) known(s shape, args []any) int64 {
	switch s.kind {
	case insert:
		return s.rows
	case update:
		for _, l := range t.locked {
			if s.same(args, l.where, l.args) {
				return l.rows
			}
		}
	case lock, read, other:
	}
	return unknown
}

// flush sends what waits and, after it, the statement, and the first time what goes along; and returns the answer to the
// statement.
func (t *tx) flush(ctx context.Context, s statement) (answer, error) {
	all := t.takeWaiting(s)
	own := len(all)
	for _, q := range t.queries {
		all = append(all, statement{query: q.Text, args: q.Args, rows: unknown})
	}
	answers, err := t.conn.send(ctx, all)
	if err != nil {
		t.failed = err
		return answer{}, err
	}
	for i, q := range t.queries {
		t.early = append(t.early, early{q, answers[own+i]})
	}
	t.queries = nil
	return answers[own-1], nil
}

// takeWaiting is what waits, and after it the statement.
func (t *tx) takeWaiting(s statement) []statement {
	t.waiting, t.sent = append(t.waiting, s), true
	all := t.waiting
	t.waiting = nil
	return all
}

func (t *tx) check() error {
	if t.over {
		return sql.ErrTxDone
	}
	return t.failed
}

// Commit implements driver.Tx. After an error nothing is stored, unless the connection was lost while PostgreSQL
// committed: as always, that cannot be known.
func (t *tx) Commit() error {
	if t.over {
		return sql.ErrTxDone
	}
	defer t.end()
	if t.failed != nil {
		return t.conn.abandonAfter(t.failed)
	}
	if !t.sent && t.holder != nil {
		t.holder.held = append(t.holder.held, t.waiting[1:]...)
		return nil
	}
	if !t.sent && len(t.waiting) == 1 {
		return nil // nothing but BEGIN
	}
	if t.writes && !t.durable {
		t.waiting = append(t.waiting, statement{query: dontWait})
	}
	answers, err := t.conn.send(t.ctx, t.takeWaiting(statement{query: commit}))
	if err != nil {
		return t.conn.abandonAfter(err)
	}
	if tag := answers[len(answers)-1].tag.String(); tag != "COMMIT" {
		return fmt.Errorf("PostgreSQL ended the transaction with %s", tag)
	}
	t.along.stored = true
	return nil
}

// Rollback implements driver.Tx.
func (t *tx) Rollback() error {
	if t.over {
		return sql.ErrTxDone
	}
	defer t.end()
	if !t.sent {
		return nil
	}
	return t.conn.abandon()
}

func (t *tx) end() {
	t.over, t.waiting, t.locked, t.queries, t.early = true, nil, nil, nil, nil
	t.conn.tx = nil
}
