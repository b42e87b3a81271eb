package activities_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

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

// A delivery's place in its line is the same in each of its requests: from memory, from the store, and in a replay, which says so. Logs do not have the key.
func TestThePlaceInALineIsSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.numberIt(t, webhook.PayloadRaw)
	p := b.process(t, nil)
	_, _ = b.accepted(t, webhook.NewEvent{OrderingKey: "canary Müller"})
	accepted, in := b.accepted(t, webhook.NewEvent{OrderingKey: "canary Müller"})
	b.sentThrice(t, p, accepted, in)
	line := strconv.FormatInt(accepted.Deliveries[0].Sequence.Line, 10)
	for i, sent := range b.Requests() {
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
		accepted, in := b.accepted(t, webhook.NewEvent{OrderingKey: key})
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
