package activities_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// accepted stores an event, and returns it with its first attempt.
func (b *bundle) accepted(t *testing.T, e webhook.NewEvent) (webhook.Accepted, activities.AttemptInput) {
	t.Helper()
	e.TenantID, e.Type, e.Payload = tenant, "order.paid", []byte(payload)
	accepted, err := b.store.Events.Accept(t.Context(), e)
	require.NoError(t, err)
	start := accepted.Deliveries[0]
	return accepted, activities.AttemptInput{
		FirstTask: true, Ref: start.Ref, Progress: webhook.Progress{Run: start.Run, GiveUpAt: start.GiveUpAt}, NotBefore: start.NotBefore,
	}
}

// sentThrice has a delivery sent from memory, from the store, and in a replay: the receiver answers 503, 400 and 200.
func (b *bundle) sentThrice(t *testing.T, p *process, accepted webhook.Accepted, in activities.AttemptInput) {
	t.Helper()
	b.Script("/hook", receivertest.Step{Status: 503}, receivertest.Step{Status: 400, Body: "got eu-canary"})
	p.intake.Accepted(accepted)
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Zero(t, p.record.count(), "from memory")
	in.Progress, in.DueAt = got.Progress, time.Time{}
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, 1, p.record.count(), "from the store")
	require.Equal(t, webhook.StateDeadLettered, got.State)
	status, err := p.reopen(activities.Reopening{Ref: in.Ref, Run: 1, Reason: "fixed"})
	require.NoError(t, err)
	in.Progress = webhook.Progress{Run: 2, GiveUpAt: status.GiveUpAt}
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Len(t, b.Requests(), 3)
}

// An event's headers are in each of its requests: from memory, from the store, and in a replay. Logs and histories have none.
func TestEventHeadersAreSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	accepted, in := b.accepted(t, webhook.NewEvent{Headers: map[string]string{"X-Region": "eu-canary"}, Tags: []string{"canary-tag"}})
	b.sentThrice(t, p, accepted, in)
	for _, sent := range b.Requests() {
		require.Equal(t, []string{"eu-canary"}, sent.Header.Values("X-Region"))
		require.Equal(t, "canary-header", sent.Header.Get("X-Api-Key"))
		require.NoError(t, sent.Verify(secret))
	}
	attempts := b.attempts(t, in)
	require.Len(t, attempts, 3)
	for _, a := range attempts {
		require.Equal(t, "eu-canary", a.RequestHeaders["X-Region"])
	}
	require.Equal(t, "got eu-canary", string(attempts[1].ResponseBody), "it is not secret")
	require.NotContains(t, p.log.String(), "canary")
}

// What an endpoint, its auth or its signature sets, an event's header of the same name does not change.
func TestEndpointsHeadersWin(t *testing.T) {
	t.Parallel()
	r := receivertest.New(t)
	var sent egress.Request
	client := realSender(t)
	sender := faulty(func(ctx context.Context, request egress.Request) egress.Response {
		sent = request
		return client.Send(ctx, request)
	})
	target := &webhook.Target{Secrets: []string{secret}, Endpoint: webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: tenant, URL: r.URL() + "/hook", Headers: map[string]string{"X-Api-Key": "canary-header"},
		Timeout: webhook.MaxTimeout, MaxInFlight: 10, RetryPolicy: retry.Default(), Signature: webhook.SignatureV1,
	}}
	long := strings.Repeat("x", 3000)
	made, err := activities.PostWithHeaders(t.Context(), sender, target, map[string]string{
		"x-api-key": "mine", "b-second": "2", "A-First": long, "Accept": "text/plain", "content-type": "application/x",
	})
	require.NoError(t, err)
	require.Equal(t, [][2]string{
		{"X-Api-Key", "canary-header"}, {"A-First", long}, {"Accept", "text/plain"}, {"b-second", "2"}, {"content-type", "application/x"},
	}, sent.Header[:5], "the endpoint's own, then the event's by name")
	require.Equal(t, "webhook-id", sent.Header[5][0])
	require.Equal(t, webhook.Redacted, made.RequestHeaders["X-Api-Key"])
	require.Equal(t, long[:256]+"…", made.RequestHeaders["A-First"], "an attempt records the beginning of a long value")
	got := r.Requests()[0]
	require.Equal(t, []string{"canary-header"}, got.Header.Values("X-Api-Key"))
	require.Equal(t, []string{"application/x"}, got.Header.Values("Content-Type"))
	require.NoError(t, got.Verify(secret))

	target.Auth = webhook.Auth{Kind: webhook.AuthBearer, Token: "canary-token"}
	target.Signature = webhook.SignatureHex
	made, err = activities.PostWithHeaders(t.Context(), sender, target, map[string]string{
		"authorization": "Bearer mine", "X-Webhook-Signature": "mine", "x-idempotency-key": "mine", "X-Other": "1",
	})
	require.NoError(t, err)
	h := r.Requests()[1].Header
	require.Equal(t, []string{"Bearer canary-token"}, h.Values("Authorization"))
	require.Len(t, h.Values("X-Webhook-Signature"), 1)
	require.NotEqual(t, "mine", h.Get("X-Webhook-Signature"))
	require.NotEqual(t, []string{"mine"}, h.Values("X-Idempotency-Key"))
	require.Equal(t, "1", h.Get("X-Other"))
	require.Equal(t, webhook.Redacted, made.RequestHeaders["Authorization"])
	for name, value := range made.RequestHeaders {
		require.NotContains(t, value, "canary", name)
		require.NotContains(t, value, "mine", name)
	}
}
