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

	"github.com/everpost/everpost/internal/webhook"
)

const maxRequestID = 128

// around does what every request gets, also one that no route takes: its id, the
// headers, a log line at debug level, and an answer when a handler panics.
func (s *Server) around(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Response().Header()
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !saneRequestID(id) {
			id = rand.Text()
		}
		header.Set(echo.HeaderXRequestID, id)
		header.Set("X-Content-Type-Options", "nosniff")
		if c.Request().ContentLength != 0 {
			// The server reads what a handler leaves of a body before it answers. For a request
			// that is refused, which has no room reserved, it does so no longer than this.
			_ = http.NewResponseController(c.Response().Writer).SetReadDeadline(time.Now().Add(s.pace.grace))
		}

		ctx := c.Request().Context()
		if !s.Logger.Enabled(ctx, slog.LevelDebug) {
			return s.guarded(c, next)
		}
		start := time.Now()
		err := s.guarded(c, next)
		if err != nil {
			c.Error(err) // written now, so that its status is known
		}
		s.Logger.LogAttrs(ctx, slog.LevelDebug, "request",
			slog.String("request_id", id), slog.String("method", c.Request().Method), slog.String("route", c.Path()),
			slog.Int("status", c.Response().Status), slog.Duration("took", time.Since(start).Round(time.Microsecond)))
		return nil
	}
}

// guarded turns a panic into an answer. What was panicked with is logged only when
// it is the runtime's: any other value may hold what must not be in a log.
func (s *Server) guarded(c echo.Context, next echo.HandlerFunc) (err error) {
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
		s.Logger.LogAttrs(c.Request().Context(), slog.LevelError, "panic",
			slog.String("request_id", requestID(c)), slog.String("route", c.Path()),
			slog.String("value", what), slog.String("stack", string(debug.Stack())))
		if c.Response().Committed {
			panic(http.ErrAbortHandler) // half an answer must not look whole
		}
		err = s.writeProblem(c, classOf(webhook.CodeInternal), problem{Detail: internalDetail})
	}()
	return next(c)
}

// saneRequestID reports whether an id from outside may stand in logs and answers.
func saneRequestID(id string) bool {
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
