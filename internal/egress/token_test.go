package egress

import (
	"context"
	"encoding/base64"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// authorized is a receiver, its token server, and a client.
type authorized struct {
	*receivertest.Receiver

	tokens *receivertest.Receiver
	client *Client
}

func setupAuth(t *testing.T) *authorized {
	t.Helper()
	a := &authorized{Receiver: receivertest.New(t), tokens: receivertest.New(t), client: setup(t, Config{})}
	a.tokens.Default(tokenStep("t0", 3600))
	return a
}

// tokenStep responds with a token; a lifetime of 0 is left out.
func tokenStep(token string, life int) receivertest.Step {
	body := `{"access_token":"` + token + `","token_type":"bearer"`
	if life > 0 {
		body += `,"expires_in":` + strconv.Itoa(life)
	}
	return receivertest.Step{Header: map[string]string{"Content-Type": "application/json"}, Body: body + "}"}
}

// request is a request of an endpoint with client credentials.
func (a *authorized) request(endpoint string) Request {
	return Request{
		EndpointID: endpoint, Version: 1, URL: a.URL() + "/hook", Header: [][2]string{{"webhook-id", "evt_1"}}, Body: []byte("{}"), Timeout: patience,
		Auth: webhook.Auth{
			Kind: webhook.AuthClientCredentials, TokenURL: a.tokens.URL() + "/token?tenant=s3cr3t", ClientID: "the client", ClientSecret: "s3cr3t%word",
			Scopes: []string{"hooks.write", "hooks.read"}, Audience: "https://receiver.example",
		},
	}
}

// state returns the cached state of an endpoint's tokens.
func (a *authorized) state(endpoint string) *tokenState {
	kept, _ := a.client.tokens.byEndpoint.Get(endpoint, time.Now())
	return kept
}

// authorizations returns the Authorization headers that the receiver got.
func (a *authorized) authorizations() []string {
	all := []string{}
	for _, r := range a.Requests() {
		all = append(all, r.Header.Get("Authorization"))
	}
	return all
}

func TestBasicAndBearer(t *testing.T) {
	t.Parallel()
	a := setupAuth(t)
	for _, auth := range []webhook.Auth{
		{Kind: webhook.AuthBasic, Username: "Aladdin", Password: "open sesame"}, // RFC 7617, section 2
		{Kind: webhook.AuthBasic, Username: "a", Password: "b:c"},
		{Kind: webhook.AuthBearer, Token: "mF_9.B5f-4.1JqM"}, // RFC 6750, section 2.1
		{},
	} {
		r := a.client.Send(t.Context(), Request{
			URL: a.URL(), Header: [][2]string{{"authorization", "of the endpoint's own"}}, Auth: auth, Timeout: patience,
		})
		requireFailure(t, r, retry.FailureNone, 200)
	}
	require.Equal(t, []string{
		"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Basic " + base64.StdEncoding.EncodeToString([]byte("a:b:c")), "Bearer mF_9.B5f-4.1JqM",
		"of the endpoint's own",
	}, a.authorizations())
	require.Len(t, a.Requests()[0].Header["Authorization"], 1)
}

func TestClientCredentials(t *testing.T) {
	t.Parallel()
	a := setupAuth(t)
	a.tokens.Script("/token", tokenStep("t1", 3600), tokenStep("t2", 3600), tokenStep("t3", 3600))
	send := func(request Request) { requireFailure(t, a.client.Send(t.Context(), request), retry.FailureNone, 200) }
	one := a.request("ep_1")
	send(one)
	send(one)
	send(one)
	changed := one
	changed.Version = 2
	send(changed)
	send(a.request("ep_2"))
	send(changed)
	alone := a.request("")
	send(alone)
	send(alone)
	require.Equal(t, []string{
		"Bearer t1", "Bearer t1", "Bearer t1", "Bearer t2", "Bearer t3", "Bearer t2", "Bearer t0", "Bearer t0",
	}, a.authorizations(), "a token belongs to one version of one endpoint")
	require.Equal(t, 5, a.tokens.Count())

	req := a.tokens.Requests()[0]
	require.Equal(t, "POST", req.Method)
	require.Equal(t, "/token?tenant=s3cr3t", req.Path)
	require.Equal(t, "application/x-www-form-urlencoded", req.Header.Get("Content-Type"))
	form, err := url.ParseQuery(string(req.Body))
	require.NoError(t, err)
	require.Equal(t, url.Values{
		"grant_type": {"client_credentials"}, "scope": {"hooks.write hooks.read"}, "audience": {"https://receiver.example"},
	}, form)
	// RFC 6749, section 2.3.1: both are form-encoded first.
	require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte("the+client:s3cr3t%25word")), req.Header.Get("Authorization"))
	require.Empty(t, req.Header.Get("Webhook-Id"))
}

