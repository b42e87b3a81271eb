package api

import (
	"maps"
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

// instant returns a filter that is a time, or how long ago that is; zero if it is absent.
func (q *query) instant(name string) time.Time {
	if !q.has(name) {
		return time.Time{}
	}
	text := q.values.Get(name)
	if age, ok := webhook.ParseAge(text); ok {
		return time.Now().UTC().Add(-age).Truncate(time.Microsecond)
	}
	t, ok := parseTime(text)
	if !ok {
		q.refuse(name, notATimeOrAge)
	}
	return t
}

// externalID returns the filter external_id, or "" if it is absent.
func (q *query) externalID() string {
	return q.text("external_id", func(v string) bool { return printable(v, webhook.MaxExternalID) }, notPrintable(webhook.MaxExternalID))
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

// refuseParameters refuses every query parameter of an operation that has none.
func (c call) refuseParameters() error {
	if c.Request().URL.RawQuery == "" || c.route.takesParameters() {
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
