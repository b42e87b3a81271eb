package webhook

import (
	"errors"
	"strings"
	"time"
)

// Code classes an Error; the API maps each to one HTTP status.
type Code uint8

// The codes.
const (
	CodeInternal        Code = iota // ours; nothing about it is told outside
	CodeInvalid                     // a field is wrong (400)
	CodeUnauthenticated             // no or an unusable key (401)
	CodeForbidden                   // the key's scope is too small (403)
	CodeNotFound                    // does not exist, or is another tenant's (404)
	CodeConflict                    // not possible in the present state (409)
	CodeQuota                       // a quota of the tenant is used up (409)
	CodeTooLarge                    // over a limit of size (413)
	CodeMismatch                    // an idempotency key came back with another body (422)
	CodeRateLimited                 // too many requests of a tenant (429)
	CodeUnavailable                 // PostgreSQL is away or we are overloaded (503)
)

// String is the code's name in errors and logs.
func (c Code) String() string {
	switch c {
	case CodeInternal:
		return "internal"
	case CodeInvalid:
		return "invalid"
	case CodeUnauthenticated:
		return "unauthenticated"
	case CodeForbidden:
		return "forbidden"
	case CodeNotFound:
		return "not_found"
	case CodeConflict:
		return "conflict"
	case CodeQuota:
		return "quota"
	case CodeTooLarge:
		return "too_large"
	case CodeMismatch:
		return "mismatch"
	case CodeRateLimited:
		return "rate_limited"
	case CodeUnavailable:
		return "unavailable"
	}
	return "internal"
}

// FieldError says what is wrong with one field of a request.
type FieldError struct {
	Field   string `json:"field"`   // dotted path: "url", "events[3].type"
	Message string `json:"message"` // a short sentence without the field's name and value
}

// Error is what the domain and its stores tell a caller. Message is written for
// people and holds no secret, payload or URL.
type Error struct {
	Code       Code
	Message    string
	Fields     []FieldError  // CodeInvalid: every bad field
	State      State         // CodeConflict on a delivery: the state that forbids the command
	RetryAfter time.Duration // CodeUnavailable, CodeRateLimited: when to come back
	Err        error         // the cause, for logs only
}

// Error implements error.
func (e *Error) Error() string {
	parts := make([]string, 0, len(e.Fields)+2)
	parts = append(parts, e.Message)
	for _, f := range e.Fields {
		parts = append(parts, f.Field+": "+f.Message)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrNotOpened marks, wrapped, that what is stored encrypted of an endpoint (its secrets,
// headers or credentials) cannot be opened: now, when the key management service is away,
// or at all. It concerns every delivery to the endpoint.
var ErrNotOpened = errors.New("what is stored encrypted of the endpoint cannot be opened")

// CodeOf is the code of the first Error in err's chain, CodeInternal when there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// Invalid is an Error about one field.
func Invalid(field, message string) *Error {
	return &Error{Code: CodeInvalid, Message: "the request is not valid", Fields: []FieldError{{Field: field, Message: message}}}
}

// NotFound is the one answer for what does not exist and what is another tenant's.
func NotFound(what string) *Error {
	return &Error{Code: CodeNotFound, Message: "no such " + what}
}
