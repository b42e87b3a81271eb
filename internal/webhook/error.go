package webhook

import (
	"errors"
	"strings"
	"time"
)

// Code classifies an Error. The API maps each code to one HTTP status.
type Code uint8

// The codes.
const (
	CodeInternal          Code = iota // an internal error; callers get no details
	CodeInvalid                       // a field is invalid (400)
	CodeUnauthenticated               // no key, or an unusable one (401)
	CodeForbidden                     // the key's scope does not suffice (403)
	CodeNotFound                      // does not exist, or belongs to another tenant (404)
	CodeConflict                      // not possible in the current state (409)
	CodeRemoved                       // existed and was removed permanently (410)
	CodeQuota                         // a quota of the tenant is exhausted (409)
	CodeTooLarge                      // over a size limit (413)
	CodeTooManyDeliveries             // of one event (422)
	CodePayloadInvalid                // the payload of an event does not match the schema of its type (422)
	CodeChanged                       // it was changed since it was read: If-Match does not hold (412)
	CodeMismatch                      // an idempotency key was reused with another body (422)
	CodeRateLimited                   // too many requests of the tenant (429)
	CodeUnavailable                   // PostgreSQL is unavailable or Everpost is overloaded (503)
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
	case CodeRemoved:
		return "removed"
	case CodeQuota:
		return "quota"
	case CodeTooLarge:
		return "too_large"
	case CodeTooManyDeliveries:
		return "too_many_deliveries"
	case CodePayloadInvalid:
		return "payload_invalid"
	case CodeChanged:
		return "changed"
	case CodeMismatch:
		return "mismatch"
	case CodeRateLimited:
		return "rate_limited"
	case CodeUnavailable:
		return "unavailable"
	}
	return "internal"
}

// FieldError describes what is wrong with one field of a request.
type FieldError struct {
	Field   string `json:"field"`             // dotted path: "url", "events[3].type"
	Message string `json:"message"`           // a short sentence without the field's name and value
	Pointer string `json:"pointer,omitempty"` // within the field: a JSON pointer (RFC 6901)
}

// Error is an error of the domain or the store for a caller. Message is written for people
// and contains no secret, payload or URL.
type Error struct {
	Code       Code
	Message    string
	Fields     []FieldError  // CodeInvalid: every invalid field
	State      State         // CodeConflict on a delivery: the state that does not allow the command
	RetryAfter time.Duration // CodeUnavailable, CodeRateLimited: when to try again
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

// ErrNotOpened means that encrypted data of an endpoint (its secrets, headers or
// credentials) can not be decrypted, either temporarily, because the key management service
// is unavailable, or permanently. It concerns every delivery to the endpoint.
var ErrNotOpened = errors.New("the endpoint's encrypted data cannot be decrypted")

// CodeOf returns the code of the first Error in err's chain, or CodeInternal.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// Invalid returns an Error about one field.
func Invalid(field, message string) *Error {
	return &Error{Code: CodeInvalid, Message: "the request is not valid", Fields: []FieldError{{Field: field, Message: message}}}
}

// NotFound returns the same error for what does not exist and for what belongs to another tenant.
func NotFound(what string) *Error {
	return &Error{Code: CodeNotFound, Message: "no such " + what}
}
