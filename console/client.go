package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// maxResponse is how many bytes are read of one response of the API.
const maxResponse = 8 << 20

// localAPI makes requests to the API of this process for one request of a browser.
type localAPI struct {
	handler http.Handler
	from    *http.Request // whose source address the audit log names
	once    string        // the Idempotency-Key; "" for none
	match   string        // If-Match; "" for none
	etag    *string       // takes the ETag of an answer; nil: it is not wanted
}

// problem is an error response of the API.
type problem struct {
	client.Problem

	later bool // it is to be repeated soon
	stale bool // the form showed what another has changed since
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// refusal is a problem of the console itself.
func refusal(status int, detail string) *problem {
	return &problem{Problem: client.Problem{Status: status, Detail: detail}}
}

// wrong is the problem of a field that the API has not seen.
func wrong(field, message string) *problem {
	return &problem{Problem: client.Problem{Status: http.StatusBadRequest, Errors: []client.FieldError{{Field: field, Message: message}}}}
}

// errNotFound is the error of a path that has no page.
func errNotFound() error {
	return refusal(http.StatusNotFound, "there is no such page")
}

// isStatus reports whether err is an answer of the API with this status.
func isStatus(err error, status int) bool {
	known, ok := errors.AsType[*problem](err)
	return ok && known.Status == status
}

// problemOf is the problem that a reader sees for an error.
func problemOf(err error) *problem {
	if known, ok := errors.AsType[*problem](err); ok {
		return known
	}
	switch webhook.CodeOf(err) { //nolint:exhaustive // what the session's store and the keys return; all else is ours
	case webhook.CodeUnavailable:
		return refusal(http.StatusServiceUnavailable, "Everpost cannot reach its database at the moment; try again in a moment")
	case webhook.CodeUnauthenticated:
		return refusal(http.StatusUnauthorized, "the key is not valid any more")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return refusal(http.StatusServiceUnavailable, "the page took too long to make; try again in a moment")
	}
	return refusal(http.StatusInternalServerError, "the page could not be made; the server's log says why")
}

// apiPath joins the parts of a path below /v1.
func apiPath(parts ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, part := range parts {
		b.WriteString("/" + url.PathEscape(part))
	}
	return b.String()
}

// get reads into the value. Empty parameters of the query are left out.
func (c localAPI) get(ctx context.Context, into any, query url.Values, path string) error {
	return c.do(ctx, http.MethodGet, path, query, nil, into)
}

// send makes a change with a body, which is encoded as JSON unless it is nil. into may be nil.
func (c localAPI) send(ctx context.Context, into any, method, path string, body any) error {
	var text []byte
	if raw, ok := body.(json.RawMessage); ok {
		text = raw
	} else if body != nil {
		var encoded bytes.Buffer
		e := json.NewEncoder(&encoded)
		e.SetEscapeHTML(false) // what was typed is stored as it was typed
		if err := e.Encode(body); err != nil {
			return fmt.Errorf("encode the body for %s: %w", path, err)
		}
		text = encoded.Bytes()
	}
	return c.do(ctx, method, path, nil, text, into)
}

// do makes a request. A response with another status than of success is a *problem.
func (c localAPI) do(ctx context.Context, method, path string, query url.Values, body []byte, into any) error {
	// The request does not leave the process, so it is made for "/" and gets its path as parts.
	r, err := http.NewRequestWithContext(ctx, method, "/", bytes.NewReader(body))
	if err == nil {
		r.URL, err = url.ParseRequestURI(path)
	}
	if err != nil {
		return fmt.Errorf("make a request for %s: %w", method, err)
	}
	r.URL.RawQuery = nonEmpty(query).Encode()
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.once != "" {
		r.Header.Set("Idempotency-Key", c.once)
	}
	if c.match != "" {
		r.Header.Set("If-Match", c.match)
	}
	r.RemoteAddr, r.Host, r.TLS = c.from.RemoteAddr, c.from.Host, c.from.TLS
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto"} {
		r.Header[name] = c.from.Header[name]
	}
	w := &answer{header: http.Header{}, status: http.StatusOK}
	c.handler.ServeHTTP(w, r)
	if c.etag != nil {
		*c.etag = w.header.Get("ETag")
	}
	raw, isRaw := into.(*[]byte)
	switch {
	case w.over:
		return errors.New("a response of the API is too large for a page")
	case w.status >= http.StatusBadRequest:
		p := &problem{}
		if err := json.Unmarshal(w.body.Bytes(), p); err != nil {
			p.Detail = http.StatusText(w.status)
		}
		p.Status, p.later = w.status, w.header.Get("Retry-After") != ""
		return p
	case isRaw:
		*raw = w.body.Bytes()
	case into != nil && w.body.Len() > 0:
		if err := json.Unmarshal(w.body.Bytes(), into); err != nil {
			return fmt.Errorf("read the answer of %s: %w", method, err)
		}
	}
	return nil
}

func nonEmpty(query url.Values) url.Values {
	filled := url.Values{}
	for name, values := range query {
		for _, v := range values {
			if v != "" {
				filled.Add(name, v)
			}
		}
	}
	return filled
}

// answer keeps a response of the API, up to maxResponse.
type answer struct {
	header http.Header
	status int
	wrote  bool
	over   bool
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if !a.wrote {
		a.status, a.wrote = status, true
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.wrote = true
	if a.body.Len()+len(p) > maxResponse {
		a.over = true
		return 0, errors.New("the response is too large")
	}
	return a.body.Write(p) //nolint:wrapcheck // a buffer returns no error
}
