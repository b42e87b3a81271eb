package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/everpost/everpost/internal/cli/printable"
)

// apiError is an error response of the API, in one line for people.
type apiError struct {
	status int
	text   string
}

// Error implements error.
func (r *apiError) Error() string { return r.text }

// temporary reports whether the same request may succeed later.
func (r *apiError) temporary() bool {
	return r.status == http.StatusTooManyRequests || r.status >= http.StatusInternalServerError
}

// problem is Everpost's problem document (RFC 9457).
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"errors"`
}

// newAPIError describes a response that is not 2xx, with a remedy.
func (s *session) newAPIError(r request, req *http.Request, response *http.Response, body []byte) error {
	var p problem
	media, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if media != "application/problem+json" || json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return &apiError{response.StatusCode, fmt.Sprintf("%s answered %d %s, and not as Everpost does: is --url the address of its API?",
			s.base, response.StatusCode, http.StatusText(response.StatusCode))}
	}
	text := printable.Text(p.Detail)
	if response.StatusCode == http.StatusUnauthorized && s.key == "" { // the detail is about headers
		text = "an API key is missing"
	}
	if len(p.Errors) > 0 {
		fields := make([]string, len(p.Errors))
		for i, e := range p.Errors {
			fields[i] = printable.Text(e.Field + ": " + e.Message + r.given(e.Field))
		}
		text = strings.Join(fields, "; ")
	}
	return &apiError{response.StatusCode, text + s.hint(req, response, p)}
}

// given quotes the value of a field or parameter of the request, "" for one that is not a
// short plain value or may be a secret.
func (r request) given(name string) string {
	const longest = 100
	switch name {
	case "url", "secret", "headers", "auth", "client_certificate", "payload", "contact", "cursor":
		return ""
	}
	value := r.query.Get(name)
	if several := r.query[name]; len(several) > 1 {
		value = strings.Join(several, ",")
	}
	if value == "" {
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(r.body, &fields) // a body that is not an object has no fields
		var field any
		_ = json.Unmarshal(fields[name], &field)
		switch field := field.(type) {
		case string:
			value = field
		case float64, bool:
			value = string(fields[name])
		}
	}
	if value == "" || len(value) > longest {
		return ""
	}
	return fmt.Sprintf("; got %q", value)
}

// hint returns a remedy for an error, "" when the error says it all.
func (s *session) hint(req *http.Request, response *http.Response, p problem) string {
	switch response.StatusCode {
	case http.StatusUnauthorized:
		from := ""
		switch {
		case s.source != "" && s.key != "":
			from = " (it is from " + s.source + ")"
		case s.source != "":
			from = " (there is no " + s.source + "; --data-dir or $EVERPOST_DATA_DIR says where standalone's data is)"
		}
		return from + "; give one with --key or $EVERPOST_KEY ('everpost keys create' makes one)"
	case http.StatusForbidden:
		return "; give one with --key or $EVERPOST_KEY, or use an operator key"
	case http.StatusNotFound:
		switch p.Detail {
		case "no such route":
			return fmt.Sprintf(" (%s %s); is that Everpost older than this command (%s)?", req.Method, printable.Text(req.URL.Path), s.Version)
		case "no such tenant":
			return fmt.Sprintf(": %s; check --tenant, and that the key is this tenant's or an operator's", printable.Text(s.tenant))
		}
		return fmt.Sprintf(" of tenant %s; check the id, and --tenant: what is another tenant's is not shown", printable.Text(s.tenant))
	case http.StatusMethodNotAllowed:
		return fmt.Sprintf("; is that Everpost older than this command (%s)?", s.Version)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after := response.Header.Get("Retry-After"); after != "" {
			return "; try again in " + printable.Text(after) + " s"
		}
	case http.StatusInternalServerError:
		return " (request " + printable.Text(p.RequestID) + ")"
	}
	return ""
}

// noResponseError is the error of a request without a response. notSent reports that
// nothing was sent, so the request was not carried out.
type noResponseError struct {
	text    string
	notSent bool
}

// Error implements error.
func (s *noResponseError) Error() string { return s.text }

var errInterrupted = errors.New("interrupted")

// unreachable describes why there was no response, without the request's query, which
// net/http's errors contain.
func (s *session) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if refused := errors.Is(err, syscall.ECONNREFUSED); refused {
		return &noResponseError{"is Everpost running at " + s.base + "? Nothing listens there. " +
			"Start it with 'make run', or give its address with --url or $EVERPOST_URL", true}
	}
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		return &noResponseError{"the host of " + s.base + " is not known; check --url", true}
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return &noResponseError{text: fmt.Sprintf("no answer from %s within %s", s.base, requestTimeout)}
	}
	return &noResponseError{text: "no answer from " + s.base + ": " + printable.Text(err.Error())}
}

// isTemporary reports whether a retry may succeed.
func isTemporary(err error) bool {
	if refused, ok := errors.AsType[*apiError](err); ok {
		return refused.temporary()
	}
	_, ok := errors.AsType[*noResponseError](err)
	return ok
}
