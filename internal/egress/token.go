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
	// unsaidLife is how long a token is used whose life the token server does not tell
	// (RFC 6749, section 5.1, leaves it open).
	unsaidLife = 5 * time.Minute
	// maxLife is how long a token is used at most, whatever the token server says.
	maxLife = time.Hour
	// maxEarly is how long before its end a token is renewed, or a fifth of its life if
	// that is less.
	maxEarly = time.Minute
	// maxTokenBytes bounds what of a token is sent, its type included: many are kept.
	maxTokenBytes = 4 << 10
	// maxSaidBytes bounds a Retry-After or a Date of a token server: they are kept, too.
	maxSaidBytes = 64
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
	header string
	until  time.Time // when it is to be renewed
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

// unauthorized is the response when there is no authorization to send a request with.
func unauthorized(ctx context.Context, err error) Response {
	r := failure(ctx, phaseStart, err)
	if refusal, ok := errors.AsType[*tokenError](err); ok {
		r.Answer.RetryAfter, r.Answer.Date = refusal.retryAfter, refusal.date
	}
	return r
}

// fetchToken asks the token server, under the same guard and bounds as a receiver, and
// returns how it was asked at last. The error is a *tokenError, a *DeniedError, or the
// context's.
func (c *Client) fetchToken(ctx context.Context, deadline time.Time, r *Request, style authStyle) (*token, authStyle, error) {
	auth := &r.Auth
	config := clientcredentials.Config{
		ClientID: auth.ClientID, ClientSecret: auth.ClientSecret, TokenURL: auth.TokenURL, Scopes: auth.Scopes, AuthStyle: style,
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
		return nil, style, noToken(ctx, err)
	}
	header := got.Type() + " " + got.AccessToken
	if len(header) > maxTokenBytes {
		return nil, style, &tokenError{fault: retry.FaultTokenRefused, cause: "the token server gave a token above 4 KiB"}
	}
	for _, b := range []byte(header) {
		if b < ' ' || b > '~' {
			return nil, style, &tokenError{fault: retry.FaultTokenRefused, cause: "the token server gave a token that is not printable"}
		}
	}
	until := now.Add(unsaidLife)
	if !got.Expiry.IsZero() {
		life := min(got.Expiry.Sub(now), maxLife)
		until = now.Add(life - min(maxEarly, life/5))
	}
	return &token{header: header, until: until}, config.AuthStyle, nil
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
		return denied("the token server: " + refusal.Error())
	}
	answered, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return &tokenError{fault: retry.FaultTokenRefused, cause: "the token server's answer holds no token"}
	}
	status, header := answered.Response.StatusCode, answered.Response.Header
	e := &tokenError{
		fault: retry.FaultTokenRefused, cause: "the token server answered " + strconv.Itoa(status),
		retryAfter: briefly(header, "Retry-After"), date: briefly(header, "Date"),
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

// briefly is a field of a token server's answer, "" for one that is too long to be true.
func briefly(header http.Header, name string) string {
	value := header.Get(name)
	if len(value) > maxSaidBytes {
		return ""
	}
	return strings.Clone(value)
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
