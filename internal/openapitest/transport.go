package openapitest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Transport checks every response. A violation of the document is an error of the request,
// and is recorded: a test that expects failing requests, because it stops the server, would
// not notice it.
type Transport struct {
	Document *Document
	Base     http.RoundTripper

	mu      sync.Mutex
	checked int
	found   []error
}

// maxFound bounds the recorded violations.
const maxFound = 20

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip implements http.RoundTripper. It reads the whole response.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Base.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // a transport is transparent
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	err = t.Document.Check(Answer{Method: r.Method, Path: r.URL.EscapedPath(), Status: response.StatusCode, Header: response.Header, Body: body})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checked++
	if err != nil {
		if len(t.found) < maxFound {
			t.found = append(t.found, err)
		}
		return nil, err
	}
	return response, nil
}

// CloseIdleConnections closes the idle connections of the base transport.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// Violations returns the recorded violations, 20 at most, and the number of checked
// responses.
func (t *Transport) Violations() (found []error, checked int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]error(nil), t.found...), t.checked
}
