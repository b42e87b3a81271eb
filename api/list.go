package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Limits of one page of a list.
const (
	defaultLimit = 50
	maxLimit     = 250
)

// query is the query string of a list: its filters and the position of the page. It collects the
// errors of all parameters.
type query struct {
	values  url.Values
	errs    []webhook.FieldError
	limit   int
	batch   int    // entries that are read at a time: fewer where they may be large
	after   string // position; "" for the first page
	binding string // identity of the list, for its cursors
}

// query parses the query string of the named list with the given filters. It refuses unknown
// parameters, because a misspelled filter would otherwise show everything.
func (c call) query(name string, filters ...string) *query {
	q := c.parameters(append([]string{"limit", "cursor"}, filters...)...)
	if q.has("limit") {
		n, err := strconv.Atoi(q.values.Get("limit"))
		if err != nil || n < 1 || n > maxLimit {
			q.refuse("limit", "must be a whole number from 1 to "+strconv.Itoa(maxLimit))
		} else {
			q.limit = n
		}
	}

	bound := url.Values{}
	for _, filter := range filters {
		if q.has(filter) {
			bound[filter] = q.values[filter]
		}
	}
	q.binding = name + "\x00" + c.tenant + "\x00" + bound.Encode()
	if q.has("cursor") {
		var err error
		if q.after, err = decodeCursor(q.binding, q.values.Get("cursor")); err != nil {
			q.refuse("cursor", err.Error())
		}
	}
	return q
}

// parameters parses a query string with the known parameters, and refuses all others.
func (c call) parameters(known ...string) *query {
	q := &query{limit: defaultLimit, batch: maxLimit}
	values, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		q.refuse("query", "is not a valid query string")
	}
	q.values = values
	for _, given := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, given):
			q.refuse(shown(given), "is not a known parameter")
		case len(values[given]) > 1 && given != "state":
			q.refuse(given, "is given more than once")
		}
	}
	return q
}

// takesParameters reports whether an operation has query parameters. Its handler reads them with
// call.query or call.parameters, which refuse all others.
func takesParameters(id string) bool {
	switch id {
	case "listAudit", "listTenants", "listKeys", "listEndpoints", "listEndpointConditions", "listEvents", "listDeliveries", "listAttempts",
		"listDeadLetters", "groupDeadLetters", "listReplays", "getStats", "getTenantStats", "eraseEventPayload", "deleteTenant":
		return true
	}
	return false
}

// refuseParameters refuses every query parameter of an operation that has none.
func (c call) refuseParameters() error {
	if c.Request().URL.RawQuery == "" || takesParameters(c.route.id) {
		return nil
	}
	q := &query{}
	values, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		q.refuse("query", "is not a valid query string")
	}
	for _, given := range slices.Sorted(maps.Keys(values)) {
		q.refuse(shown(given), "is not a known parameter")
	}
	return q.problem()
}

// shown is a parameter's name, shortened for an error message.
func shown(name string) string { return string(appendName(nil, []byte(name))) }

func (q *query) has(name string) bool { return len(q.values[name]) > 0 }

func (q *query) refuse(field, message string) {
	if len(q.errs) < maxFieldErrors {
		q.errs = append(q.errs, webhook.FieldError{Field: field, Message: message})
	}
}

// problem returns the collected errors as one error.
func (q *query) problem() error {
	if len(q.errs) == 0 {
		return nil
	}
	return &webhook.Error{Code: webhook.CodeInvalid, Message: invalidRequest, Fields: q.errs}
}

// text returns a filter that accept accepts, or "" if it is absent.
func (q *query) text(name string, accept func(string) bool, message string) string {
	if !q.has(name) {
		return ""
	}
	value := q.values.Get(name)
	if !accept(value) {
		q.refuse(name, message)
		return ""
	}
	return value
}

// boolean returns a parameter that is true or false, which is the default.
func (q *query) boolean(name string) bool {
	return q.text(name, func(v string) bool { return v == "true" || v == "false" }, "must be true or false") == "true"
}

// instant returns a filter that is a time, or zero if it is absent.
func (q *query) instant(name string) time.Time {
	if !q.has(name) {
		return time.Time{}
	}
	t, ok := parseTime(q.values.Get(name))
	if !ok {
		q.refuse(name, notATime)
	}
	return t
}

// queryID returns a filter that is an id, or zero if it is absent.
func queryID[ID any](q *query, name string, parse func(string) (ID, error)) ID {
	var none ID
	if !q.has(name) {
		return none
	}
	id, err := parse(q.values.Get(name))
	if err != nil {
		q.refuse(name, err.Error())
		return none
	}
	return id
}

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
	if !c.server.encoders.Acquire(c.Request().Context(), c.key.TenantID, 1, encodeWait) {
		return 0, &webhook.Error{Code: webhook.CodeUnavailable, RetryAfter: answerRetryAfter, Message: "too many answers are being made at the moment"}
	}
	defer c.server.encoders.Release(c.key.TenantID, 1)
	for ; n < len(entries); n++ {
		if added, err := page.add(show(entries[n])); err != nil || !added {
			return n, err
		}
	}
	return n, nil
}

// requireTenant returns not found if an operator lists the resources of a tenant that does not
// exist. A tenant's own key proves that the tenant exists.
func (s *Server) requireTenant(c call) error {
	if c.key.Scope != webhook.ScopeOperator {
		return nil
	}
	_, err := s.config.Tenants.Tenant(c.Request().Context(), c.tenant)
	return err
}
