package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/webhook"
)

// NewWriter returns a group commit that knows PostgreSQL's errors. op names it in errors, limit
// is the greatest weight of one flush. The observer may be nil.
func NewWriter[T interface{ Tenant() string }](
	op string, limit int, flush func(context.Context, []T) error, observer groupcommit.Observer,
) *groupcommit.Writer[T] {
	return NewRowWriter(op, limit, flush, nil, observer)
}

// NewRowWriter is NewWriter for items that change rows, which others may have locked: apart says how these are written.
func NewRowWriter[T interface{ Tenant() string }](
	op string, limit int, flush func(context.Context, []T) error, apart *groupcommit.Apart[T], observer groupcommit.Observer,
) *groupcommit.Writer[T] {
	return groupcommit.New(groupcommit.Config[T]{
		Apart: apart, Flush: flush, MaxWeight: limit, Tenant: T.Tenant, Weight: weightOf[T], Classify: remedyOf, Observer: observer,
		Translate: func(err error) error { return translateWriter(op, err) },
	})
}

// FlushObserver sees the flushes of all group commits of a DB.
type FlushObserver interface {
	Flushed(writer string, items int, took time.Duration, err error)
}

// writerObserver is the observer of one group commit.
type writerObserver struct {
	all    FlushObserver
	writer string
}

func (o writerObserver) Flushed(items int, took time.Duration, err error) {
	o.all.Flushed(o.writer, items, took, err)
}

// ObserverOf returns the observer of a group commit; nil if nobody observes.
func (s *Core) ObserverOf(writer string) groupcommit.Observer {
	if s.flushes == nil {
		return nil
	}
	return writerObserver{s.flushes, writer}
}

// weightOf is 1 for an item without a weight of its own.
func weightOf[T any](item T) int {
	if weighs, ok := any(item).(interface{ Weight() int }); ok {
		return weighs.Weight()
	}
	return 1
}

// translateWriter is Translate for the errors of a group commit.
func translateWriter(op string, err error) error {
	switch {
	case errors.Is(err, groupcommit.ErrStopped):
		return errClosed()
	case errors.Is(err, groupcommit.ErrFull):
		return &webhook.Error{
			Code: webhook.CodeUnavailable, Message: "more is to be written than the database takes; try again shortly", RetryAfter: time.Second,
		}
	}
	return Translate(op, err)
}

func errClosed() error {
	return &webhook.Error{Code: webhook.CodeUnavailable, Message: "Everpost is stopping", RetryAfter: time.Second}
}

// remedyOf returns what to do after an error of a flush.
func remedyOf(err error) groupcommit.Remedy {
	return groupcommit.Remedy{Repeat: IsConflict(err), Locked: isLocked(err), Split: isBadData(err) || isHeldUp(err)}
}

// IsConflict reports a deadlock (40P01), a serialisation failure (40001) or a row that was
// inserted into the DEFAULT partition while the partition of its day was attached (23514
// without the name of a constraint). The same statement may succeed when it is repeated.
func IsConflict(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40P01" || pg.Code == "40001" || pg.Code == "23514" && pg.ConstraintName == "")
}

// isLocked reports a lock timeout (55P03).
func isLocked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
}

// isHeldUp reports a lock timeout or a statement timeout (57014): another transaction has
// locked one of the rows, and the others may be free.
func isHeldUp(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (isLocked(err) || pg.Code == "57014")
}

// isBadData reports class 22 (data exception) or 23 (integrity violation): an
// error of the values, not of the database.
func isBadData(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && len(pg.Code) == 5 && (pg.Code[:2] == "22" || pg.Code[:2] == "23")
}
