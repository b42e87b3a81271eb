package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/webhook"
)

// NewWriter returns a group commit with PostgreSQL's errors: op is what it does, limit the
// weight of the items in one flush.
func NewWriter[T interface{ Tenant() string }](op string, limit int, flush func(context.Context, []T) error) *groupcommit.Writer[T] {
	return groupcommit.New(groupcommit.Config[T]{
		Flush: flush, MaxWeight: limit, Tenant: T.Tenant, Weight: weightOf[T], Classify: remedyOf,
		Translate: func(err error) error { return translateWriter(op, err) },
	})
}

// weightOf is 1 for an item without a weight of its own.
func weightOf[T any](item T) int {
	if weighs, ok := any(item).(interface{ Weight() int }); ok {
		return weighs.Weight()
	}
	return 1
}

// translateWriter is translate for the errors of a group commit.
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

// remedyOf says what helps after an error of a flush.
func remedyOf(err error) groupcommit.Remedy {
	return groupcommit.Remedy{Repeat: isConflict(err), RepeatAlone: isLocked(err), Split: isBadData(err) || isHeldUp(err)}
}

// isConflict reports a deadlock (40P01), a serialisation failure (40001) or a row that
// was on its way into the DEFAULT partition while its day's own was attached (23514
// without the name of a constraint): the same statement may succeed when it is repeated.
func isConflict(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40P01" || pg.Code == "40001" || pg.Code == "23514" && pg.ConstraintName == "")
}

// IsTaken reports a key that is there already (23505).
func IsTaken(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505"
}

// isLocked reports a lock timeout (55P03).
func isLocked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
}

// isHeldUp reports a lock timeout or a statement timeout (57014): another transaction holds
// one of the rows, which says nothing about the others.
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
