package egress

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxTokens bounds the endpoints whose tokens are kept; one more costs a request.
	maxTokens = 10_000
	// unsaidLife is how long a token is used whose life the token server does not tell
	// (RFC 6749, section 5.1, leaves it open).
	unsaidLife = 5 * time.Minute
	// maxEarly is how long before its end a token is renewed, or a fifth of its life if
	// that is less.
	maxEarly = time.Minute
	// maxTokenRequest bounds the request to a token server.
	maxTokenRequest = 32 << 10
)

// authorization is the header that a request gets.
type authorization struct {
	header string
	token  *token // what is in it, if it came from a token server
	cached bool   // the token is that of an earlier request
}

// token is what a token server gave.
type token struct {
	version int64 // of the endpoint
	header  string
	until   time.Time // when it is to be renewed
	style   oauth2.AuthStyle
}

// tokenError is why there is no token.
type tokenError struct {
	fault retry.Fault // FaultUnknown is no receiver's
	cause string

	retryAfter, date string // as the token server said it
}

func (e *tokenError) Error() string { return e.cause }

// tokenFailedHere reports whether there is no token because of us.
func tokenFailedHere(err error) bool {
	refusal, ok := errors.AsType[*tokenError](err)
	return ok && refusal.fault == retry.FaultUnknown
}

// authorization makes the header, for which it may have to ask a token server.
func (c *Client) authorization(ctx context.Context, deadline time.Time, r *Request) (authorization, error) {
	switch r.Auth.Kind {
	case webhook.AuthBasic:
		return authorization{header: "Basic " + base64.StdEncoding.EncodeToString([]byte(r.Auth.Username+":"+r.Auth.Password))}, nil
	case webhook.AuthBearer:
		return authorization{header: "Bearer " + r.Auth.Token}, nil
	case webhook.AuthClientCredentials:
		got, cached, err := c.tokens.get(ctx, deadline, r, func() (*token, error) { return c.fetchToken(ctx, deadline, r) })
		if err != nil {
			return authorization{}, err
		}
		return authorization{header: got.header, token: got, cached: cached}, nil
	case webhook.AuthNone:
	}
	return authorization{}, nil
}

// unauthorized is the response when there is no authorization to send a request with.
func unauthorized(ctx context.Context, err error) Response {
	r := failure(ctx, phaseStart, err)
	if refusal, ok := errors.AsType[*tokenError](err); ok {
		r.Answer.RetryAfter, r.Answer.Date = refusal.retryAfter, refusal.date
	}
	return r
}

// tokens keeps one token for each endpoint. Whoever needs one that is being fetched
// waits for it, and shares what became of it.
type tokens struct {
	mu         sync.Mutex
	byEndpoint map[string]*token
	fetching   map[string]*fetch
}

type fetch struct {
	version int64
	done    chan struct{}
	token   *token
	err     error
}

func newTokens() *tokens {
	return &tokens{byEndpoint: make(map[string]*token), fetching: make(map[string]*fetch)}
}

// get returns the endpoint's token; cached tells that an earlier request has used it.
func (t *tokens) get(ctx context.Context, deadline time.Time, r *Request, ask func() (*token, error)) (_ *token, cached bool, _ error) {
	if r.EndpointID == "" {
		got, err := ask()
		return got, false, err
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		kept, running, mine := t.enter(r)
		switch {
		case kept != nil:
			return kept, true, nil
		case mine:
			running.token, running.err = ask()
			t.leave(r.EndpointID, running)
			return running.token, false, running.err
		}
		select {
		case <-running.done:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, false, fmt.Errorf("wait for a token: %w", ctx.Err())
			}
			return nil, false, &tokenError{fault: retry.FaultTokenUnavailable, cause: "the token server gave no token in time"}
		}
		// What failed because its own request was cancelled says nothing.
		if running.version == r.Version && (running.err == nil || !errors.Is(running.err, context.Canceled)) {
			return running.token, false, running.err
		}
	}
}

// enter returns the kept token, or the fetch under way, or one that is the caller's to
// make.
func (t *tokens) enter(r *Request) (kept *token, running *fetch, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept := t.byEndpoint[r.EndpointID]; kept != nil && kept.version == r.Version && time.Now().Before(kept.until) {
		return kept, nil, false
	}
	if running := t.fetching[r.EndpointID]; running != nil {
		return nil, running, false
	}
	running = &fetch{version: r.Version, done: make(chan struct{})}
	t.fetching[r.EndpointID] = running
	return nil, running, true
}

func (t *tokens) leave(endpoint string, f *fetch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.fetching, endpoint)
	close(f.done)
	if f.err != nil {
		return
	}
	if len(t.byEndpoint) >= maxTokens {
		now := time.Now()
		for id, kept := range t.byEndpoint {
			if !now.Before(kept.until) {
				delete(t.byEndpoint, id)
			}
		}
	}
	if len(t.byEndpoint) < maxTokens {
		t.byEndpoint[endpoint] = f.token
	}
}

// style is how the endpoint's last token was asked for.
func (t *tokens) style(r *Request) oauth2.AuthStyle {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.byEndpoint[r.EndpointID]; last != nil && last.version == r.Version && r.EndpointID != "" {
		return last.style
	}
	return oauth2.AuthStyleInHeader
}

