package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/everpost/everpost/api/reference"
	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

const internalDetail = "internal error; the server's log has the cause under the request id"

// class is what all problems of a type have in common.
type class struct {
	status int
	code   client.Code
	title  string
}

// classOf is the only place that maps the domain's codes to HTTP.
func classOf(code webhook.Code) class {
	switch code {
	case webhook.CodeInvalid:
		return class{http.StatusBadRequest, client.CodeInvalid, "The request is not valid"}
	case webhook.CodeUnauthenticated:
		return class{http.StatusUnauthorized, client.CodeUnauthenticated, "No valid API key"}
	case webhook.CodeForbidden:
		return class{http.StatusForbidden, client.CodeForbidden, "The API key may not do this"}
	case webhook.CodeNotFound:
		return class{http.StatusNotFound, client.CodeNotFound, "Not found"}
	case webhook.CodeConflict:
		return class{http.StatusConflict, client.CodeConflict, "Not possible in the present state"}
	case webhook.CodeRemoved:
		return class{http.StatusGone, client.CodePayloadRemoved, "The payload was removed"}
	case webhook.CodeQuota:
		return class{http.StatusConflict, client.CodeQuota, "A quota of the tenant is used up"}
	case webhook.CodeTooLarge:
		return class{http.StatusRequestEntityTooLarge, client.CodeTooLarge, "The request is too large"}
	case webhook.CodeTooManyDeliveries:
		return class{http.StatusUnprocessableEntity, client.CodeTooManyDeliveries, "The event would have too many deliveries"}
	case webhook.CodePayloadInvalid:
		return class{http.StatusUnprocessableEntity, client.CodePayloadInvalid, "The payload does not match the schema of its event type"}
	case webhook.CodeChanged:
		return class{http.StatusPreconditionFailed, client.CodeChanged, "It was changed since it was read"}
	case webhook.CodeMismatch:
		return class{http.StatusUnprocessableEntity, client.CodeMismatch, "The key was used with another body"}
	case webhook.CodeRateLimited:
		return class{http.StatusTooManyRequests, client.CodeRateLimited, "Too many requests"}
	case webhook.CodeUnavailable:
		return class{http.StatusServiceUnavailable, client.CodeUnavailable, "Not available at the moment"}
	case webhook.CodeInternal:
	}
	return class{http.StatusInternalServerError, client.CodeInternal, "Internal error"}
}

// Problems without a code of the domain.
func unsupportedMedia() class {
	return class{http.StatusUnsupportedMediaType, client.CodeUnsupportedMedia, "The media type is not supported"}
}

func requestTimeout() class {
	return class{http.StatusRequestTimeout, client.CodeRequestTimeout, "The request came too slowly"}
}

func methodNotAllowed() class {
	return class{http.StatusMethodNotAllowed, client.CodeMethodNotAllowed, "The method is not allowed"}
}

// alreadyCreated is the class of repeatError.
func alreadyCreated() class {
	return class{http.StatusConflict, client.CodeAlreadyCreated, "The request was carried out before"}
}

// httpError is an error without a code of the domain.
type httpError struct {
	class  class
	detail string
}

func (e *httpError) Error() string { return e.detail }

// stateError refuses a command that is not possible in the current state.
type stateError struct {
	command, state string
	why            string // a clause without a full stop: the delivery is held
	waitsFor       string // what prevents the command now; "" if it is not temporary
	until          time.Time
}

func (e *stateError) Error() string { return e.command + " is not possible: " + e.why }

// repeatError refuses a repetition whose first answer is not kept, or no more.
type repeatError struct{ id string }

func (e *repeatError) Error() string {
	text := "a request with this Idempotency-Key was carried out, and its answer is not kept: those with a secret are for " +
		strconv.Itoa(int(webhook.SecretAnswersKept.Minutes())) + " minutes"
	if e.id != "" {
		text += "; it was about " + e.id
	}
	return text
}

// challenge is the WWW-Authenticate header (RFC 6750 §3).
const challenge = `Bearer realm="everpost"`

// problems answers with errors, and logs those whose cause it does not tell.
type problems struct{ log *slog.Logger }

