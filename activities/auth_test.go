package activities_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// From the sealed credentials in the record to the receiver: while there is no token
// nothing is sent and the delivery waits, for as long as the token server asks for; what
// is recorded and logged of it all holds no secret.
func TestClientCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tokens := receivertest.New(t)
	tokens.Script("/token",
		receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "3600"}, Body: "canary-answer"},
		receivertest.Step{Status: 401, Body: `{"error":"invalid_client"}`}, receivertest.Step{Status: 401, Body: `{"error":"invalid_client"}`},
	)
	tokens.Default(receivertest.Step{Header: map[string]string{"Content-Type": "application/json"}, Body: `{"access_token":"canary-token","expires_in":60}`})
	_, err := b.store.UpdateEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID, func(e *webhook.Endpoint) error {
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
	require.Equal(t, "token_unavailable, Retry-After 1h", got.Told)
	require.GreaterOrEqual(t, got.Delay, time.Hour)
	in.Progress, in.DueAt = got.Progress, time.Time{}
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateRetrying, got.State)
	require.Equal(t, "token_refused", got.Told)
	require.Equal(t, 1, got.Ambiguous)
	require.Zero(t, b.Count(), "without a token nothing is sent")

	in.Progress, in.DueAt = got.Progress, time.Time{}
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, 3, got.Attempts)
	require.Equal(t, "Bearer canary-token", b.Requests()[0].Header.Get("Authorization"))
	require.NoError(t, b.Requests()[0].Verify(secret))

	attempts := b.attempts(t, in)
	require.Len(t, attempts, 3)
	for _, a := range attempts {
		require.Equal(t, "[redacted]", a.RequestHeaders["Authorization"])
		require.NotContains(t, fmt.Sprintf("%+v", a), "canary")
	}
	require.NotContains(t, p.log.String(), "canary")
}