// drop forgets a token that the receiver did not want.
func (t *tokens) drop(endpoint string, unwanted *token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byEndpoint[endpoint] == unwanted {
		delete(t.byEndpoint, endpoint)
	}
}

// fetchToken asks the token server, under the same guard and bounds as a receiver. The
// error is a *tokenError, a *DeniedError, or the context's.
func (c *Client) fetchToken(ctx context.Context, deadline time.Time, r *Request) (*token, error) {
	auth := &r.Auth
	config := clientcredentials.Config{
		ClientID: auth.ClientID, ClientSecret: auth.ClientSecret, TokenURL: auth.TokenURL, Scopes: auth.Scopes, AuthStyle: c.tokens.style(r),
	}
	if auth.Audience != "" {
		config.EndpointParams = url.Values{"audience": {auth.Audience}}
	}
	asking := &http.Client{
		Transport:     &tokenTransport{client: c, deadline: deadline},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	now := time.Now()
	ask := context.WithValue(ctx, oauth2.HTTPClient, asking)
	got, err := config.Token(ask)
	if config.AuthStyle == oauth2.AuthStyleInHeader && refusesHeader(err) {
		config.AuthStyle = oauth2.AuthStyleInParams
		got, err = config.Token(ask)
	}
	if err != nil {
		return nil, noToken(ctx, err)
	}
	header := got.Type() + " " + got.AccessToken
	for _, b := range []byte(header) {
		if b < ' ' || b > '~' {
			return nil, &tokenError{fault: retry.FaultTokenRefused, cause: "the token server gave a token that is not printable"}
		}
	}
	until := now.Add(unsaidLife)
	if !got.Expiry.IsZero() {
		life := got.Expiry.Sub(now)
		until = got.Expiry.Add(-min(maxEarly, life/5))
	}
	return &token{version: r.Version, header: header, until: until, style: config.AuthStyle}, nil
}

// refusesHeader reports whether the token server may want the client's credentials in
// the body: RFC 6749, section 2.3.1, has every server take them in the header, and not
// every server does. The library would find out by itself, but ask one in trouble twice.
func refusesHeader(err error) bool {
	answered, ok := errors.AsType[*oauth2.RetrieveError](err)
	return ok && (answered.Response.StatusCode == http.StatusBadRequest || answered.Response.StatusCode == http.StatusUnauthorized)
}

// noToken says in a word of ours why there is none: the library's errors hold the URL
// and what the token server answered.
func noToken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask the token server: %w", ctx.Err())
	}
	if refusal, ok := errors.AsType[*tokenError](err); ok {
		return refusal
	}
	if refusal, ok := errors.AsType[*DeniedError](err); ok {
		return denied("the token server: " + refusal.Reason)
	}
	answered, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return &tokenError{fault: retry.FaultTokenRefused, cause: "the token server's answer holds no token"}
	}
	status, header := answered.Response.StatusCode, answered.Response.Header
	e := &tokenError{
		fault: retry.FaultTokenRefused, cause: "the token server answered " + strconv.Itoa(status),
		retryAfter: header.Get("Retry-After"), date: header.Get("Date"),
	}
	// Those of RFC 6749, section 5.2, and two that others use: anything else is the
	// token server's own text.
	if slices.Contains([]string{
		"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
		"server_error", "temporarily_unavailable",
	}, answered.ErrorCode) {
		e.cause += " (" + answered.ErrorCode + ")"
	}
	refused := status >= 200 && status <= 499 && status != http.StatusRequestTimeout && status != http.StatusTooEarly && status != http.StatusTooManyRequests
	if !refused || answered.ErrorCode == "server_error" || answered.ErrorCode == "temporarily_unavailable" {
		e.fault = retry.FaultTokenUnavailable
	}
	return e
}

// tokenTransport lets the library send through the client.
type tokenTransport struct {
	client   *Client
	deadline time.Time
}

// RoundTrip implements http.RoundTripper for the small POST that a token request is.
func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxTokenRequest))
	_ = req.Body.Close() // of a string
	if err != nil {
		return nil, fmt.Errorf("read token request: %w", err)
	}
	request := Request{URL: req.URL.String(), Body: body, Header: [][2]string{{"Accept", "application/json"}}}
	for name, values := range req.Header {
		for _, value := range values {
			request.Header = append(request.Header, [2]string{name, value})
		}
	}
	r := t.client.send(req.Context(), t.deadline, &request)
	switch {
	case r.OwnFault:
		return nil, &tokenError{fault: retry.FaultUnknown, cause: r.Err}
	case r.Answer.Fault == retry.FaultDenied:
		_, reason, _ := strings.Cut(r.Err, ": ")
		return nil, denied(reason)
	case r.Answer.Fault != retry.FaultNone:
		return nil, &tokenError{fault: retry.FaultTokenUnavailable, cause: "the token server: " + r.Err}
	case r.Truncated:
		return nil, &tokenError{fault: retry.FaultTokenRefused, cause: "the token server's answer is too long"}
	}
	return &http.Response{
		Status: strconv.Itoa(r.Answer.Status), StatusCode: r.Answer.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.Header, Body: io.NopCloser(bytes.NewReader(r.Body)), ContentLength: int64(len(r.Body)), Request: req,
	}, nil
}
