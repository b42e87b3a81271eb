package contracttest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Transport looks at every answer that comes through it. An answer that violates the
// document is an error of the request, and kept: a test that expects requests to fail,
// because it takes the server away, would not notice.
type Transport struct {
	Document *Document
	Base     http.RoundTripper

	mu      sync.Mutex
	checked int
	found   []error
}

// maxFound is how many violations are kept.
const maxFound = 20

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip implements http.RoundTripper. It reads the answer to its end.
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

// CloseIdleConnections lets http.Client close those of the base.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// Violations are those so far, 20 at most, and how many answers were looked at.
func (t *Transport) Violations() (found []error, checked int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]error(nil), t.found...), t.checked
}
