package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// DefaultTimeout is longer than the slowest answer takes: that of an endpoint test, up to 30 s.
	DefaultTimeout = 45 * time.Second

	// maxAnswer is more than the largest page: 250 attempts with their excerpts.
	maxAnswer = 64 << 20
)

// Config configures a Client.
type Config struct {
	// URL is the address of the installation, without a user, query and fragment: "https://everpost.example".
	URL string

	// Key is the API key. Without one, requests have none.
	Key string

	// UserAgent defaults to "everpost-go".
	UserAgent string

	// Timeout bounds one request as a whole, but not an export. It defaults to DefaultTimeout.
	Timeout time.Duration

	// Transport makes the requests. It defaults to one of the client's own, with the proxy of the environment.
	Transport http.RoundTripper
}

// Client calls the API of one installation with one key. It may be used concurrently.
type Client struct {
	http  *http.Client
	base  string // without a trailing slash
	key   string // "" when there is none
	agent string
}

// New returns a client. It fails if the URL is not an address such as "https://everpost.example".
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the URL must be an address such as https://everpost.example, without a user, query or fragment")
	}
	made := &Client{
		base: strings.TrimRight(u.String(), "/"), key: c.Key, agent: c.UserAgent,
		http: &http.Client{
			Timeout: c.Timeout, Transport: c.Transport,
			// Send the key to the given address only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if made.agent == "" {
		made.agent = "everpost-go"
	}
	if made.http.Timeout == 0 {
		made.http.Timeout = DefaultTimeout
	}
	if c.Transport == nil {
		made.http.Transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			IdleConnTimeout:     time.Minute,
		}
	}
	return made, nil
}

// FromEnvironment is New with the URL and the key in EVERPOST_URL and EVERPOST_KEY.
func FromEnvironment() (*Client, error) {
	return New(Config{URL: os.Getenv("EVERPOST_URL"), Key: os.Getenv("EVERPOST_KEY")}) //nolint:forbidigo // of a user's program
}

// WithKey returns a client that shares the connections and uses another key.
func (c *Client) WithKey(key string) *Client {
	other := *c
	other.key = key
	return &other
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Request is a call of the API, for one that has no method here.
type Request struct {
	Method string
	Path   []string // below /v1, not escaped
	Query  url.Values
	Body   []byte // JSON; nil for none
	Header map[string]string
}

// Answer is a 2xx answer of the API.
type Answer struct {
	Body   []byte
	Header http.Header
}

// Do makes a request. Its error is an *Error for an answer that is not 2xx, and a *NoResponseError if there is none.
func (c *Client) Do(ctx context.Context, r Request) (Answer, error) {
	response, err := c.send(ctx, c.http, r)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	body, err := c.read(response)
	return Answer{Body: body, Header: response.Header}, err
}

// Decode decodes an answer. The error is ErrNotEverpost.
func Decode[T any](a Answer) (T, error) {
	var v T
	if err := unmarshal(a.Body, &v); err != nil {
		return v, ErrNotEverpost
	}
	return v, nil
}

// send makes a request and returns a 2xx response, whose body the caller closes.
func (c *Client) send(ctx context.Context, over *http.Client, r Request) (*http.Response, error) {
	parts := []string{c.base, "v1"}
	for _, part := range r.Path {
		if slices.Contains([]string{"", ".", ".."}, part) {
			return nil, fmt.Errorf("%q is not an id", part)
		}
		parts = append(parts, url.PathEscape(part))
	}
	target := strings.Join(parts, "/")
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(r.Body))
	if err != nil {
		return nil, errors.New("the method is not valid") // err contains the query
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
		return nil, c.noResponse(err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		defer response.Body.Close()
		body, err := c.read(response)
		if err != nil {
			return nil, err
		}
		return nil, newError(c.base, response, body)
	}
	return response, nil
}

func (c *Client) read(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, c.noResponse(err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer of %s is larger than %d MiB", c.base, maxAnswer>>20)
	}
	return body, nil
}

// noResponse is the error of a request that got no answer.
func (c *Client) noResponse(err error) error {
	unknown, isName := errors.AsType[*net.DNSError](err)
	return &NoResponseError{
		URL: c.base, Err: withoutURL(err), NotSent: errors.Is(err, syscall.ECONNREFUSED) || isName && unknown.IsNotFound,
	}
}
