package api

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

const maxRequestID = 128

// middleware handles what all requests have in common, including those without a route: the
// request id, headers, a log line at debug level, and the response after a panic.
func (s *Server) middleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Response().Header()
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !validRequestID(id) {
			id = rand.Text()
		}
		header.Set(echo.HeaderXRequestID, id)
		header.Set("X-Content-Type-Options", "nosniff")
		if c.Request().ContentLength != 0 {
			// Before it responds, net/http reads the rest of a body that a handler did not read. The
			// memory of a refused request's body is not reserved, so this deadline limits the read.
			_ = http.NewResponseController(c.Response().Writer).SetReadDeadline(time.Now().Add(s.bodies.pace.grace))
		}

		start, status, answered := time.Now(), statusCut, s.observe(c)
		defer func() { answered(status) }()
		if err := s.recoverPanic(c, next); err != nil {
			c.Error(err) // written here, so that metrics and log line have the status
		}
		status = c.Response().Status
		ctx := c.Request().Context()
		if s.log.Enabled(ctx, slog.LevelDebug) {
			s.log.LogAttrs(ctx, slog.LevelDebug, "request",
				slog.String("request_id", id), slog.String("method", c.Request().Method), slog.String("route", c.Path()),
				slog.Int("status", status), slog.Duration("took", time.Since(start).Round(time.Microsecond)))
		}
		return nil
	}
}

// recoverPanic turns a panic into a response. It logs the panic's value only for a runtime
// error, because any other value may contain secrets.
func (s *Server) recoverPanic(c echo.Context, next echo.HandlerFunc) (err error) {
	defer func() {
		panicked := recover()
		if panicked == nil {
			return
		}
		if panicked == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
			panic(panicked)
		}
		what := fmt.Sprintf("%T", panicked)
		if e, ok := panicked.(runtime.Error); ok {
			what = e.Error()
		}
		s.log.LogAttrs(c.Request().Context(), slog.LevelError, "panic",
			slog.String("request_id", requestID(c)), slog.String("route", c.Path()),
			slog.String("value", what), slog.String("stack", string(debug.Stack())))
		if c.Response().Committed {
			panic(http.ErrAbortHandler) // abort the connection, so that a partial response does not look complete
		}
		err = writeProblem(c, classOf(webhook.CodeInternal), client.Problem{Detail: internalDetail})
	}()
	return next(c)
}

// validRequestID reports whether a client's request id may be used in logs and responses.
func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', isDigit(c):
		case c == '-', c == '_', c == '.', c == ':', c == '/', c == '+', c == '=':
		default:
			return false
		}
	}
	return true
}
