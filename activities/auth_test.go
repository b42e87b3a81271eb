package activities_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Without a token nothing is sent, and the delivery waits for as long as the token server says. Neither the store nor the log has a
// secret.
func TestClientCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tokens := receivertest.New(t)
	tokens.Script("/token",
		receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "3600"}, Body: "canary-answer"},
		receivertest.Step{Status: 401, Body: `{"error":"invalid_client"}`}, receivertest.Step{Status: 401, Body: `{"error":"invalid_client"}`},
	)
	tokens.Default(receivertest.Step{Header: map[string]string{"Content-Type": "application/json"}, Body: `{"access_token":"canary-token","expires_in":60}`})
	_, err := b.store.Endpoints.UpdateEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.Auth = webhook.Auth{
			Kind: webhook.AuthClientCredentials, TokenURL: tokens.URL() + "/token?canary-query", ClientID: "shop", ClientSecret: "canary-secret",
		}
		return nil
	})
	require.NoError(t, err)
	p := b.process(t, nil)
	in := b.stored(t)

	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateRetrying, got.State)
	require.Equal(t, "token_unavailable, Retry-After 1h", got.LastOutcome.String())
	require.GreaterOrEqual(t, got.Delay, time.Hour)
	in.Progress, in.DueAt = got.Progress, time.Time{}
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, "token_unavailable, Retry-After 1h", got.LastOutcome.String())
	require.Equal(t, 1, tokens.Count(), "the token server gets no request until then, not even for a retry by hand")

	logs := []*process{p, b.process(t, nil), b.process(t, nil)} // which know nothing of that
	in.Progress, in.DueAt = got.Progress, time.Time{}
	got, err = logs[1].attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateRetrying, got.State)
	require.Equal(t, "token_refused", got.LastOutcome.String())
	require.Equal(t, 1, got.Ambiguous)
	require.Zero(t, b.Count(), "without a token nothing is sent")

	in.Progress, in.DueAt = got.Progress, time.Time{}
	got, err = logs[2].attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, 4, got.Attempts)
	require.Equal(t, "Bearer canary-token", b.Requests()[0].Header.Get("Authorization"))
	require.NoError(t, b.Requests()[0].Verify(secret))

	attempts := b.attempts(t, in)
	require.Len(t, attempts, 4)
	for _, a := range attempts {
		require.Equal(t, "[redacted]", a.RequestHeaders["Authorization"])
		require.NotContains(t, fmt.Sprintf("%+v", a), "canary")
	}
	for _, p := range logs {
		require.NotContains(t, p.log.String(), "canary")
	}
}

// A receiver that repeats what it was sent: nothing secret of it is recorded, where the
// excerpt ends neither.
func TestNoEchoIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	tests := activities.NewTests(p.config.Sender)
	target := b.target(t)
	target.Auth = webhook.Auth{Kind: webhook.AuthBearer, Token: "canary-token"}
	target.Headers = map[string]string{"X-Api-Key": "canary-header", "X-Own": "mine", "Accept": "text/plain"}
	const excerpt = 16 << 10
	b.Script("/hook",
		receivertest.Step{
			Status: 400, Body: `{"X-Api-Key":"canary-header","Authorization":"Bearer canary-token","X-Own":"mine","Accept":"text/plain"}`,
			Header: map[string]string{"X-Echo": "canary-header, canary-token", "Content-Type": "text/plain"},
		},
		receivertest.Step{Status: 400, Body: strings.Repeat("x", excerpt-6) + "canary-header"},
		receivertest.Step{Status: 400, Body: strings.Repeat("x", excerpt-6) + "canary-token"},
		receivertest.Step{Status: 400, Body: strings.Repeat("canary-token", 10) + strings.Repeat("x", excerpt)},
		receivertest.Step{Raw: "HTTP/1.1 400 No\r\nContent-Length: 99\r\n\r\ncanary-hea"},
	)
	for i, want := range []string{
		`{"X-Api-Key":"[redacted]","Authorization":"[redacted]","X-Own":"mine","Accept":"text/plain"}`,
		"", "", "", "[redacted]",
	} {
		made, err := tests.Send(t.Context(), target, "order.paid", []byte(payload))
		require.NoError(t, err)
		got := b.Requests()[i]
		require.Equal(t, "Bearer canary-token", got.Header.Get("Authorization"))
		require.Equal(t, "canary-header", got.Header.Get("X-Api-Key"))
		require.NotContains(t, string(made.ResponseBody), "cana")
		require.LessOrEqual(t, len(made.ResponseBody), excerpt)
		if want != "" {
			require.Equal(t, want, string(made.ResponseBody))
		} else {
			require.True(t, made.Truncated)
		}
		if i == 0 {
			require.Equal(t, []string{"[redacted], [redacted]"}, made.ResponseHeaders["X-Echo"])
			require.Equal(t, []string{"text/plain"}, made.ResponseHeaders["Content-Type"])
		}
	}
}

// A receiver that redirects to its own URL with a slash more, as many do: what is secret
// of the URL is not recorded, and where it leads to still shows.
func TestNoEchoOfTheURLIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	tests := activities.NewTests(p.config.Sender)
	target := b.target(t)
	base, _, _ := strings.Cut(target.URL, "?")
	for query, want := range map[string]string{
		"?token=canary%2Ftoken&v=2": "/?[redacted]", "?canary-token": "/?[redacted]", "?v=2": "/?v=2", "": "/",
	} {
		target.URL = base + query
		to := base + "/" + query
		b.Script("/hook", receivertest.Step{
			Status: 308, Header: map[string]string{"Location": to, "X-Hook": "hook"}, Body: "the hook is at " + to + " now: canary/token",
		})
		made, err := tests.Send(t.Context(), target, "order.paid", []byte(payload))
		require.NoError(t, err)
		require.Equal(t, []string{base + want}, made.ResponseHeaders["Location"])
		require.Equal(t, []string{"hook"}, made.ResponseHeaders["X-Hook"])
		require.Contains(t, string(made.ResponseBody), "the hook is at "+base+want+" now")
		if strings.Contains(query, "%2F") {
			require.NotContains(t, fmt.Sprintf("%+v", made), "canary")
		}
	}
}

// The endpoint's bearer token and client certificate reach the sender.
func TestCredentialsAreSent(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	tests := activities.NewTests(realSender(t))
	target := webhook.Target{Secrets: []string{secret}, Endpoint: webhook.Endpoint{
		ID: webhook.NewEndpointID(), URL: receiver.URL(), Timeout: webhook.DefaultTimeout, RetryPolicy: retry.Default(), Signature: webhook.SignatureV1,
		Auth: webhook.Auth{Kind: webhook.AuthBearer, Token: "abc"},
	}}
	send := func() webhook.Attempt {
		made, err := tests.Send(t.Context(), &target, "order.paid", []byte(payload))
		require.NoError(t, err)
		return made
	}
	require.Equal(t, 200, send().Outcome.Status)
	require.Equal(t, "Bearer abc", receiver.Requests()[0].Header.Get("Authorization"))
	target.Version++
	target.Certificate = webhook.ClientCertificate{Certificate: "none", Key: "none"}
	require.Equal(t, "tls_invalid: the client certificate is not a certificate in PEM", send().Error)
}
