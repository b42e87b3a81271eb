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
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// defaultTokenLife is used when the token server sends no lifetime (RFC 6749, section
	// 5.1, makes it optional).
	defaultTokenLife = 5 * time.Minute
	// maxTokenLife bounds how long a token is used, whatever the token server says.
	maxTokenLife = time.Hour
	// maxRenewBefore is how long before its expiry a token is renewed, or a fifth of its
	// lifetime if that is less.
	maxRenewBefore = time.Minute
	// maxTokenBytes bounds a token together with its type, because many are cached.
	maxTokenBytes = 4 << 10
	// maxTokenHeaderBytes bounds a token server's Retry-After or Date, because they are
	// cached, too.
	maxTokenHeaderBytes = 64
	// maxTokenRequest bounds the request to a token server.
	maxTokenRequest = 32 << 10
)

// authorization is the Authorization header of a request.
type authorization struct {
	header string
	token  *token // the token in the header, if a token server issued it
	cached bool   // an earlier request fetched the token
}

// token is a token that a token server issued.
type token struct {
	header string
	until  time.Time // renewed from then on
}

// authorization returns the request's Authorization header. It may request a token for it.
func (c *Client) authorization(ctx context.Context, deadline time.Time, r *Request) (authorization, error) {
	switch r.Auth.Kind {
	case webhook.AuthBasic:
		return authorization{header: "Basic " + base64.StdEncoding.EncodeToString([]byte(r.Auth.Username+":"+r.Auth.Password))}, nil
	case webhook.AuthBearer:
		return authorization{header: "Bearer " + r.Auth.Token}, nil
	case webhook.AuthClientCredentials:
		got, cached, err := c.tokens.get(ctx, deadline, r, func(style authStyle) (*token, authStyle, error) {
			return c.fetchToken(ctx, deadline, r, style)
		})
		if err != nil {
			return authorization{}, err
		}
		return authorization{header: got.header, token: got, cached: cached}, nil
	case webhook.AuthNone:
	}
	return authorization{}, nil
}

// unauthorized is the response to a request that is not sent because its authorization
// failed.
func unauthorized(ctx context.Context, err error) Response {
	r := failed(ctx, phaseStart, err)
	if refusal, ok := errors.AsType[*knownError](err); ok {
		r.Answer.RetryAfter, r.Answer.Date = refusal.retryAfter, refusal.date
	}
	return r
}

// fetchToken requests a token, under the same guard and bounds as a request to a receiver.
// It also returns the style of the last request. The error is a *knownError, a
// *DeniedError, or the context's.
func (c *Client) fetchToken(ctx context.Context, deadline time.Time, r *Request, style authStyle) (*token, authStyle, error) {
	auth := &r.Auth
	config := clientcredentials.Config{
		ClientID: auth.ClientID, ClientSecret: auth.ClientSecret, TokenURL: auth.TokenURL, Scopes: auth.Scopes, AuthStyle: style,
	}
	if auth.Audience != "" {
		config.EndpointParams = url.Values{"audience": {auth.Audience}}
	}
	asking := &http.Client{
		Transport:     &tokenTransport{client: c, deadline: deadline, tenant: r.TenantID},
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
		return nil, style, tokenFailure(ctx, err)
	}
	header := got.Type() + " " + got.AccessToken
	if len(header) > maxTokenBytes {
		return nil, style, &knownError{class: retry.FailureTokenRefused, cause: "the token server gave a token above 4 KiB"}
	}
	for _, b := range []byte(header) {
		if b < ' ' || b > '~' {
			return nil, style, &knownError{class: retry.FailureTokenRefused, cause: "the token server gave a token that is not printable"}
		}
	}
	until := now.Add(defaultTokenLife)
	if !got.Expiry.IsZero() {
		life := min(got.Expiry.Sub(now), maxTokenLife)
		until = now.Add(life - min(maxRenewBefore, life/5))
	}
	return &token{header: header, until: until}, config.AuthStyle, nil
}