// write writes the problem for an error. Handlers pass the errors of the stores unchanged:
// they have a code, and the log line has the route and the request. Not found only contains the
// route's noun, whichever part of the path does not exist: another tenant's resource and one that
// does not exist must have the same response.
func (p problems) write(c echo.Context, noun string, err error) error {
	known := &webhook.Error{}
	if found, ok := errors.AsType[*webhook.Error](err); ok {
		known = found
	}
	kind := classOf(known.Code)
	shown := client.Problem{Detail: known.Message}
	if refused, ok := errors.AsType[*httpError](err); ok {
		kind, shown.Detail = refused.class, refused.detail
	} else if repeated, ok := errors.AsType[*repeatError](err); ok {
		kind, shown.Detail, shown.ID = alreadyCreated(), repeated.Error(), repeated.id
	} else if refused, ok := errors.AsType[*stateError](err); ok {
		kind, shown.Detail, shown.State = classOf(webhook.CodeConflict), refused.Error(), refused.state
		shown.WaitsFor, shown.Until = refused.waitsFor, timestamp(refused.until)
	}

	if kind.status == http.StatusConflict && known.RetryAfter > 0 {
		c.Response().Header().Set("Retry-After", retryAfterSeconds(known.RetryAfter))
	}
	switch kind.status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusConflict, http.StatusUnprocessableEntity:
		if len(known.Fields) > 0 {
			shown.Errors, shown.Detail = showFields(known.Fields), fieldsInWords(known.Fields)
		}
	case http.StatusUnauthorized:
		if header := c.Response().Header(); header.Get("WWW-Authenticate") == "" { // RFC 9110 §15.5.2 requires it
			header.Set("WWW-Authenticate", challenge)
		}
	case http.StatusNotFound:
		if noun != "" {
			shown.Detail = "no such " + noun
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		c.Response().Header().Set("Retry-After", retryAfterSeconds(known.RetryAfter))
	case http.StatusInternalServerError:
		shown.Detail = internalDetail
		p.logInternal(c, err)
	}
	return writeProblem(c, kind, shown)
}

// logInternal logs an internal error. A client that disconnected is not an error, whether it shows
// as a cancelled context or as a failed write.
func (p problems) logInternal(c echo.Context, err error) {
	ctx := c.Request().Context()
	level := slog.LevelError
	if c.Response().Committed || errors.Is(err, context.Canceled) && ctx.Err() != nil {
		level = slog.LevelDebug
	}
	p.log.LogAttrs(ctx, level, "request failed",
		slog.String("request_id", requestID(c)), slog.String("method", c.Request().Method),
		slog.String("route", c.Path()), slog.Any("error", err))
}

func writeProblem(c echo.Context, k class, p client.Problem) error {
	if c.Response().Committed {
		return nil
	}
	p.Type, p.Title, p.Status, p.RequestID = client.ProblemBase+string(k.code), k.title, k.status, requestID(c)
	p.Help = reference.ErrorAddress(string(k.code))
	if p.Detail == "" {
		p.Detail = strings.ToLower(k.title)
	}
	text, err := encodeJSON(p) // before the status is written, so that an error still becomes an answer
	if err != nil {
		return fmt.Errorf("encode answer of %s: %w", c.Path(), err)
	}
	if err := c.Blob(k.status, "application/problem+json", text); err != nil {
		return fmt.Errorf("write answer of %s: %w", c.Path(), err)
	}
	return nil
}

// writeOfRouter writes the response to a request without a route: the router's 404 and 405.
func (p problems) writeOfRouter(err error, c echo.Context) {
	header := c.Response().Header()
	var answer error
	switch he, _ := errors.AsType[*echo.HTTPError](err); {
	case he == nil:
		answer = p.write(c, "", err)
	case he.Code == http.StatusMethodNotAllowed:
		allow, _ := c.Get(echo.ContextKeyHeaderAllow).(string)
		header.Set("Allow", strings.TrimPrefix(allow, http.MethodOptions+", "))
		answer = p.write(c, "", &httpError{
			methodNotAllowed(),
			"this path does not support " + c.Request().Method,
		})
	default:
		answer = p.write(c, "route", webhook.NotFound("route"))
	}
	if answer != nil { // the client disconnected
		p.log.LogAttrs(c.Request().Context(), slog.LevelDebug, "answer not written", slog.String("request_id", requestID(c)))
	}
}

func showFields(fields []webhook.FieldError) []client.FieldError {
	shown := make([]client.FieldError, len(fields))
	for i, f := range fields {
		shown[i] = client.FieldError(f)
	}
	return shown
}

// fieldsInWords is the first error and the number of the others.
func fieldsInWords(fields []webhook.FieldError) string {
	text := client.FieldError(fields[0]).Place() + ": " + fields[0].Message
	if more := len(fields) - 1; more > 0 {
		text += " (and " + strconv.Itoa(more) + " more)"
	}
	return text
}

// retryAfterSeconds rounds up to whole seconds (RFC 9110 §10.2.3), at least one.
func retryAfterSeconds(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Second-1)/time.Second), 1), 10)
}

// requestID returns the id of the request in the log and the audit log.
func requestID(c echo.Context) string {
	return c.Response().Header().Get(echo.HeaderXRequestID)
}
