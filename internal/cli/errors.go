package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
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

// noAnswerError says for people why there was no response.
type noAnswerError struct {
	text  string
	cause *client.NoResponseError
}

// Error implements error.
func (e *noAnswerError) Error() string { return e.text }

// Unwrap returns the cause.
func (e *noAnswerError) Unwrap() error { return e.cause }

// errInterrupted is the error of a request that was interrupted.
var errInterrupted = errors.New("interrupted")

// errNotEverpost is the error of a response that does not come from Everpost.
var errNotEverpost = fmt.Errorf("%w: is --url right?", client.ErrNotEverpost)

// understood is an error of a request in words for people.
func (s *session) understood(ctx context.Context, r request, err error) error {
	if refused, ok := errors.AsType[*client.Error](err); ok {
		return s.newAPIError(r, refused)
	}
	silent, ok := errors.AsType[*client.NoResponseError](err)
	switch {
	case !ok:
		return err
	case ctx.Err() != nil:
		return errInterrupted
	}
	text := silent.Error()
	unknown, isName := errors.AsType[*net.DNSError](err)
	late, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "is Everpost running at " + s.base + "? Nothing listens there. " +
			"Start it with 'make run', or give its address with --url or $EVERPOST_URL"
	case isName && unknown.IsNotFound:
		text = "the host of " + s.base + " is not known; check --url"
	case isNet && late.Timeout():
		text = fmt.Sprintf("no answer from %s within %s", s.base, client.DefaultTimeout)
	}
	return &noAnswerError{printable.Text(text), silent}
}

// decode decodes a response. The error is errNotEverpost.
func decode[T any](a client.Answer) (T, error) {
	v, err := client.Decode[T](a)
	if err != nil {
		return v, errNotEverpost
	}
	return v, nil
}

// newAPIError describes a response that is not 2xx, with a remedy.
func (s *session) newAPIError(r request, e *client.Error) error {
	text := printable.Text(e.Error())
	if e.Foreign {
		return &apiError{e.Status, text + ": is --url the address of its API?"}
	}
	if e.Status == http.StatusUnauthorized && s.key == "" { // the detail is about headers
		text = "an API key is missing"
	}
	if len(e.Errors) > 0 {
		fields := make([]string, len(e.Errors))
		for i, bad := range e.Errors {
			fields[i] = printable.Text(bad.Place() + ": " + bad.Message + r.given(bad.Field))
		}
		text = strings.Join(fields, "; ")
	}
	return &apiError{e.Status, text + s.hint(e)}
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
func (s *session) hint(e *client.Error) string {
	switch e.Status {
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
		switch e.Detail {
		case "no such route":
			return fmt.Sprintf(" (%s %s); is that Everpost older than this command (%s)?", e.Method, printable.Text(e.Path), s.Version)
		case "no such tenant":
			return fmt.Sprintf(": %s; check --tenant, and that the key is this tenant's or an operator's", printable.Text(s.tenant))
		case "no such event type": // they are of the installation
			return ""
		}
		return fmt.Sprintf(" of tenant %s; check the id, and --tenant: what is another tenant's is not shown", printable.Text(s.tenant))
	case http.StatusMethodNotAllowed:
		return fmt.Sprintf("; is that Everpost older than this command (%s)?", s.Version)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if e.RetryAfter > 0 {
			return "; try again in " + strconv.Itoa(int(e.RetryAfter.Seconds())) + " s"
		}
	case http.StatusInternalServerError:
		return " (request " + printable.Text(e.RequestID) + ")"
	}
	return ""
}

// isTemporary reports whether a retry may succeed.
func isTemporary(err error) bool {
	if refused, ok := errors.AsType[*apiError](err); ok {
		return refused.temporary()
	}
	_, ok := errors.AsType[*client.NoResponseError](err)
	return ok
}