// Many token servers require the credentials in the body.
func TestCredentialsInTheBody(t *testing.T) {
	t.Parallel()
	a := setupAuth(t)
	a.tokens.Script("/token", receivertest.Step{Status: 401, Body: `{"error":"invalid_client"}`})
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, 200)
	form, err := url.ParseQuery(string(a.tokens.Requests()[1].Body))
	require.NoError(t, err)
	require.Equal(t, "s3cr3t%word", form.Get("client_secret"))
	require.Equal(t, []string{"Bearer t0"}, a.authorizations())

	// The style is remembered for the renewal.
	a.state("ep_1").token.until = time.Now()
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, 200)
	require.Equal(t, 3, a.tokens.Count())

	// It is also remembered after the receiver rejected the token and after a failure of
	// the token server.
	a.Script("/hook", receivertest.Step{Status: 401})
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, 200)
	require.Equal(t, 4, a.tokens.Count())
	a.state("ep_1").token.until = time.Now()
	a.tokens.Script("/token", receivertest.Step{Status: 503})
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureTokenUnavailable, 0)
	a.state("ep_1").pause = time.Now()
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, 200)
	require.Equal(t, 6, a.tokens.Count())
	for _, req := range a.tokens.Requests()[1:] {
		require.Empty(t, req.Header.Get("Authorization"))
	}
}

// A server that reads the credentials in one place only gets them there, whichever it is and however it refuses the other, and from
// then on at once.
func TestTheOtherPlaceOfCredentials(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403} {
		a := setupAuth(t)
		no := receivertest.Step{Status: status}
		places := func() (header []bool) {
			for _, req := range a.tokens.Requests() {
				header = append(header, req.Header.Get("Authorization") != "")
			}
			return header
		}
		a.tokens.Script("/token", no, tokenStep("t1", 60), no, tokenStep("t2", 60))
		for range 3 {
			requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, 200)
			a.state("ep_1").token.until = time.Now()
		}
		require.Equal(t, []bool{true, false, false, true, true}, places(), status)
		require.Equal(t, []string{"Bearer t1", "Bearer t2", "Bearer t0"}, a.authorizations())
	}
	a := setupAuth(t)
	a.tokens.Default(receivertest.Step{Status: 404})
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureTokenRefused, 0)
	require.Equal(t, 1, a.tokens.Count(), "another status says nothing about the credentials")
}

