package installation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxConnections bounds the concurrent requests.
const MaxConnections = 512

// Client calls the HTTP API.
type Client struct {
	Base string // http://127.0.0.1:8080
	HTTP *http.Client
	key  string
}

// NewClient returns a client with a key.
func NewClient(base, key string) *Client {
	return &Client{Base: base, key: "Bearer " + key, HTTP: NewHTTPClient()}
}

// Key returns the API key.
func (c *Client) Key() string { return strings.TrimPrefix(c.key, "Bearer ") }

// NewHTTPClient returns a client that keeps many connections to the same host.
func NewHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{MaxIdleConns: MaxConnections, MaxIdleConnsPerHost: MaxConnections, DisableCompression: true},
		Timeout:   time.Minute,
	}
}

// Answer is the head of a response.
type Answer struct {
	Status     int
	RetryAfter time.Duration // a second without a Retry-After header
}

// Send sends JSON and decodes the response into target unless it is nil. An unexpected
// status is a *StatusError.
func (c *Client) Send(ctx context.Context, method, path string, body []byte, target any, want ...int) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Authorization", c.key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Answer{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer response.Body.Close()
	for _, status := range want {
		if response.StatusCode != status {
			continue
		}
		if target == nil || status >= http.StatusBadRequest {
			_, err = io.Copy(io.Discard, response.Body)
		} else {
			err = json.NewDecoder(response.Body).Decode(target)
		}
		if err != nil {
			return Answer{}, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
		}
		return Answer{status, retryAfter(response.Header)}, nil
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // a partial body is sufficient
	return Answer{}, &StatusError{Call: method + " " + path, Status: response.StatusCode, Text: string(bytes.TrimSpace(text))}
}

// SendWhenReady is Send, repeated while the API responds with 429 or 503. It returns how
// often it repeated it.
func (c *Client) SendWhenReady(ctx context.Context, method, path string, body []byte, target any, want int) (refusals int, err error) {
	for {
		got, err := c.Send(ctx, method, path, body, target, want, http.StatusTooManyRequests, http.StatusServiceUnavailable)
		if err != nil || got.Status == want {
			return refusals, err
		}
		refusals++
		if err := Pause(ctx, got.RetryAfter); err != nil {
			return refusals, err
		}
	}
}

// StatusError is a response with an unexpected status.
type StatusError struct {
	Call   string
	Status int
	Text   string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: answered %d: %s", e.Call, e.Status, e.Text)
}

// retryAfter is the response's Retry-After.
func retryAfter(header http.Header) time.Duration {
	n, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || n < 0 {
		n = 1
	}
	return time.Duration(n) * time.Second
}

// Pause waits. Its error is ctx's.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
