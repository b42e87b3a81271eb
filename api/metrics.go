package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/everpost/everpost/internal/tracing"
)

// The causes of Metrics.AuthFailed, in addition to the values of webhook.KeyError.
const (
	AuthMissing   = "missing"   // no Authorization
	AuthMalformed = "malformed" // not a Bearer token that can be a key
)

// The causes of Metrics.BodyRefused.
const (
	BodyOverTenant  = "tenant"  // the limit for the tenant's bodies is reached
	BodyOverProcess = "process" // the limit for the process's bodies is reached
	BodyTooSlow     = "slow"
)

// OperationNone is the operation of requests to a path or with a method that has no route.
const OperationNone = "none"

// Metrics counts requests. The causes are the constants above and those of webhook.KeyError, never a
// value from the request.
type Metrics interface {
	// AuthFailed and BodyRefused count requests that are refused before their handler runs.
	AuthFailed(cause string)
	BodyRefused(cause string)
	// Answered counts every request by its operationId, or OperationNone.
	Answered(operation string, status int, took time.Duration)
}

type noMetrics struct{}

func (noMetrics) AuthFailed(string)  {}
func (noMetrics) BodyRefused(string) {}

func (noMetrics) Answered(string, int, time.Duration) {}

// InFlight is the number of requests that are being answered.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }

// routeOf returns the route of a request; false if there is none.
func (s *Server) routeOf(c echo.Context) (route, bool) {
	r, known := s.byPath[c.Request().Method+" "+c.Path()]
	return r, known
}

// observe begins what is measured of a request, and puts the span, if there are traces, into its
// context. The caller calls answered once.
func (s *Server) observe(c echo.Context) (answered func(status int)) {
	s.inFlight.Add(1)
	began, operation, name := time.Now(), OperationNone, "HTTP"
	if r, known := s.routeOf(c); known {
		operation, name = r.id, r.method+" "+r.path
	}
	span := s.traceRequest(c, operation, name)
	return func(status int) {
		s.inFlight.Add(-1)
		s.config.Metrics.Answered(operation, status, time.Since(began))
		span.Answered(status)
		span.End(nil)
	}
}

func (s *Server) traceRequest(c echo.Context, operation, name string) *tracing.Span {
	request := c.Request()
	span := s.config.Tracer.Request(request.Context(), request.Header, name)
	if span == nil {
		return nil
	}
	if operation != OperationNone {
		_, route, _ := strings.Cut(name, " ")
		span.Text("http.request.method", request.Method)
		span.Text("http.route", route)
	}
	span.Text("everpost.operation", operation)
	span.Text("everpost.request_id", requestID(c))
	c.SetRequest(request.WithContext(span.In(request.Context())))
	return span
}

// statusCut stands for the status of a request whose connection was cut after a panic.
const statusCut = http.StatusInternalServerError