// Answers of token servers in the field: each yields the token, sent as a bearer token.
func TestTokenAnswers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxTokenBytes)
	for body, want := range map[string]struct {
		token string
		used  time.Duration
	}{
		`{"access_token":"x","token_type":"BearerToken","expires_in":"3599"}`: {"x", 3539 * time.Second},
		`{"access_token":"x","token_type":"jwt","expires_in":3599.5}`:         {"x", 3539500 * time.Millisecond},
		`{"access_token":"x","token_type":"bearer","expires_in":1e3}`:         {"x", 940 * time.Second},
		`{"access_token":"x","token_type":"Bearer","expires_in":1e9}`:         {"x", maxTokenLife - time.Minute},
		`{"access_token":"x","token_type":"Bearer","expires_in":1e999}`:       {"x", maxTokenLife - time.Minute},
		`{"access_token":"x","expires_in":" 60.25 "}`:                         {"x", 48200 * time.Millisecond},
		`{"access_token":"x","expires_in":"never"}`:                           {"x", 5 * time.Minute},
		`{"access_token":"x","expires_in":"NaN"}`:                             {"x", 5 * time.Minute},
		`{"access_token":"x","expires_in":null}`:                              {"x", 5 * time.Minute},
		`{"access_token":"x","expires_in":0}`:                                 {"x", 5 * time.Minute},
		`{"access_token":"x","expires_in":-5}`:                                {"x", 5 * time.Minute},
		`{"access_token":"x","expires_in":{"seconds":5}}`:                     {"x", 5 * time.Minute},
		`{"access_token":"x","token_type":null,"scope":["a"],"error":null}`:   {"x", 5 * time.Minute},
		`{"access_token":"x","token_type":7}`:                                 {"x", 5 * time.Minute},
		"\ufeff\r\n {\"access_token\":\"x\\n\"}\r\n":                          {"x", 5 * time.Minute},
		"access_token=x&token_type=bearer&expires_in=60":                      {"x", 48 * time.Second},
		`{"access_token":"` + long + `","id_token":"` + long + long + `"}`:    {long, 5 * time.Minute},
	} {
		for _, kind := range []string{"application/json", "application/json;charset=utf-8", "text/plain", "text/html",
			"text/javascript", "application/octet-stream", "a/b;;"} {
			a := setupAuth(t)
			a.tokens.Default(receivertest.Step{Header: map[string]string{"Content-Type": kind}, Body: body})
			start := time.Now()
			requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, 200)
			require.Equal(t, []string{"Bearer " + want.token}, a.authorizations(), "%s, %.99s", kind, body)
			require.WithinRange(t, a.state("ep_1").token.until, start.Add(want.used), time.Now().Add(want.used), "%.99s", body)
		}
	}
}

// Concurrent requests share one token request.
func TestConcurrentRequestsShareATokenFetch(t *testing.T) {
	t.Parallel()
	a := setupAuth(t)
	a.tokens.Hold()
	var senders sync.WaitGroup
	for range 20 {
		senders.Go(func() { sendForOneToken(t, a) })
	}
	require.NoError(t, a.tokens.WaitHeld(t.Context(), 1))
	require.True(t, eventually(func() bool { return running("egress.sendForOneToken", "(*tokens).get") == 20 }))
	a.tokens.Release()
	senders.Wait()
	require.Equal(t, 1, a.tokens.Count())
	require.Equal(t, 20, a.Count())
}

func sendForOneToken(t *testing.T, a *authorized) {
	t.Helper()
	if r := a.client.Send(t.Context(), a.request("ep_1")); r.Answer.Status != 200 {
		t.Error(r.Err)
	}
}

// When the request that fetches the token is cancelled, one of the waiting requests fetches
// it instead.
func TestCancelledTokenFetch(t *testing.T) {
	t.Parallel()
	a := setupAuth(t)
	a.tokens.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	senders.Go(func() {
		if r := a.client.Send(ctx, a.request("ep_1")); !r.InternalFault {
			t.Error(r.Err)
		}
	})
	require.NoError(t, a.tokens.WaitHeld(t.Context(), 1))
	senders.Go(func() { waitForTokenOfAnotherRequest(t, a) })
	require.True(t, eventually(func() bool { return running("egress.waitForTokenOfAnotherRequest", "[select") == 1 }))
	cancel()
	retried := eventually(func() bool { return a.tokens.Count() == 2 })
	a.tokens.Release()
	senders.Wait()
	require.True(t, retried)
	require.Equal(t, 1, a.Count())
}

func waitForTokenOfAnotherRequest(t *testing.T, a *authorized) {
	t.Helper()
	if r := a.client.Send(t.Context(), a.request("ep_1")); r.Answer.Status != 200 {
		t.Error(r.Err)
	}
}

func TestTokensAreRenewedInTime(t *testing.T) {
	t.Parallel()
	for life, kept := range map[int]time.Duration{
		3600: 59 * time.Minute, 86400: 24*time.Hour - time.Minute, math.MaxInt32: 24*time.Hour - time.Minute,
		100: 80 * time.Second, 10: 8 * time.Second, 0: defaultTokenLife,
	} {
		a := setupAuth(t)
		a.tokens.Default(tokenStep("t", life))
		start := time.Now()
		requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, 200)
		got := a.state("ep_1").token
		require.WithinRange(t, got.until, start.Add(kept-time.Second), time.Now().Add(kept), "%d", life)
		got.until = time.Now()
		requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, 200)
		require.Equal(t, 2, a.tokens.Count())
	}
}