// refusesHeader reports whether the token server may want the client's credentials in the
// body. RFC 6749, section 2.3.1, requires servers to accept them in the header, but not
// every server does. The library can detect the style itself, but then sends two requests
// to a failing server.
func refusesHeader(err error) bool {
	answered, ok := errors.AsType[*oauth2.RetrieveError](err)
	return ok && (answered.Response.StatusCode == http.StatusBadRequest || answered.Response.StatusCode == http.StatusUnauthorized)
}

// tokenFailure translates an error into one without secrets: the library's errors contain
// the URL and the token server's response.
func tokenFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask the token server: %w", ctx.Err())
	}
	if refusal, ok := errors.AsType[*knownError](err); ok {
		return refusal
	}
	if refusal, ok := errors.AsType[*DeniedError](err); ok {
		return denied("the token server: " + refusal.Error())
	}
	answered, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return &knownError{class: retry.FailureTokenRefused, cause: "the token server's answer holds no token"}
	}
	status, header := answered.Response.StatusCode, answered.Response.Header
	e := &knownError{
		class: retry.FailureTokenRefused, cause: "the token server answered " + strconv.Itoa(status),
		retryAfter: shortHeader(header, "Retry-After"), date: shortHeader(header, "Date"),
	}
	// Error codes of RFC 6749, section 5.2, and two that some servers use. Any other code
	// is the token server's own text and is left out.
	if slices.Contains([]string{
		"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
		"server_error", "temporarily_unavailable",
	}, answered.ErrorCode) {
		e.cause += " (" + answered.ErrorCode + ")"
	}
	refused := status >= 200 && status <= 499 && status != http.StatusRequestTimeout && status != http.StatusTooEarly && status != http.StatusTooManyRequests
	if !refused || answered.ErrorCode == "server_error" || answered.ErrorCode == "temporarily_unavailable" {
		e.class = retry.FailureTokenUnavailable
	}
	return e
}

// shortHeader returns a field of a token server's response, "" if it is too long.
func shortHeader(header http.Header, name string) string {
	value := header.Get(name)
	if len(value) > maxTokenHeaderBytes {
		return ""
	}
	return strings.Clone(value)
}

// tokenTransport sends the library's requests through the client.
type tokenTransport struct {
	client   *Client
	deadline time.Time
	tenant   string
}

// RoundTrip implements http.RoundTripper for the small POST that a token request is.
func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxTokenRequest))
	_ = req.Body.Close() // reads from a string: Close cannot fail
	if err != nil {
		return nil, fmt.Errorf("read token request: %w", err)
	}
	request := Request{TenantID: t.tenant, URL: req.URL.String(), Body: body, Header: [][2]string{{"Accept", "application/json"}}}
	for name, values := range req.Header {
		for _, value := range values {
			request.Header = append(request.Header, [2]string{name, value})
		}
	}
	r := t.client.send(req.Context(), t.deadline, &request)
	_, cause, _ := strings.Cut(r.Err, ": ")
	switch {
	case r.Answer.Failure == retry.FailureProxyRefused:
		return nil, &knownError{own: r.InternalFault, class: retry.FailureProxyRefused, cause: "the token server: " + cause}
	case r.InternalFault:
		return nil, &knownError{own: true, class: retry.FailureUnknown, cause: r.Err}
	case r.Answer.Failure == retry.FailureDenied:
		return nil, denied(cause)
	case r.Answer.Failure != retry.FailureNone:
		return nil, &knownError{class: retry.FailureTokenUnavailable, cause: "the token server: " + r.Err}
	case r.Truncated:
		return nil, &knownError{class: retry.FailureTokenRefused, cause: "the token server's answer is too long"}
	}
	return &http.Response{
		Status: strconv.Itoa(r.Answer.Status), StatusCode: r.Answer.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.Header, Body: io.NopCloser(bytes.NewReader(r.Body)), ContentLength: int64(len(r.Body)), Request: req,
	}, nil
}
