package client

import (
	"context"
	"iter"
	"maps"
	"net/url"
	"strconv"
)

// List is a list of the API, newest first, that is read page by page.
type List[T any] struct {
	at    scope
	query url.Values
}

// PageOptions say which page of a list is read.
type PageOptions struct {
	Limit  int    // the most entries, up to 250; 0 for 50. The API may cut a page that would have more than 1 MiB.
	Cursor string // NextCursor of the page before; "" for the first page
}

// Page is a page of a list.
type Page[T any] struct {
	Data       []T    `json:"data"`
	NextCursor string `json:"next_cursor"` // null, here "", on the last page
}

// Page reads one page.
func (l List[T]) Page(ctx context.Context, o PageOptions) (Page[T], error) {
	query := maps.Clone(l.query)
	if query == nil {
		query = url.Values{}
	}
	if o.Limit != 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Cursor != "" {
		query.Set("cursor", o.Cursor)
	}
	return get[Page[T]](ctx, l.at, query)
}

// All reads all entries, a page at a time. After an error it ends.
func (l List[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		const largest = 250
		for o := (PageOptions{Limit: largest}); ; {
			page, err := l.Page(ctx, o)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, entry := range page.Data {
				if !yield(entry, nil) {
					return
				}
			}
			if o.Cursor = page.NextCursor; o.Cursor == "" {
				return
			}
		}
	}
}
