package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxConnections bounds the requests under way, also when more are due.
const maxConnections = 512

// client is one caller of the HTTP API.
type client struct {
	base, key string
	http      *http.Client
}

func newClient(base, key string) *client {
	return &client{base: base, key: "Bearer " + key, http: newHTTPClient()}
}

func newHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{MaxIdleConns: maxConnections, MaxIdleConnsPerHost: maxConnections, DisableCompression: true},
		Timeout:   time.Minute,
	}
}

// tenant is whose events all are.
const tenant = "bench"

// path is an address below the tenant.
func path(rest string) string { return "/v1/tenants/" + tenant + rest }

// answer is the head of one.
type answer struct {
	status     int
	retryAfter time.Duration // a second when the answer does not say
}

// send sends JSON. A status that is not wanted is a *statusError. A target gets the answer
// decoded.
func (c *client) send(ctx context.Context, method, path string, body []byte, target any, want ...int) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Authorization", c.key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return answer{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer response.Body.Close()
	for _, status := range want {
		if response.StatusCode != status {
			continue
		}
		if target == nil {
			_, err = io.Copy(io.Discard, response.Body)
		} else {
			err = json.NewDecoder(response.Body).Decode(target)
		}
		if err != nil {
			return answer{}, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
		}
		return answer{status, retryAfter(response.Header)}, nil
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // what there is of it will do
	return answer{}, &statusError{call: method + " " + path, status: response.StatusCode, text: string(bytes.TrimSpace(text))}
}

// statusError is an answer that nobody asked for.
type statusError struct {
	call   string
	status int
	text   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: answered %d: %s", e.call, e.status, e.text)
}

// putTenant makes the tenant.
func (c *client) putTenant(ctx context.Context) error {
	_, err := c.send(ctx, http.MethodPut, path(""), []byte(`{"name":"Benchmark"}`), nil, http.StatusCreated, http.StatusOK)
	return err
}

// addEndpoint makes an endpoint for one type of event and returns its id.
func (c *client) addEndpoint(ctx context.Context, address, eventType string, further map[string]any) (string, error) {
	fields := map[string]any{"url": address, "event_types": []string{eventType}}
	maps.Copy(fields, further)
	body, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("make an endpoint: %w", err)
	}
	var made struct {
		ID string `json:"id"`
	}
	_, err = c.send(ctx, http.MethodPost, path("/endpoints"), body, &made, http.StatusCreated)
	return made.ID, err
}

// count is how many deliveries of an endpoint are in one of the states; it stops counting
// at the limit.
func (c *client) count(ctx context.Context, endpoint string, limit int, states ...string) (int, error) {
	const page = 250 // the most that a list gives at a time
	query := url.Values{"endpoint_id": {endpoint}, "state": states, "limit": {strconv.Itoa(min(limit, page))}}
	n := 0
	for {
		var got struct {
			Data       []json.RawMessage `json:"data"`
			NextCursor *string           `json:"next_cursor"`
		}
		if _, err := c.send(ctx, http.MethodGet, path("/deliveries?"+query.Encode()), nil, &got, http.StatusOK); err != nil {
			return 0, err
		}
		n += len(got.Data)
		if n >= limit || got.NextCursor == nil {
			return n, nil
		}
		query.Set("cursor", *got.NextCursor)
	}
}

// errNoBatch says that the door has no …/events/batch.
var errNoBatch = errors.New("this version has no POST …/events/batch")

// postEvents posts a request and repeats it for as long as the door says that it is busy.
// It returns how often that was.
func (c *client) postEvents(ctx context.Context, batch bool, body []byte) (refusals int, err error) {
	rest := "/events"
	if batch {
		rest += "/batch"
	}
	for {
		got, err := c.send(ctx, http.MethodPost, path(rest), body, nil,
			http.StatusAccepted, http.StatusTooManyRequests, http.StatusServiceUnavailable)
		if failed, ok := errors.AsType[*statusError](err); ok && batch && failed.status == http.StatusNotFound {
			return refusals, errNoBatch
		}
		if err != nil || got.status == http.StatusAccepted {
			return refusals, err
		}
		refusals++
		if err := pause(ctx, got.retryAfter); err != nil {
			return refusals, err
		}
	}
}

// retryAfter is how long to wait as asked.
func retryAfter(header http.Header) time.Duration {
	n, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || n < 0 {
		n = 1
	}
	return time.Duration(n) * time.Second
}

// pause waits. Its error is ctx's.
func pause(ctx context.Context, d time.Duration) error {
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
