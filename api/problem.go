package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	problemBase    = "https://everpost.dev/errors/" // where the types of problems are described
	internalDetail = "something went wrong on our side; the request id finds it in our log"
)

// problem is an answer that is an error (RFC 9457).
type problem struct {
	Type      string               `json:"type"`
	Title     string               `json:"title"`
	Status    int                  `json:"status"`
	Detail    string               `json:"detail"`
	RequestID string               `json:"request_id"`
	State     string               `json:"state,omitempty"`     // of the delivery or replay that refused a command
	WaitsFor  string               `json:"waits_for,omitempty"` // what keeps it from being carried out now
	Until     timestamp            `json:"until,omitzero"`      // when that is likely to be over
	Errors    []webhook.FieldError `json:"errors,omitempty"`
}

// class is what all problems of a type have in common.
type class struct {
	status int
	slug   string
	title  string
}

// classOf is the one place where the domain's codes become HTTP.
func classOf(code webhook.Code) class {
	switch code {
	case webhook.CodeInvalid:
		return class{http.StatusBadRequest, "validation", "The request is not valid"}
	case webhook.CodeUnauthenticated:
		return class{http.StatusUnauthorized, "unauthenticated", "No valid API key"}
	case webhook.CodeForbidden:
		return class{http.StatusForbidden, "forbidden", "The API key may not do this"}
	case webhook.CodeNotFound:
		return class{http.StatusNotFound, "not-found", "Not found"}
	case webhook.CodeConflict:
		return class{http.StatusConflict, "conflict", "Not possible in the present state"}
	case webhook.CodeQuota:
		return class{http.StatusConflict, "quota-exceeded", "A quota of the tenant is used up"}
	case webhook.CodeTooLarge:
		return class{http.StatusRequestEntityTooLarge, "too-large", "The request is too large"}
	case webhook.CodeMismatch:
		return class{http.StatusUnprocessableEntity, "idempotency-mismatch", "The key was used with another body"}
	case webhook.CodeRateLimited:
		return class{http.StatusTooManyRequests, "rate-limited", "Too many requests"}
	case webhook.CodeUnavailable:
		return class{http.StatusServiceUnavailable, "unavailable", "Not available at the moment"}
	case webhook.CodeInternal:
	}
	return class{http.StatusInternalServerError, "internal", "Internal error"}
}

// What only HTTP knows to refuse.
func unsupportedMedia() class {
	return class{http.StatusUnsupportedMediaType, "unsupported-media-type", "The media type is not supported"}
}

func requestTimeout() class {
	return class{http.StatusRequestTimeout, "request-timeout", "The request came too slowly"}
}

func methodNotAllowed() class {
	return class{http.StatusMethodNotAllowed, "method-not-allowed", "The method is not allowed"}
}

// httpError is a refusal that only HTTP knows.
type httpError struct {
	class  class
	detail string
}

func (e *httpError) Error() string { return e.detail }

// stateError is the refusal of a command that makes no sense for what it is asked of.
type stateError struct {
	command, state string
	why            string // a sentence without its full stop: the delivery is held
	waitsFor       string // what keeps it from being carried out now, "" for nothing that passes
	until          time.Time
}

func (e *stateError) Error() string { return e.command + " is not possible: " + e.why }

// writeError answers with the problem that an error is. Handlers hand it the errors
// of the stores as they are: they carry their code, and the log line names the
// route and the request. Not found says what by the
// route's noun alone, whichever part of the path it was: another tenant's thing
// and one that does not exist must read the same.
func (s *Server) writeError(c echo.Context, noun string, err error) error {
	known := &webhook.Error{}
	if found, ok := errors.AsType[*webhook.Error](err); ok {
		known = found
	}
	kind := classOf(known.Code)
	p := problem{Detail: known.Message}
	if refused, ok := errors.AsType[*httpError](err); ok {
		kind, p.Detail = refused.class, refused.detail
	} else if refused, ok := errors.AsType[*stateError](err); ok {
		kind, p.Detail, p.State = classOf(webhook.CodeConflict), refused.Error(), refused.state
		p.WaitsFor, p.Until = refused.waitsFor, timestamp(refused.until)
	}

	switch kind.status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusConflict, http.StatusUnprocessableEntity:
		if len(known.Fields) > 0 {
			p.Errors, p.Detail = known.Fields, fieldsInWords(known.Fields)
		}
	case http.StatusUnauthorized:
		if header := c.Response().Header(); header.Get("WWW-Authenticate") == "" { // RFC 9110 §15.5.2 wants one
			header.Set("WWW-Authenticate", challenge)
		}
	case http.StatusNotFound:
		if noun != "" {
			p.Detail = "no such " + noun
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		c.Response().Header().Set("Retry-After", retryAfterSeconds(known.RetryAfter))
	case http.StatusInternalServerError:
		p.Detail = internalDetail
		s.logInternal(c, err)
	}
	return s.writeProblem(c, kind, p)
}

// logInternal logs an error of ours. A client that went away is none, whether it
// shows as a cancelled context or as an answer that could not be written.
func (s *Server) logInternal(c echo.Context, err error) {
	ctx := c.Request().Context()
	level := slog.LevelError
	if c.Response().Committed || errors.Is(err, context.Canceled) && ctx.Err() != nil {
		level = slog.LevelDebug
	}
	s.Logger.LogAttrs(ctx, level, "request failed",
		slog.String("request_id", requestID(c)), slog.String("method", c.Request().Method),
		slog.String("route", c.Path()), slog.Any("error", err))
}

func (s *Server) writeProblem(c echo.Context, k class, p problem) error {
	if c.Response().Committed {
		return nil
	}
	p.Type, p.Title, p.Status, p.RequestID = problemBase+k.slug, k.title, k.status, requestID(c)
	if p.Detail == "" {
		p.Detail = strings.ToLower(k.title)
	}
	return writeJSON(c, k.status, "application/problem+json", p)
}

// routerError answers what no route takes: 404 and 405 of the router.
func (s *Server) routerError(err error, c echo.Context) {
	header := c.Response().Header()
	var answer error
	switch he, _ := errors.AsType[*echo.HTTPError](err); {
	case he == nil:
		answer = s.writeError(c, "", err)
	case he.Code == http.StatusMethodNotAllowed:
		allow, _ := c.Get(echo.ContextKeyHeaderAllow).(string)
		header.Set("Allow", strings.TrimPrefix(allow, http.MethodOptions+", "))
		answer = s.writeError(c, "", &httpError{
			methodNotAllowed(),
			"this address does not take " + c.Request().Method,
		})
	default:
		answer = s.writeError(c, "route", webhook.NotFound("route"))
	}
	if answer != nil { // the client went away while it was written
		s.Logger.LogAttrs(c.Request().Context(), slog.LevelDebug, "answer not written", slog.String("request_id", requestID(c)))
	}
}

// fieldsInWords is the first error, and how many more there are.
func fieldsInWords(fields []webhook.FieldError) string {
	text := fields[0].Field + ": " + fields[0].Message
	if more := len(fields) - 1; more > 0 {
		text += " (and " + strconv.Itoa(more) + " more)"
	}
	return text
}

// retryAfterSeconds rounds up to the whole seconds of RFC 9110 §10.2.3, one at least.
func retryAfterSeconds(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Second-1)/time.Second), 1), 10)
}
