package egress

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// defaultTokenLife is used when the token server sends no lifetime (RFC 6749, section
	// 5.1, makes it optional).
	defaultTokenLife = 5 * time.Minute
	// maxTokenLife bounds how long a token is used, whatever the token server says.
	maxTokenLife = 24 * time.Hour
	// maxRenewBefore is how long before its expiry a token is renewed, or a fifth of its
	// lifetime if that is less.
	maxRenewBefore = time.Minute
	// maxTokenBytes bounds a token, because many are cached.
	maxTokenBytes = 16 << 10
	// maxTokenHeaderBytes bounds a token server's Retry-After or Date, because they are
	// cached, too.
	maxTokenHeaderBytes = 64
	// maxTokenAnswer bounds a token server's answer, which may hold other tokens, too.
	maxTokenAnswer = MaxBodyBytes
)

// authorization is the Authorization header of a request.
type authorization struct {
	header string
	token  *token // the token in the header, if a token server issued it
	cached bool   // an earlier request fetched the token
}

// authStyle is where a token request carries the client's credentials.
type authStyle uint8

const (
	styleHeader authStyle = iota // Authorization: Basic
	styleBody
)

func (s authStyle) String() string {
	switch s {
	case styleHeader:
		return "header"
	case styleBody:
		return "body"
	}
	return "unknown"
}

// other returns the other style.
func (s authStyle) other() authStyle { return styleBody - s }

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

// fetchToken requests a token, under the same guard and bounds as a request to a receiver. A server that refuses the client's
// credentials is asked once more with them in the other place: RFC 6749, section 2.3.1, requires servers to accept them in the
// header, but many read the body only, and some the reverse. It also returns the style of the last request. The error is a
// *knownError, a *DeniedError, or the context's.
func (c *Client) fetchToken(ctx context.Context, deadline time.Time, r *Request, style authStyle) (*token, authStyle, error) {
	now := time.Now()
	response, err := c.askForToken(ctx, deadline, r, style)
	if err == nil && refusesStyle(response.Answer.Status) {
		style = style.other()
		response, err = c.askForToken(ctx, deadline, r, style)
	}
	if err != nil {
		return nil, style, err
	}
	got, err := tokenOf(&response, now)
	return got, style, err
}

// refusesStyle reports whether a token server with this answer may want the client's credentials in the other place.
func refusesStyle(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusUnauthorized || status == http.StatusForbidden
}

// askForToken makes one token request (RFC 6749, section 4.4.2) and returns its answer, whatever its status. The error contains
// neither the URL nor anything that the token server sent.
func (c *Client) askForToken(ctx context.Context, deadline time.Time, r *Request, style authStyle) (Response, error) {
	auth := &r.Auth
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(auth.Scopes) > 0 {
		form.Set("scope", strings.Join(auth.Scopes, " "))
	}
	if auth.Audience != "" {
		form.Set("audience", auth.Audience)
	}
	header := [][2]string{{"Accept", "application/json"}, {"Content-Type", "application/x-www-form-urlencoded"}}
	switch style {
	case styleHeader: // both are form-encoded first (RFC 6749, section 2.3.1)
		pair := url.QueryEscape(auth.ClientID) + ":" + url.QueryEscape(auth.ClientSecret)
		header = append(header, [2]string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(pair))})
	case styleBody:
		form.Set("client_id", auth.ClientID)
		form.Set("client_secret", auth.ClientSecret)
	}
	answer := c.send(ctx, deadline, &Request{
		TenantID: r.TenantID, URL: auth.TokenURL, Body: []byte(form.Encode()), Header: header, stored: maxTokenAnswer,
	})
	_, cause, _ := strings.Cut(answer.Err, ": ")
	switch {
	case ctx.Err() != nil:
		return answer, fmt.Errorf("ask the token server: %w", ctx.Err())
	case answer.Answer.Failure == retry.FailureProxyRefused:
		return answer, &knownError{own: answer.InternalFault, class: retry.FailureProxyRefused, cause: "the token server: " + cause}
	case answer.InternalFault:
		return answer, &knownError{own: true, class: retry.FailureUnknown, cause: answer.Err}
	case answer.Answer.Failure == retry.FailureDenied:
		return answer, denied("the token server: " + cause)
	case answer.Answer.Failure != retry.FailureNone:
		return answer, &knownError{class: retry.FailureTokenUnavailable, cause: "the token server: " + answer.Err}
	}
	return answer, nil
}
