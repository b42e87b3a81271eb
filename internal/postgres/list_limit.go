package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	listsAtOnce = 4 // of one tenant
	listWait    = time.Second
	ListTimeout = 3 * time.Second // of the statement

	// slowListAgain is when a list that took too long may be asked for again: it will take
	// as long, unless it is another one by then.
	slowListAgain = 10 * time.Second
)

// listLimit bounds the statements that may go through a tenant's whole record, row by
// row: lists with a filter that fits little, and counts. All together they get half of the
// connections, because what takes events, too, looks up keys, limits and endpoints there.
type listLimit struct {
	Wait, Timeout time.Duration
	Together      chan struct{} // one token for each under way

	mu sync.Mutex
	Of map[string]*turnsOf
}

// turnsOf are the turns of one tenant, as long as one is taken or waited for.
type turnsOf struct {
	tokens chan struct{}
	users  int
}

func newListLimit(conns int32) *listLimit {
	return &listLimit{
		Wait: listWait, Timeout: ListTimeout, Together: make(chan struct{}, max(1, conns/2)), //nolint:mnd // half
		Of: map[string]*turnsOf{},
	}
}

// take waits for a turn of a tenant's, and returns the function that gives it back.
// CodeRateLimited: this tenant has too many under way; CodeUnavailable: all together do.
func (t *listLimit) take(ctx context.Context, tenant string) (release func(), err error) {
	own := t.enter(tenant)
	timer := time.NewTimer(t.Wait)
	defer timer.Stop()
	select {
	case own.tokens <- struct{}{}:
	case <-ctx.Done():
		t.leave(tenant, own)
		return nil, ctx.Err()
	case <-timer.C:
		t.leave(tenant, own)
		return nil, &webhook.Error{
			Code: webhook.CodeRateLimited, RetryAfter: retryAfter,
			Message: fmt.Sprintf("%d lists are being read side by side already; ask for the next when one has been answered", listsAtOnce),
		}
	}
	leave := func() {
		<-own.tokens
		t.leave(tenant, own)
	}
	select {
	case t.Together <- struct{}{}:
		return func() {
			<-t.Together
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	case <-timer.C:
		leave()
		return nil, &webhook.Error{Code: webhook.CodeUnavailable, RetryAfter: retryAfter, Message: "too many lists are being read at the moment"}
	}
}

func (t *listLimit) enter(tenant string) *turnsOf {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.Of[tenant]
	if own == nil {
		own = &turnsOf{tokens: make(chan struct{}, listsAtOnce)}
		t.Of[tenant] = own
	}
	own.users++
	return own
}

func (t *listLimit) leave(tenant string, own *turnsOf) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own.users--
	if own.users == 0 {
		delete(t.Of, tenant)
	}
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
	release, err := s.lists.take(ctx, c.value)
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
