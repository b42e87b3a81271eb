package replays

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// countTimeout bounds how long the creation of a replay counts its set.
	countTimeout = postgres.ListTimeout
	// idSlack is more than the difference between the time in an id and the creation of its row.
	idSlack = time.Second
)

// deliveriesTable is the table of all sets but those of events.
const deliveriesTable = "deliveries d"

// replaySet is the set of a replay: a table, bounds of its ids, and the conditions of a row.
type replaySet struct {
	table     string // with its alias d
	always    string // conditions that an index serves
	matched   string // the others; it may use $1, the tenant
	args      []any
	low, high [16]byte // ids are above low and below high
}

// sql selects columns of the set's rows, matched or not, and returns its arguments.
func (set replaySet) sql(columns string) (string, []any) {
	return `select ` + columns + ` from ` + set.table + ` where ` + set.always, set.args
}

// setOf returns the whole set of a replay. wanted are the event types of the endpoint, for a replay of
// events.
func setOf(r *webhook.Replay, wanted []string) replaySet {
	f := r.Filter
	until := r.CreatedAt
	if !f.Until.IsZero() && f.Until.Before(until) {
		until = f.Until
	}
	set := replaySet{high: postgres.IDsFrom(until.Add(idSlack))}
	if !f.Since.IsZero() {
		set.low = postgres.IDsFrom(f.Since.Add(-idSlack))
	}
	q := postgres.FilterQuery{Args: []any{r.TenantID, set.low, set.high}}
	set.always = "d.tenant_id = $1 and d.id > $2 and d.id < $3"
	set.matched = "true"
	add := func(condition string, arg any) {
		set.matched += " and " + strings.Replace(condition, "?", q.Arg(arg), 1)
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
		set.matched += " and d.payload_removed_at is null and " + eligible(&q, f, wanted)
		if f.EventType != "" {
			set.matched += " and " + q.TypePasses("d.type", f.EventType)
		}
		set.args = q.Args
		return set
	case webhook.ReplayDeadLetters:
		set.table = deliveriesTable
		set.always += " and d.state = " + postgres.DeadLettered
		add("d.completed_at <= ?", r.CreatedAt)
		if !f.EndedSince.IsZero() {
			add("d.completed_at >= ?", f.EndedSince)
		}
		if !f.EndedUntil.IsZero() {
			add("d.completed_at < ?", f.EndedUntil)
		}
	}
	if !f.EndpointID.IsZero() {
		add("d.endpoint_id = ?", f.EndpointID)
	}
	if f.EventType != "" {
		set.matched += " and " + q.TypePasses("d.event_type", f.EventType)
	}
	if f.Reason != "" {
		add("d.reason = ?", f.Reason)
	}
	if f.Status != 0 {
		add("d.last_status = ?", f.Status)
	}
	set.args = q.Args
	return set
}

// eligible returns the condition that an event d may be sent to the endpoint of a replay of events: the
// event named this endpoint, or it named none and has a type to which the endpoint subscribes, or any type
// if the replay includes unmatched events. An operational event needs a type to which the endpoint
// subscribes in any case, because it is about other endpoints.
func eligible(q *postgres.FilterQuery, f webhook.ReplayFilter, types []string) string {
	wanted := q.TypePasses("d.type", types...)
	named := "d.targeted and " + q.Arg(f.EndpointID) + " = any(d.endpoint_ids)"
	eligible := "(" + named + " or d.targeted is not true and " + wanted + ")"
	if f.IncludeUnmatched {
		eligible = "(" + named + " or d.targeted is not true)"
	}
	return "(" + eligible + " and (not " + postgres.IsOperational("d.type") + " or " + wanted + "))"
}

// sendable returns the set without deliveries of deleted endpoints, which are in its count: a batch passes over them as over those that do
// not match.
func (set replaySet) sendable() replaySet {
	if set.table == deliveriesTable {
		set.matched += " and exists (select from endpoints e where e.id = d.endpoint_id and e.tenant_id = $1 and e.deleted_at is null)"
	}
	return set
}

// after returns the part of the set after an id.
func (set replaySet) after(cursor [16]byte) replaySet {
	set.args = append([]any(nil), set.args...)
	set.args[1] = cursor
	return set
}

// countSet counts a replay's set; nil if that takes too long.
func countSet(ctx context.Context, tx pgx.Tx, set replaySet) (*int64, error) {
	total := new(int64)
	_, err := tx.Exec(ctx, `savepoint counting; set local statement_timeout = `+postgres.Milliseconds(countTimeout))
	if err != nil {
		return nil, err
	}
	sql, args := set.sql("count(*)")
	err = tx.QueryRow(ctx, sql+" and "+set.matched, args...).Scan(total)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == postgres.QueryCanceled {
		total, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `rollback to savepoint counting`) // this also resets the timeout
	return total, err
}