// A token that the receiver rejects is dropped. If an earlier request fetched it, the
// request is sent once more with a new token.
func TestRejectedToken(t *testing.T) {
	t.Parallel()
	a := setupAuth(t)
	a.tokens.Script("/token", tokenStep("t1", 3600), tokenStep("t2", 3600), tokenStep("t3", 3600), receivertest.Step{Status: 503})
	no := receivertest.Step{Status: 401}
	a.Script("/hook", receivertest.Step{}, no, receivertest.Step{Status: 204}, no, no, receivertest.Step{}, no)
	for _, want := range []int{200, 204, 401} {
		requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, want)
	}
	require.Equal(t, []string{"Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2", "Bearer t3"}, a.authorizations())
	require.Nil(t, a.state("ep_1").token, "the new one was not wanted either")
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureTokenUnavailable, 0)
	a.state("ep_1").pause = time.Now()
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, 200)
	require.Equal(t, "Bearer t0", a.authorizations()[5])

	// A 401 followed by a failed token request is not an outcome of the event.
	a.tokens.Default(receivertest.Step{Status: 503})
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureTokenUnavailable, 0)
	require.Equal(t, 7, a.Count())
	for _, r := range a.Requests() {
		require.Equal(t, "evt_1", r.WebhookID())
		require.Equal(t, "{}", string(r.Body))
	}
	// A 401 to other credentials is an ordinary response.
	basic := a.request("ep_2")
	basic.Auth = webhook.Auth{Kind: webhook.AuthBasic, Username: "u", Password: "p"}
	a.Script("/hook", no)
	requireFailure(t, a.client.Send(t.Context(), basic), retry.FailureNone, 401)
	require.Equal(t, 8, a.Count())
	// So is a 401 to a token that was fetched for this request.
	a.tokens.Default(tokenStep("t4", 3600))
	a.Script("/hook", no)
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_3")), retry.FailureNone, 401)
	require.Equal(t, 9, a.Count())
}

