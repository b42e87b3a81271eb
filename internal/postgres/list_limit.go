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
	listsPerTenant = 4 // that run at a time
	listWait       = time.Second
	ListTimeout    = 3 * time.Second // of the statement

	// slowListAgain is the Retry-After of a list that took too long: the same list will take as
	// long again.
	slowListAgain = 10 * time.Second
)

// listLimit bounds the statements that may go through all rows of a tenant: lists with a filter
// that matches little, and counts. All of them together get half of the connections, because
// accepting events needs these connections, too: for keys, limits and endpoints.
type listLimit struct {
	Wait, Timeout time.Duration
	Running       *fair.Semaphore
}

func newListLimit(conns int32) *listLimit {
	return &listLimit{Wait: listWait, Timeout: ListTimeout, Running: fair.NewCapped(max(1, int(conns)/2), listsPerTenant)} //nolint:mnd // half
}

// acquire waits until the tenant may run a list, and returns the function that ends that.
// CodeRateLimited: the tenant runs too many; CodeUnavailable: all tenants together do.
func (l *listLimit) acquire(ctx context.Context, tenant string) (release func(), err error) {
	if l.Running.Acquire(ctx, tenant, 1, l.Wait) {
		return func() { l.Running.Release(tenant, 1) }, nil
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case l.Running.Held(tenant) >= listsPerTenant:
		return nil, &webhook.Error{
			Code: webhook.CodeRateLimited, RetryAfter: retryAfter,
			Message: fmt.Sprintf("%d lists are being read side by side already; ask for the next when one has been answered", listsPerTenant),
		}
	}
	return nil, &webhook.Error{Code: webhook.CodeUnavailable, RetryAfter: retryAfter, Message: "too many lists are being read at the moment"}
}

// Scarce are the filters of a list that no index serves, for the words of its error, and
// whether it is bounded in time already.
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

// tooSlow says what to narrow of a list that took too long. Without a filter it is not the
// list's fault: the database is slow.
func (s *Scarce) tooSlow(timeout time.Duration, err error) error {
	if len(s.filters) == 0 {
		return err
	}
	narrow := "choose a later since"
	if s.Since.IsZero() {
		narrow = "give since, so that only what is newer is looked at"
	}
	return &webhook.Error{
		Code: webhook.CodeUnavailable, RetryAfter: slowListAgain, Err: err,
		Message: fmt.Sprintf("the list took longer than %s, because too little of what was looked at fits %s; %s",
			timeout, strings.Join(s.filters, " and "), narrow),
	}
}

// ReadList is QueryAll for a list that may take long: in its turn, and in a shorter time.
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
