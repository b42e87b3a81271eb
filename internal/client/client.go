// Package client makes requests to Everpost's HTTP API, for the command line and the MCP server.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// Timeout bounds one request to the API as a whole. The slowest response is that of an
	// endpoint test, which takes as long as the receiver may: 30 s.
	Timeout = 45 * time.Second

	// maxAnswer is more than the largest page: 250 attempts with their excerpts.
	maxAnswer = 64 << 20
)

// ErrNotEverpost is the error for a response that does not come from Everpost's API.
var ErrNotEverpost = errors.New("the answer is not what Everpost's API gives: is --url right?")

// Client makes requests to one installation with one key.
type Client struct {
	http  *http.Client
	base  string // without a trailing slash
	key   string // "" when there is none
	agent string
}

// Request is one call of the API.
type Request struct {
	Method string
	Path   []string // below /v1, not escaped
	Query  url.Values
	Body   []byte // JSON; nil for none
	Header map[string]string
}

// Answer is a 2xx response of the API.
type Answer struct {
	Body   []byte
	Header http.Header
}

// New returns a client of the API at base, an absolute URL without user, query and fragment.
// agent is the User-Agent.
func New(base, key, agent string) *Client {
	return &Client{
		base: strings.TrimRight(base, "/"), key: key, agent: agent,
		http: &http.Client{
			Timeout: Timeout,
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
				TLSHandshakeTimeout: 10 * time.Second,
				IdleConnTimeout:     time.Minute,
			},
			// Send the key to the given address only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// WithKey returns a client that shares the connections and uses another key.
func (c *Client) WithKey(key string) *Client {
	other := *c
	other.key = key
	return &other
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do makes a request. A response that is not 2xx is an *APIError. A *NoResponseError and
// ErrInterrupted mean that there was no response.
func (c *Client) Do(ctx context.Context, r Request) (Answer, error) {
	response, err := c.send(ctx, c.http, r)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	body, err := c.read(ctx, response)
	return Answer{Body: body, Header: response.Header}, err
}

// send makes a request and returns a 2xx response, whose body the caller closes.
func (c *Client) send(ctx context.Context, over *http.Client, r Request) (*http.Response, error) {
	parts := []string{c.base, "v1"}
	for _, part := range r.Path {
		parts = append(parts, url.PathEscape(part))
	}
	target := strings.Join(parts, "/")
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(r.Body))
	if err != nil {
		return nil, errors.New("--url: is not an address") // err contains the query
	}
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Accept", "application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	response, err := over.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		defer response.Body.Close()
		body, err := c.read(ctx, response)
		if err != nil {
			return nil, err
		}
		return nil, c.newAPIError(req, response, body)
	}
	return response, nil
}

func (c *Client) read(ctx context.Context, response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer of %s is larger than %d MiB", c.base, maxAnswer>>20)
	}
	return body, nil
}

// Decode decodes a response. The error is ErrNotEverpost.
func Decode[T any](a Answer) (T, error) {
	var v T
	if err := json.Unmarshal(a.Body, &v); err != nil {
		return v, ErrNotEverpost
	}
	return v, nil
}
