package egress

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
)

// The number of cached tokens is bounded, and no endpoint can keep another one from having
// its token cached.
func TestTokensAreBounded(t *testing.T) {
	t.Parallel()
	kept := newTokens()
	until := time.Now().Add(time.Hour)
	get := func(endpoint string, version int64) (cached bool) {
		_, cached, err := kept.get(t.Context(), until, &Request{EndpointID: endpoint, Version: version},
			func(style authStyle) (*token, authStyle, error) {
				return &token{until: until}, style, nil
			})
		require.NoError(t, err)
		return cached
	}
	require.False(t, get("mine", 1))
	for i := range maxTokens + 1000 {
		require.False(t, get(strconv.Itoa(i), 1))
		require.True(t, get(strconv.Itoa(i), 1), "the latest is kept")
		if i%100 == 0 { // entries in use stay: they are never the least recently used of eight
			get("mine", 1)
		}
	}
	require.Equal(t, maxTokens, kept.byEndpoint.Len())
	require.Empty(t, kept.fetching)
	require.False(t, get("mine", 2), "an endpoint that has changed has a new one")
	require.True(t, get("mine", 2), "which takes the place of its old one")
	require.Equal(t, maxTokens, kept.byEndpoint.Len())
}

// After a failure, requests do not reach the token server until the pause is over or the
// endpoint has changed.
func TestPauseAfterTokenFailure(t *testing.T) {
	t.Parallel()
	a := setupAuth(t)
	a.tokens.Default(receivertest.Step{Status: 503})
	send := func(request Request) Response { return a.client.Send(t.Context(), request) }
	for i, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, 30 * time.Second} {
		before := time.Now()
		first := send(a.request("ep_1"))
		requireFailure(t, first, retry.FailureTokenUnavailable, 0)
		require.WithinRange(t, a.state("ep_1").pause, before.Add(pause), time.Now().Add(pause), "%d", i)
		require.Equal(t, i+1, a.tokens.Count())
		again := send(a.request("ep_1"))
		require.Equal(t, first.Err, again.Err)
		require.Equal(t, i+1, a.tokens.Count(), "no further token request")
		require.False(t, again.InternalFault)
		left := retry.Classify(again.Answer, retry.Default()).RetryAfter
		require.InDelta(t, pause.Seconds(), left.Seconds(), 2, "nor does the next attempt come in vain")
		a.state("ep_1").pause = time.Now()
	}
	requireFailure(t, send(a.request("ep_2")), retry.FailureTokenUnavailable, 0)
	require.Equal(t, 6, a.tokens.Count(), "each endpoint for itself")
	requireFailure(t, send(a.request("")), retry.FailureTokenUnavailable, 0)
	requireFailure(t, send(a.request("")), retry.FailureTokenUnavailable, 0)
	require.Equal(t, 8, a.tokens.Count())

	// The configuration was wrong and is corrected.
	a.tokens.Script("/token", receivertest.Step{Status: 400, Body: `{"error":"invalid_scope"}`}, receivertest.Step{Status: 403})
	refused := a.request("ep_3")
	for range 3 { // two token requests, one in each style
		requireFailure(t, send(refused), retry.FailureTokenRefused, 0)
	}
	require.Equal(t, 10, a.tokens.Count())
	a.tokens.Default(tokenStep("t", 3600))
	refused.Version++
	requireFailure(t, send(refused), retry.FailureNone, 200)
	require.Equal(t, 1, a.Count())
	// A success resets the count of failures.
	a.state("ep_1").pause = time.Now()
	requireFailure(t, send(a.request("ep_1")), retry.FailureNone, 200)
	a.state("ep_1").token.until = time.Now()
	a.tokens.Default(receivertest.Step{Status: 503})
	requireFailure(t, send(a.request("ep_1")), retry.FailureTokenUnavailable, 0)
	require.LessOrEqual(t, time.Until(a.state("ep_1").pause), minTokenPause)
}

// The pause follows the token server's Retry-After, up to a bound. Later requests get the
// remaining pause.
func TestTokenServersRetryAfter(t *testing.T) {
	t.Parallel()
	for said, pause := range map[string]time.Duration{
		"7": 7 * time.Second, "3600": time.Hour, "7200": time.Hour, "99999999999999999999": time.Hour, "0": minTokenPause, "soon": minTokenPause,
	} {
		a := setupAuth(t)
		a.tokens.Default(receivertest.Step{Status: 429, Header: map[string]string{"Retry-After": said}})
		before := time.Now()
		requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureTokenUnavailable, 0)
		known := a.state("ep_1")
		require.WithinRange(t, known.pause, before.Add(pause), time.Now().Add(pause), said)
		if known.requested.IsZero() {
			require.Equal(t, minTokenPause, pause)
			continue
		}
		whole := known.requested.Sub(before)
		known.requested, known.pause = known.requested.Add(-3*time.Second), known.pause.Add(-3*time.Second)
		r := a.client.Send(t.Context(), a.request("ep_1"))
		left := retry.Classify(r.Answer, retry.Default()).RetryAfter
		require.InDelta(t, (whole - 3*time.Second).Seconds(), left.Seconds(), 2, said)
		require.Equal(t, 1, a.tokens.Count())
		known.requested = time.Time{}
		r = a.client.Send(t.Context(), a.request("ep_1"))
		require.LessOrEqual(t, retry.Classify(r.Answer, retry.Default()).RetryAfter, pause+time.Second, said)
	}
}

// Own failures are not counted against the token server.
func TestOwnFailuresAreNotRemembered(t *testing.T) {
	t.Parallel()
	a := setupAuth(t)
	a.tokens.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan Response)
	go func() { ended <- a.client.Send(ctx, a.request("ep_1")) }()
	require.NoError(t, a.tokens.WaitHeld(t.Context(), 1))
	cancel()
	require.True(t, (<-ended).InternalFault)
	a.tokens.Release()
	requireFailure(t, a.client.Send(t.Context(), a.request("ep_1")), retry.FailureNone, http.StatusOK)

	// No descriptor is free, or the proxy is unreachable.
	fetches := 0
	for range 2 {
		_, _, err := a.client.tokens.get(t.Context(), time.Now().Add(patience), &Request{EndpointID: "ep_2"},
			func(style authStyle) (*token, authStyle, error) {
				fetches++
				return nil, style, &knownError{own: true, class: retry.FailureUnknown, cause: "ours"}
			})
		require.EqualError(t, err, "ours")
	}
	require.Equal(t, 2, fetches)
}
