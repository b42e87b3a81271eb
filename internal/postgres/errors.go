package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/everpost/everpost/internal/webhook"
)

// retryAfter is the Retry-After while the database is away: it usually is back within a
// second, or away for long.
const retryAfter = time.Second

// QueryCanceled is the SQLSTATE of a statement that timed out, or that an administrator
// cancelled.
const QueryCanceled = "57014"

// Translate turns an error of the driver into a *webhook.Error; op names the operation.
// It is the only place that maps SQLSTATEs to codes for callers.
//
//	no connection, too many, shutting down, read-only, timeout  → CodeUnavailable
//	disk full, I/O error, internal error of PostgreSQL          → CodeUnavailable
//	deadlock, serialisation failure (retry)                     → CodeUnavailable
//	unique, foreign key, exclusion violated                     → CodeConflict
//	text that PostgreSQL cannot hold (NUL, bad UTF-8)           → CodeInvalid
//	anything else                                               → CodeInternal
//
// A *webhook.Error keeps its code, and op is added. A cancelled context stays one, too:
// errors.Is(err, context.Canceled) holds, and no caller is left to retry.
func Translate(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*webhook.Error](err); ok || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", op, err)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return translateState(op, pg.Code, err)
	}
	if isConnectionLoss(err) {
		return unavailable(op, err)
	}
	return &webhook.Error{Code: webhook.CodeInternal, Message: "the database could not do this", Err: fmt.Errorf("%s: %w", op, err)}
}

func translateState(op, state string, err error) error {
	code, message := webhook.CodeInternal, "the database could not do this"
	switch state {
	case "23505", "23503", "23P01":
		code, message = webhook.CodeConflict, "another change was made at the same time"
	case "22021", "22P05":
		code, message = webhook.CodeInvalid, "text with a NUL or invalid UTF-8 cannot be stored"
	case "57P01", "57P02", "57P03", "57P05", // shutdown, crash, starting up, idle session
		QueryCanceled,
		"XX000",          // internal error: also a full disk; data and indexes that are corrupt are XX001 and XX002
		"55P03",          // lock timeout
		ReadOnly,         // it has become a standby
		"25P03", "25P04", // idle in transaction, transaction timeout
		"40001", "40P01", "40003":
		return unavailable(op, err)
	default:
		if _, connecting := errors.AsType[*pgconn.ConnectError](err); connecting {
			return unavailable(op, err) // also a rejected password: it may be being rotated
		}
		switch state[:min(2, len(state))] {
		case "08", "53", "58": // connection, resources (too many connections, disk full), system
			return unavailable(op, err)
		}
	}
	return &webhook.Error{Code: code, Message: message, Err: fmt.Errorf("%s: %w", op, err)}
}

// isConnectionLoss reports an error of the connection and not of a statement. The
// statement may or may not have been executed.
func isConnectionLoss(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, lost := range []error{
		context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, puddle.ErrClosedPool, pgconn.ErrConnClosed,
	} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return pgconn.SafeToRetry(err) || pgconn.Timeout(err)
}

func unavailable(op string, err error) error {
	return &webhook.Error{
		Code: webhook.CodeUnavailable, Message: "the database is not reachable at the moment",
		RetryAfter: retryAfter, Err: fmt.Errorf("%s: %w", op, err),
	}
}