// Each reason for a missing token, its text without secrets, and its outcome. The receiver
// gets no request.
func TestNoToken(t *testing.T) {
	t.Parallel()
	const refused, unavailable = "token_refused: the token server", "token_unavailable: the token server"
	with := func(status int, name, value string) receivertest.Step {
		return receivertest.Step{Status: status, Header: map[string]string{name: value}}
	}
	failing := func(status int, code string) receivertest.Step {
		step := with(status, "Content-Type", "application/json")
		step.Body = `{"error":"` + code + `"}`
		return step
	}
	const odd = `{"error":"s3cr3t","error_description":"s3cr3t"}`
	for name, c := range map[string]struct {
		step       receivertest.Step
		err        string
		retryAfter time.Duration
	}{
		"client unknown":    {failing(401, "invalid_client"), refused + " answered 401 (invalid_client)", 0},
		"scope unknown":     {failing(400, "invalid_scope"), refused + " answered 400 (invalid_scope)", 0},
		"own words":         {receivertest.Step{Status: 403, Body: odd}, refused + " answered 403", 0},
		"error with a 200":  {failing(200, "invalid_grant"), refused + " answered 200 (invalid_grant)", 0},
		"busy for now":      {failing(400, "temporarily_unavailable"), unavailable + " answered 400 (temporarily_unavailable)", 0},
		"says it at length": {with(503, "Retry-After", strings.Repeat("0", maxTokenHeaderBytes-2)+"30"), unavailable + " answered 503", 30 * time.Second},
		"down":              {with(503, "Retry-After", "30"), unavailable + " answered 503", 30 * time.Second},
		"too many":          {with(429, "Retry-After", "7"), unavailable + " answered 429", 7 * time.Second},
		"redirect":          {with(302, "Location", "/elsewhere"), refused + " answered 302", 0},
		"redirect of POST":  {with(307, "Location", "/elsewhere"), refused + " answered 307", 0},
		"no token":          {receivertest.Step{Body: `{"token_type":"bearer"}`}, refused + "'s answer holds no token", 0},
		"no JSON":           {receivertest.Step{Body: "<html>s3cr3t"}, refused + "'s answer holds no token", 0},
		"line break":        {tokenStep(`a\r\nX-Injected: s3cr3t`, 60), refused + " gave a token that is not printable", 0},
		"too long":          {tokenStep(strings.Repeat("s3cr3t", 11000), 60), refused + "'s answer is too long", 0},
		"down at length":    {receivertest.Step{Status: 503, Body: strings.Repeat("s3cr3t", 11000)}, unavailable + " answered 503", 0},
		"token too long":    {tokenStep(strings.Repeat("x", maxTokenBytes+1), 60), refused + " gave a token above 16 KiB", 0},
		"DPoP": {
			receivertest.Step{Body: `{"access_token":"t","token_type":"dpop"}`}, refused + " gave a DPoP token, which Everpost cannot use", 0,
		},
		"says too much": {with(503, "Retry-After", strings.Repeat("0", maxTokenHeaderBytes)+"30"), unavailable + " answered 503", 0},
		"cut off":       {receivertest.Step{Drop: true}, unavailable + ": unexpected_eof: the connection was closed before the answer was complete", 0},
		"hang":          {receivertest.Step{Hang: true}, unavailable + ": timeout_headers: the deadline passed", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := setupAuth(t)
			if c.step.Header == nil {
				c.step.Header = map[string]string{"Content-Type": "application/json"}
			}
			a.tokens.Default(c.step)
			request := a.request("ep_1")
			if c.step.Hang {
				request.Timeout = short
			}
			r := a.client.Send(t.Context(), request)
			require.Equal(t, c.err, r.Err)
			require.False(t, r.InternalFault)
			require.Less(t, r.Latency, request.Timeout+time.Second)
			require.Equal(t, c.retryAfter, retry.Classify(r.Answer, retry.Default()).RetryAfter)
			require.Zero(t, a.Count())
			for _, req := range a.tokens.Requests() {
				require.Contains(t, req.Path, "/token?", "redirects are not followed")
			}
		})
	}
}

// The guard applies to token servers, too.
func TestTokenServerIsGuarded(t *testing.T) {
	t.Parallel()
	e := listenAll(t, 0, nil)
	names := resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) {
		return []netip.Addr{private[0], netip.MustParseAddr("169.254.169.254")}, dnsmessage.RCodeSuccess
	})
	receiver := receivertest.New(t)
	c := setup(t, Config{Guard: onlyOne(), Resolver: names})
	for address, reason := range map[string]string{
		"http://127.0.0.2:" + e.port + "/latest/": "denied_address: the token server: " + notPublic,
		"http://[::1]:" + e.port + "/":            "denied_address: the token server: " + notPublic,
		"http://tokens.example.:" + e.port + "/":  "token_unavailable: the token server: dns_not_found: no such host",
		"http://u:p@127.0.0.1:" + e.port + "/":    "denied_address: the token server: must not contain a user name or password",
		"ftp://127.0.0.1/":                        "denied_address: the token server: only https and http are allowed",
	} {
		r := c.Send(t.Context(), Request{
			URL: receiver.URL(), Timeout: patience,
			Auth: webhook.Auth{Kind: webhook.AuthClientCredentials, TokenURL: address, ClientID: "id", ClientSecret: "s3cr3t"},
		})
		require.Equal(t, reason, r.Err, address)
	}
	e.sync(t)
	require.Empty(t, e.at())
	require.Zero(t, receiver.Count())

	// No token is requested when the receiver itself is denied.
	tokens := receivertest.New(t)
	r := c.Send(t.Context(), Request{
		URL: "http://10.0.0.1/", Auth: webhook.Auth{Kind: webhook.AuthClientCredentials, TokenURL: tokens.URL(), ClientID: "id", ClientSecret: "s3cr3t"},
	})
	require.Equal(t, "denied_address: "+notPublic, r.Err)
	require.Zero(t, tokens.Count())
}
