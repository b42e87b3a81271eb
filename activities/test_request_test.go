package activities_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// target is the bundle's endpoint as it is now.
func (b *bundle) target(t *testing.T) *webhook.Target {
	t.Helper()
	target, err := b.store.Endpoints.Target(t.Context(), b.endpoint.ID)
	require.NoError(t, err)
	return &target
}

// A test is signed, sent, judged and shown like an attempt, and nothing of it is recorded.
func TestTest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	tests := activities.NewTests(p.config.Sender)
	_, err := b.store.Endpoints.PauseEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID, "")
	require.NoError(t, err)
	b.Script("/hook", receivertest.Step{Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": "7"}, Body: "busy"})

	made, err := tests.Send(t.Context(), b.target(t), "order.test", []byte(payload))
	require.NoError(t, err)
	got := b.Requests()
	require.Len(t, got, 1, "also while it is paused")
	require.NoError(t, got[0].Verify(secret))
	require.Equal(t, payload, string(got[0].Body))
	require.Equal(t, "0", got[0].Header.Get("everpost-attempt"))
	require.Equal(t, "order.test", got[0].Header.Get("everpost-event-type"))
	require.Equal(t, "canary-header", got[0].Header.Get("X-Api-Key"))
	event, err := webhook.ParseEventID(got[0].WebhookID())
	require.NoError(t, err)
	require.Equal(t, webhook.DeliveryIDOf(event, b.endpoint.ID).String(), got[0].Header.Get("everpost-delivery-id"))

	require.Equal(t, retry.Retry, made.Outcome.Decision)
	require.Equal(t, retry.HTTPReason(503), made.Outcome.Reason)
	require.Equal(t, 7*time.Second, made.Outcome.RetryAfter)
	require.Equal(t, "busy", string(made.ResponseBody))
	require.Equal(t, "[redacted]", made.RequestHeaders["X-Api-Key"])
	require.Equal(t, event.String(), made.RequestHeaders["webhook-id"])
	require.WithinDuration(t, time.Now(), made.StartedAt, time.Minute)
	require.Positive(t, made.Latency)
	require.Zero(t, made.Number)
	require.Zero(t, made.Run)
	require.Empty(t, made.DelaySource)

	for _, table := range []string{"events", "deliveries", "attempts", "outbox"} {
		var n int
		require.NoError(t, b.store.Pool().QueryRow(t.Context(), `select count(*) from `+table).Scan(&n))
		require.Zero(t, n, table)
	}
	again, err := tests.Send(t.Context(), b.target(t), "order.test", []byte(payload))
	require.NoError(t, err)
	require.Equal(t, retry.Delivered, again.Outcome.Decision)
	require.NotEqual(t, made.RequestHeaders["webhook-id"], again.RequestHeaders["webhook-id"], "another event")
}

// What ends because of us says nothing of the receiver; what cannot be signed is not sent.
func TestTestFaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	tests := activities.NewTests(p.config.Sender)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := tests.Send(ctx, b.target(t), "a", []byte(`1`))
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
	require.NotContains(t, err.Error(), "canary")

	target := b.target(t)
	target.Secrets = []string{"canary"}
	_, err = tests.Send(t.Context(), target, "a", []byte(`1`))
	require.Equal(t, webhook.CodeInternal, webhook.CodeOf(err))
	require.ErrorContains(t, err, b.endpoint.ID.String())
	require.NotContains(t, err.Error(), "canary")
	require.Zero(t, b.Count())

	target = b.target(t)
	target.URL = "https://no.such.host.invalid/canary"
	made, err := tests.Send(t.Context(), target, "a", []byte(`1`))
	require.NoError(t, err)
	require.NotEqual(t, retry.Delivered, made.Outcome.Decision)
	require.NotEmpty(t, made.Error)
	require.NotContains(t, made.Error, "canary")
}

// A test is signed with the time by the clock that is given.
func TestTestsClock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tests := activities.NewTests(b.process(t, nil).config.Sender)
	now := time.Now().Add(-10 * time.Minute)
	tests.Now = func() time.Time { return now }
	made, err := tests.Send(t.Context(), b.target(t), "order.test", []byte(payload))
	require.NoError(t, err)
	require.WithinDuration(t, now, made.StartedAt, 0)
	require.Equal(t, strconv.FormatInt(now.Unix(), 10), b.Requests()[0].Header.Get("webhook-timestamp"))
}

// A few tests of an endpoint go at a time, and not too many of all together.
func TestTestsAreBounded(t *testing.T) {
	t.Parallel()
	tests := activities.NewTests(nil)
	id := webhook.NewEndpointID()
	var releases []func()
	take := func(tenant string, id webhook.EndpointID) error {
		release, err := tests.Acquire(tenant, id)
		if err == nil {
			releases = append(releases, release)
			return nil
		}
		require.Equal(t, webhook.CodeRateLimited, webhook.CodeOf(err))
		var known *webhook.Error
		require.ErrorAs(t, err, &known)
		require.Positive(t, known.RetryAfter)
		return err
	}
	for range 3 {
		require.NoError(t, take("a", id))
	}
	require.ErrorContains(t, take("a", id), "this endpoint is being tested already")
	releases[0]()
	require.NoError(t, take("a", id))
	for range 7 {
		require.NoError(t, take("a", webhook.NewEndpointID()))
	}
	require.ErrorContains(t, take("a", webhook.NewEndpointID()), "ten endpoints of this tenant")
	for i := range 90 {
		require.NoError(t, take(fmt.Sprint("t", i/10), webhook.NewEndpointID()))
	}
	require.ErrorContains(t, take("b", webhook.NewEndpointID()), "too many endpoints")
	for _, release := range releases[1:] {
		release()
	}
	for range 3 {
		require.NoError(t, take("a", id))
	}
	require.Error(t, take("a", id))
}
