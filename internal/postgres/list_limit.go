package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	listsPerTenant = 4 // at a time
	listsOfPages   = 2 // at a time, for those who look at a tenant's pages, and for all operators
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
// their own, so that those who look at them take nothing of what the tenant's own requests may do.
type listLimit struct {
	Wait, Timeout time.Duration
	Running       *fair.Semaphore // a half
	OfPages       *fair.Semaphore // a sixth
}

func newListLimit(conns int32) *listLimit {
	part := func(of, perTenant int) *fair.Semaphore { return fair.NewCapped(max(1, int(conns)/of), perTenant) }
	return &listLimit{Wait: listWait, Timeout: ListTimeout, Running: part(2, listsPerTenant), OfPages: part(6, listsOfPages)} //nolint:mnd // see above
}

type pagesKey struct{}

// ForPages returns the context of requests of those who look at a tenant's pages; "" for operators.
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

// Scarce are the filters of a list that no index serves, and the list's lower bound in time: for
// the error of a list that takes too long.
type Scarce struct {
	filters []string
	Since   time.Time
}

// Add names a filter that is in use.
func (s *Scarce) Add(name string, used bool) {
	if used {
		s.filters = append(s.filters, name)
	}
}

// tooSlow is the error of a list that took too long; it says how to narrow the list. Without a
// filter the cause is not the list but a slow database.
func (s *Scarce) tooSlow(timeout time.Duration, err error) error {
	if len(s.filters) == 0 {
		return err
	}
	narrow := "choose a later since"
	if s.Since.IsZero() {
		narrow = "give since, so that only newer rows are searched"
	}
	return &webhook.Error{
		Code: webhook.CodeUnavailable, RetryAfter: slowListAgain, Err: err,
		Message: fmt.Sprintf("the list took longer than %s, because few of the rows searched match %s; %s",
			timeout, strings.Join(s.filters, " and "), narrow),
	}
}

// ReadList is QueryAll for a list that may take long: it waits for its turn and has a shorter timeout.
func ReadList[T any](ctx context.Context, s *Core, c Caller, op string, by Scarce, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	release, err := s.lists.acquire(ctx, c.value)
	if err != nil {
		return nil, Translate(op, err)
	}
	defer release()
	c.timeout = s.lists.Timeout
	found, err := QueryAll(ctx, c, op, scan, sql, args...)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == QueryCanceled {
		return nil, by.tooSlow(c.timeout, err)
	}
	return found, err
}
