package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	listsPerTenant = 4 // at a time
	listsOfPages   = 2 // at a time, for the pages of a tenant in the console, and for all operators
	listWait       = time.Second

	// ListTimeout bounds a list's statement.
	ListTimeout = 3 * time.Second

	// slowListAgain is the Retry-After of a list that took too long: the same list takes as long
	// again.
	slowListAgain = 10 * time.Second
)

// listLimit bounds the statements that may read all rows of a tenant: lists with a filter that
// few rows match, and counts. Together they get two thirds of the connections, because accepting events
// needs connections of the same pool for keys, limits and endpoints. Pages of the console have a small part of
// their own, so that they do not count against the limit of the tenant's own requests.
type listLimit struct {
	Wait, Timeout time.Duration
	Searched      int             // rows that a list with filters looks at
	Running       *fair.Semaphore // a half
	OfPages       *fair.Semaphore // a sixth
}

func newListLimit(conns int32) *listLimit {
	part := func(of, perTenant int) *fair.Semaphore { return fair.NewCapped(max(1, int(conns)/of), perTenant) }
	return &listLimit{
		Wait: listWait, Timeout: ListTimeout, Searched: maxSearched,
		Running: part(2, listsPerTenant), OfPages: part(6, listsOfPages), //nolint:mnd // see above
	}
}

type pagesKey struct{}

// ForPages returns the context of requests for a tenant's pages in the console; "" for operators.
func ForPages(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, pagesKey{}, tenant)
}

// acquire waits until the tenant may run a list. The caller calls release after the list.
// CodeRateLimited: the tenant runs too many; CodeUnavailable: all tenants together do.
func (l *listLimit) acquire(ctx context.Context, tenant string) (release func(), err error) {
	running, most, lists := l.Running, listsPerTenant, "lists of this tenant"
	if share, pages := ctx.Value(pagesKey{}).(string); pages {
		running, most, tenant, lists = l.OfPages, listsOfPages, share, "lists for pages like this one"
	}
	if running.Acquire(ctx, tenant, 1, l.Wait) {
		return func() { running.Release(tenant, 1) }, nil
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case running.Held(tenant) >= most:
		return nil, &webhook.Error{
			Code: webhook.CodeRateLimited, RetryAfter: retryAfter,
			Message: fmt.Sprintf("%d %s are already running; try again when one of them has been answered", most, lists),
		}
	}
	return nil, &webhook.Error{Code: webhook.CodeUnavailable, RetryAfter: retryAfter, Message: "too many lists are being read at the moment"}
}

// maxSearched is how many rows a list with filters that no index serves looks at: they take some 20 ms.
const maxSearched = 20_000

// ReadList is QueryAll for a list that may take long: it waits for its turn and has a shorter timeout.
// CodeRateLimited: the tenant has too many lists under way. CodeUnavailable: the list took too long.
func ReadList[T any](ctx context.Context, s *Core, c Caller, op string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var found []T
	err := s.lists.run(ctx, op, c, func(c Caller) (err error) {
		found, err = QueryAll(ctx, c, op, scan, sql, args...)
		return err
	})
	return found, err
}

// InList runs the statements of a list in one turn, as ReadList runs one.
func InList(ctx context.Context, s *Core, c Caller, op string, read func(Caller) error) error {
	return s.lists.run(ctx, op, c, read)
}

// Bound selects the ids of rows that a list with filters may look at, newest first.
type Bound struct {
	SQL  string
	Args []any
}

// ReadFiltered is ReadList for a list with filters that no index serves. It looks at the newest maxSearched rows of each bound: list selects
// what passes the filters from an id on. If there are more rows and the page is not full, searched is that id: the list goes on after it.
func ReadFiltered[T any](ctx context.Context, s *Core, c Caller, op string, scan pgx.RowToFunc[T], p webhook.Page,
	list func(from [16]byte) (string, []any), bounds ...Bound,
) (found []T, searched [16]byte, err error) {
	err = s.lists.run(ctx, op, c, func(c Caller) error {
		for _, b := range bounds {
			last, err := QueryAll(ctx, c, op, pgx.RowTo[[16]byte], fmt.Sprintf("%s offset %d limit 1", b.SQL, s.lists.Searched-1), b.Args...)
			if err != nil {
				return err
			}
			if len(last) > 0 && bytes.Compare(last[0][:], searched[:]) > 0 {
				searched = last[0]
			}
		}
		sql, args := list(searched)
		found, err = QueryAll(ctx, c, op, scan, sql, args...)
		return err
	})
	if len(found) == p.Limit {
		searched = [16]byte{}
	}
	return found, searched, err
}

// run runs a list as its caller with a shorter timeout, when it is its turn.
func (l *listLimit) run(ctx context.Context, op string, c Caller, read func(Caller) error) error {
	release, err := l.acquire(ctx, c.value)
	if err != nil {
		return Translate(op, err)
	}
	defer release()
	c.timeout = l.Timeout
	err = read(c.ByIndex())
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == QueryCanceled {
		return &webhook.Error{
			Code: webhook.CodeUnavailable, RetryAfter: slowListAgain, Err: err,
			Message: fmt.Sprintf("the list took longer than %s; give since, or a later since, so that fewer rows are read", l.Timeout),
		}
	}
	return err
}
