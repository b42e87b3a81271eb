package api

import (
	"net/http"
	"strings"
	"sync/atomic"
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
	// Answered counts every request from outside by its operationId, or OperationNone.
	Answered(operation string, status int, took time.Duration)
	// AnsweredInside counts a request of a Caller inside the process.
	AnsweredInside(operation string, status int)
}

type noMetrics struct{}

func (noMetrics) AuthFailed(string)  {}
func (noMetrics) BodyRefused(string) {}

func (noMetrics) Answered(string, int, time.Duration) {}
func (noMetrics) AnsweredInside(string, int)          {}

// observer counts and traces requests.
type observer struct {
	metrics  Metrics
	tracer   *tracing.Tracer  // nil for none
	routes   map[string]route // by method and path of Echo
	inFlight atomic.Int64
}

func newObserver(metrics Metrics, tracer *tracing.Tracer, routes []route) *observer {
	o := &observer{metrics: metrics, tracer: tracer, routes: make(map[string]route, len(routes))}
	for _, r := range routes {
		o.routes[r.method+" "+r.echoPath()] = r
	}
	return o
}

// InFlight is the number of requests that are being answered.
func (o *observer) InFlight() int { return int(o.inFlight.Load()) }

// observe begins what is measured of a request. The caller calls answered once.
func (o *observer) observe(c echo.Context) (answered func(status int)) {
	o.inFlight.Add(1)
	began, operation, name := time.Now(), OperationNone, "HTTP"
	if r, known := o.routes[c.Request().Method+" "+c.Path()]; known {
		operation, name = r.id, r.method+" "+r.path
	}
	var traced *requestTrace
	if o.tracer != nil {
		traced = &requestTrace{tracer: o.tracer, operation: operation, name: name, began: began}
		c.Set(requestTraceKey, traced)
	}
	_, inside := c.Request().Context().Value(callerKey{}).(Caller)
	return func(status int) {
		o.inFlight.Add(-1)
		if inside {
			o.metrics.AnsweredInside(operation, status)
		} else {
			o.metrics.Answered(operation, status, time.Since(began))
		}
		traced.end(c, status)
	}
}

// requestTraceKey is where a request has its requestTrace, if there are traces.
const requestTraceKey = "trace"

// requestTrace makes the span of a request: below the caller's if the caller is authenticated, and else in a trace of
// its own, so that an unauthenticated caller does not decide what is traced.
type requestTrace struct {
	tracer          *tracing.Tracer
	operation, name string
	began           time.Time
	span            *tracing.Span
}

// traceAuthenticated starts the span of an authenticated request and stores it in the request's context.
func traceAuthenticated(c echo.Context) {
	t, traced := c.Get(requestTraceKey).(*requestTrace)
	if !traced {
		return
	}
	request := c.Request()
	t.span = t.tracer.Request(request.Context(), request.Header, t.name, t.began)
	c.SetRequest(request.WithContext(t.span.In(request.Context())))
}

func (t *requestTrace) end(c echo.Context, status int) {
	if t == nil {
		return
	}
	if t.span == nil {
		t.span = t.tracer.Stranger(c.Request().Header, t.name, t.began)
	}
	if t.operation != OperationNone {
		_, route, _ := strings.Cut(t.name, " ")
		t.span.Text("http.request.method", c.Request().Method)
		t.span.Text("http.route", route)
	}
	t.span.Text("everpost.operation", t.operation)
	t.span.Text("everpost.request_id", requestID(c))
	t.span.Answered(status)
	t.span.End(nil)
}

// statusCut stands for the status of a request whose connection was cut after a panic.
const statusCut = http.StatusInternalServerError
