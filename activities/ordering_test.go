package activities_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// numberIt makes the endpoint number its deliveries.
func (b *bundle) numberIt(t *testing.T, format webhook.PayloadFormat) {
	t.Helper()
	_, err := b.store.Endpoints.UpdateEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.Ordering.By, e.PayloadFormat = webhook.OrderingNumber, format
		return nil
	})
	require.NoError(t, err)
}

// withKey stores an event with an ordering key; "" for none.
func (b *bundle) withKey(t *testing.T, key string) (webhook.Accepted, activities.AttemptInput) {
	t.Helper()
	accepted, err := b.store.Events.Accept(t.Context(), webhook.NewEvent{TenantID: tenant, Type: "order.paid", Payload: []byte(payload), OrderingKey: key})
	require.NoError(t, err)
	start := accepted.Deliveries[0]
	return accepted, activities.AttemptInput{
		FirstTask: true, Ref: start.Ref, Progress: webhook.Progress{Run: start.Run, GiveUpAt: start.GiveUpAt}, NotBefore: start.NotBefore,
	}
}

// A delivery's place in its line is the same in each of its requests: from memory, from the store, and in a replay, which says so. Logs do not have the key.
func TestThePlaceInALineIsSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.numberIt(t, webhook.PayloadRaw)
	b.Script("/hook", receivertest.Step{Status: 503}, receivertest.Step{Status: 400})
	p := b.process(t, nil)
	_, _ = b.withKey(t, "canary Müller")
	accepted, in := b.withKey(t, "canary Müller")
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
	_, err = p.attempt(in)
	require.NoError(t, err)

	all := b.Requests()
	require.Len(t, all, 3)
	line := strconv.FormatInt(accepted.Deliveries[0].Sequence.Line, 10)
	for i, sent := range all {
		require.Equal(t, []string{`%"canary M%c3%bcller"`}, sent.Header.Values("everpost-ordering-key"))
		require.Equal(t, []string{"2"}, sent.Header.Values("everpost-sequence"))
		require.Equal(t, []string{line}, sent.Header.Values("everpost-line"))
		require.Equal(t, i == 2, sent.Header.Get("everpost-replay") == "2", i)
	}
	require.NotContains(t, p.log.String(), "canary")
}

// An envelope has the place, and is signed with it. An event without a key has a number all the same.
func TestAnEnvelopeHasThePlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.numberIt(t, webhook.PayloadEnvelope)
	p := b.process(t, nil)
	for _, key := range []string{`quote " and \`, ""} {
		accepted, in := b.withKey(t, key)
		p.intake.Accepted(accepted)
		_, err := p.attempt(in)
		require.NoError(t, err)
		all := b.Requests()
		sent := all[len(all)-1]
		require.NoError(t, sent.Verify(secret))
		var body struct {
			Ordering map[string]any  `json:"ordering"`
			Data     json.RawMessage `json:"data"`
		}
		require.NoError(t, json.Unmarshal(sent.Body, &body))
		want := map[string]any{"line": float64(accepted.Deliveries[0].Sequence.Line), "sequence": 1.0}
		if key != "" {
			want["key"] = key
		}
		require.Equal(t, want, body.Ordering)
		require.Equal(t, payload, string(body.Data))
		require.Equal(t, key != "", len(sent.Header.Values("everpost-ordering-key")) == 1)
	}
}
