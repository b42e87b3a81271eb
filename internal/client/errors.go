package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/everpost/everpost/internal/webhook"
)

// Problem is what is read of Everpost's problem document (RFC 9457).
type Problem struct {
	Detail    string               `json:"detail"`
	RequestID string               `json:"request_id"`
	Errors    []webhook.FieldError `json:"errors"`
}

// APIError is a response that is not 2xx.
type APIError struct {
	Problem // zero when Foreign

	Status     int
	RetryAfter string // the header, "" for none
	Method     string
	Path       string // of the request's URL
	Foreign    bool   // the response is not one that Everpost gives
	base       string
}

// Error returns the detail of the problem. It may contain text of the request.
func (e *APIError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("%s answered %d %s, and not as Everpost does: is --url the address of its API?",
			e.base, e.Status, http.StatusText(e.Status))
	}
	return e.Detail
}

func (c *Client) newAPIError(req *http.Request, response *http.Response, body []byte) *APIError {
	e := &APIError{
		Status: response.StatusCode, RetryAfter: response.Header.Get("Retry-After"), Method: req.Method, Path: req.URL.Path, base: c.base,
	}
	media, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if media != "application/problem+json" || json.Unmarshal(body, &e.Problem) != nil || e.Detail == "" {
		e.Problem, e.Foreign = Problem{}, true
	}
	return e
}

// NoResponseError is the error of a request without a response.
type NoResponseError struct {
	Text    string // without the request's path and query
	NotSent bool   // nothing was sent, so the request was not carried out
}

// Error implements error.
func (e *NoResponseError) Error() string { return e.Text }

// ErrInterrupted is the error of a request whose context has ended.
var ErrInterrupted = errors.New("interrupted")

// unreachable describes why there was no response, without the request's query, which
// net/http's errors contain.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if refused := errors.Is(err, syscall.ECONNREFUSED); refused {
		return &NoResponseError{"is Everpost running at " + c.base + "? Nothing listens there. " +
			"Start it with 'make run', or give its address with --url or $EVERPOST_URL", true}
	}
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		return &NoResponseError{"the host of " + c.base + " is not known; check --url", true}
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return &NoResponseError{Text: fmt.Sprintf("no answer from %s within %s", c.base, Timeout)}
	}
	return &NoResponseError{Text: "no answer from " + c.base + ": " + err.Error()}
}
