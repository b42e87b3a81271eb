package api

import (
	"context"
	"net/http"

	"github.com/everpost/everpost/internal/webhook"
)

// list writes one page. fetch returns at most limit entries after a position, position returns an
// entry's own, and show its view. list fetches one entry more than it shows, so that next_cursor is
// null exactly if no entry follows.
func list[T, V any](c call, q *query, fetch func(limit int, after string) ([]T, error), position func(T) string, show func(T) V) error {
	search := func(limit int, after string) ([]T, string, error) {
		found, err := fetch(limit, after)
		return found, "", err
	}
	return listAll(c, q, search, position, func([]T) func(T) V { return show })
}

// listAll is list for a list that may end before it has found everything, and for views that need
// more than their entry. fetch also returns the position up to which it has searched, if it has to go
// on from there and has found fewer than the limit. prepare gets entries of the page and returns show.
//
// The entries are read in batches, and the page ends before the entry with which it would become larger than
// maxPageBytes.
func listAll[T, V any](c call, q *query, fetch func(limit int, after string) (found []T, searched string, err error), position func(T) string,
	prepare func([]T) (show func(T) V),
) error {
	if err := c.answer.reserve(maxPageBytes); err != nil {
		return err
	}
	var page pageWriter
	after, next, shown := q.after, "", 0
	for more := true; more; {
		want := min(q.limit-shown+1, q.batch)
		entries, searched, err := fetch(want, after)
		if err != nil {
			return err
		}
		if more = len(entries) == want; !more {
			next = searched
		}
		fits := entries[:min(len(entries), q.limit-shown)]
		n, err := addEntries(c, &page, fits, prepare(fits))
		if err != nil {
			return err
		}
		if n > 0 {
			shown, after = shown+n, position(fits[n-1])
		}
		if n < len(entries) {
			more, next = false, after
		}
	}
	if next != "" {
		next = encodeCursor(q.binding, next)
	}
	return c.send(http.StatusOK, page.end(next))
}

// addEntries adds entries to a page until it is full, and returns how many it has added. A tenant encodes one batch at a
// time, so that its lists leave processors to others.
func addEntries[T, V any](c call, page *pageWriter, entries []T, show func(T) V) (n int, err error) {
	done, err := c.answer.encoder(c.Request().Context())
	if err != nil {
		return 0, err
	}
	defer done()
	for ; n < len(entries); n++ {
		if added, err := page.add(show(entries[n])); err != nil || !added {
			return n, err
		}
	}
	return n, nil
}

// tenantReader reads a tenant.
type tenantReader interface {
	Tenant(ctx context.Context, id string) (webhook.Tenant, error)
}

// requireTenant returns not found if an operator lists the resources of a tenant that does not
// exist. A tenant's own key proves that the tenant exists.
func requireTenant(c call, tenants tenantReader) error {
	if c.key.Scope != webhook.ScopeOperator {
		return nil
	}
	_, err := tenants.Tenant(c.Request().Context(), c.tenant)
	return err
}
