package installation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// MaxConnections bounds the requests under way, also when more are due.
const MaxConnections = 512

// Client is one caller of the HTTP API.
type Client struct {
	Base string // http://127.0.0.1:8080
	HTTP *http.Client
	key  string
}

// NewClient is a caller with a key.
func NewClient(base, key string) *Client {
	return &Client{Base: base, key: "Bearer " + key, HTTP: NewHTTPClient()}
}

// NewHTTPClient keeps many connections to the same host.
func NewHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{MaxIdleConns: MaxConnections, MaxIdleConnsPerHost: MaxConnections, DisableCompression: true},
		Timeout:   time.Minute,
	}
}

// Answer is the head of one.
type Answer struct {
	Status     int
	RetryAfter time.Duration // a second when the answer does not say
}

// Send sends JSON. A status that is not wanted is a *StatusError. A target gets the answer
// decoded.
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
	text, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // what there is of it will do
	return Answer{}, &StatusError{Call: method + " " + path, Status: response.StatusCode, Text: string(bytes.TrimSpace(text))}
}

// SendWhenReady is Send, repeated for as long as the door says that it is busy. It returns
// how often that was.
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

// StatusError is an answer that nobody asked for.
type StatusError struct {
	Call   string
	Status int
	Text   string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: answered %d: %s", e.Call, e.Status, e.Text)
}

// retryAfter is how long to wait as asked.
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
