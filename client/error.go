package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Code is the kind of a problem: the last part of its type. docs/errors.md has a section for each.
type Code string

// The codes, and the statuses that they come with.
const (
	CodeInvalid           Code = "validation"             // 400
	CodeUnauthenticated   Code = "unauthenticated"        // 401
	CodeForbidden         Code = "forbidden"              // 403: the key's scope is too small
	CodeNotFound          Code = "not-found"              // 404: also what is another tenant's
	CodeMethodNotAllowed  Code = "method-not-allowed"     // 405
	CodeRequestTimeout    Code = "request-timeout"        // 408: the body came too slowly
	CodeConflict          Code = "conflict"               // 409: not possible in the present state
	CodeAlreadyCreated    Code = "already-created"        // 409: carried out before, and the answer is not kept; Problem.ID says what it changed
	CodeQuota             Code = "quota-exceeded"         // 409
	CodePayloadRemoved    Code = "payload-removed"        // 410
	CodeChanged           Code = "changed"                // 412: it was changed since it was read
	CodeTooLarge          Code = "too-large"              // 413
	CodeUnsupportedMedia  Code = "unsupported-media-type" // 415
	CodeMismatch          Code = "idempotency-mismatch"   // 422: the idempotency key was used with another body
	CodeTooManyDeliveries Code = "too-many-deliveries"    // 422
	CodePayloadInvalid    Code = "payload-invalid"        // 422: the payload does not match the schema of its event type
	CodeRateLimited       Code = "rate-limited"           // 429
	CodeInternal          Code = "internal"               // 500
	CodeUnavailable       Code = "unavailable"            // 503
)

// ProblemBase is the type of a problem without its code.
const ProblemBase = "https://everpost.dev/errors/"

// Problem is the body of an answer that refuses a request (RFC 9457).
type Problem struct {
	Type      string       `json:"type"` // ProblemBase and the code
	Title     string       `json:"title"`
	Status    int          `json:"status"`
	Detail    string       `json:"detail"` // for people
	RequestID string       `json:"request_id"`
	Help      string       `json:"help"`                // the path of the page about this code, at the installation
	ID        string       `json:"id,omitempty"`        // of what an earlier request with the Idempotency-Key has changed
	State     string       `json:"state,omitempty"`     // of the delivery or replay that refused the command
	WaitsFor  string       `json:"waits_for,omitempty"` // why the command is not possible now, if that will change: "circuit_open"
	Until     Time         `json:"until,omitzero"`      // when it is expected to be possible
	Errors    []FieldError `json:"errors,omitempty"`    // every mistake in the request
}

// Code is the kind of the problem; "" if the answer is not one that Everpost gives.
func (p *Problem) Code() Code { return Code(strings.TrimPrefix(p.Type, ProblemBase)) }

// FieldError is a mistake in a request.
type FieldError struct {
	Field   string `json:"field"`             // a dotted path such as "events[3].type", or the name of a parameter or header
	Message string `json:"message"`           // without the field's name and value
	Pointer string `json:"pointer,omitempty"` // within the field: a JSON pointer, of a filter, or of a payload that does not match its schema
}

// Place is the field, and where in it: "payload at /order/id".
func (e FieldError) Place() string {
	if e.Pointer == "" {
		return e.Field
	}
	return e.Field + " at " + e.Pointer
}

// Error is an answer that is not 2xx.
type Error struct {
	Problem // zero but for Status if Foreign

	RetryAfter time.Duration // when to try again; 0 if the answer does not say
	Method     string        // of the request
	Path       string        // of the request's URL
	Foreign    bool          // the answer is not one that Everpost gives
	base       string
}

// Temporary reports whether the same request may succeed later.
func (e *Error) Temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError
}

// Error returns the detail of the problem. It may contain text of the request.
func (e *Error) Error() string {
	if e.Foreign {
		return fmt.Sprintf("%s answered %d %s, and not as Everpost does", e.base, e.Status, http.StatusText(e.Status))
	}
	return e.Detail
}

func newError(base string, response *http.Response, body []byte) *Error {
	e := &Error{Method: response.Request.Method, Path: response.Request.URL.Path, base: base}
	media, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if media != "application/problem+json" || json.Unmarshal(body, &e.Problem) != nil || e.Detail == "" {
		e.Problem, e.Foreign = Problem{}, true
	}
	e.Status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// ErrNotEverpost is the error of an answer that does not come from Everpost's API.
var ErrNotEverpost = errors.New("the answer is not what Everpost's API gives")

// NoResponseError is the error of a request without an answer. It wraps the cause, which does not contain the request's path and query.
type NoResponseError struct {
	URL     string // of the installation
	NotSent bool   // nothing was sent, so the request was not carried out
	Err     error
}

// Error implements error.
func (e *NoResponseError) Error() string { return "no answer from " + e.URL + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *NoResponseError) Unwrap() error { return e.Err }

// withoutURL takes the request's URL, whose query may be a secret, off an error of net/http.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}
