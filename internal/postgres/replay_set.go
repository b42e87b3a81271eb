package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/webhook"
)

// countTimeout is how long the creation of a replay counts its set.
const countTimeout = listTimeout

// replaySet is the set of a replay: a table, the bounds of its ids, and what has to
// be true of a row.
type replaySet struct {
	table     string // with its alias d
	always    string // conditions that an index serves
	matched   string // the others
	args      []any
	low, high [16]byte // above low, below high
}

// sql selects columns of the set's rows, of which those that match are still to be
// told apart, and its arguments.
func (set replaySet) sql(columns string) (string, []any) {
	return `select ` + columns + ` from ` + set.table + ` where ` + set.always, set.args
}

// setOf is the set of a replay from its beginning.
func setOf(r *webhook.Replay) replaySet {
	f := r.Filter
	until := r.CreatedAt
	if !f.Until.IsZero() && f.Until.Before(until) {
		until = f.Until
	}
	set := replaySet{high: idsFrom(until.Add(time.Millisecond))}
	if !f.Since.IsZero() {
		set.low = idsFrom(f.Since)
	}
	q := filterQuery{args: []any{r.TenantID, set.low, set.high}}
	set.always = "d.tenant_id = $1 and d.id > $2 and d.id < $3"
	set.matched = "true"
	add := func(condition string, arg any) {
		set.matched += " and " + strings.Replace(condition, "?", q.arg(arg), 1)
	}
	if !f.Since.IsZero() {
		add("d.created_at >= ?", f.Since)
	}
	if !f.Until.IsZero() {
		add("d.created_at < ?", f.Until)
	}
	add("d.created_at <= ?", r.CreatedAt)
	switch r.Source {
	case webhook.ReplayEvents:
		set.table = "events d"
		if f.EventType != "" {
			add("d.type = ?", f.EventType)
		}
		set.args = q.args
		return set
	case webhook.ReplayDeadLetters:
		set.table = "deliveries d"
		set.always += " and d.state = 4"
		add("d.completed_at <= ?", r.CreatedAt)
	case webhook.ReplayHeld:
		set.table = "deliveries d"
		set.always += " and d.state = 2"
	}
	if !f.EndpointID.IsZero() {
		add("d.endpoint_id = ?", f.EndpointID)
	}
	if f.EventType != "" {
		add("d.event_type = ?", f.EventType)
	}
	if f.Reason != "" {
		add("d.reason = ?", f.Reason)
	}
	if f.Status != 0 {
		add("d.last_status = ?", f.Status)
	}
	set.args = q.args
	return set
}

// after is the set from an id on.
func (set replaySet) after(cursor [16]byte) replaySet {
	set.args = append([]any(nil), set.args...)
	set.args[1] = cursor
	return set
}

// countSet is how many a replay's set has, nil when they cannot be counted in time.
func countSet(ctx context.Context, tx pgx.Tx, set replaySet) (*int64, error) {
	total := new(int64)
	_, err := tx.Exec(ctx, `savepoint counting; set local statement_timeout = `+milliseconds(countTimeout))
	if err != nil {
		return nil, err
	}
	sql, args := set.sql("count(*)")
	err = tx.QueryRow(ctx, sql+" and "+set.matched, args...).Scan(total)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == queryCanceled {
		total, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `rollback to savepoint counting`) // and with it the timeout
	return total, err
}
