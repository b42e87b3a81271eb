package webhook_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

func TestPayloadFormats(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 31, 10, 30, 0, 1000, time.FixedZone("CET", 3600))
	payload := []byte(`{"b" : 1.10, "a":"\u00e4\/ä😀"}`)
	require.Equal(t, payload, webhook.PayloadRaw.Body("order.paid", created, webhook.Sequence{}, payload))
	require.Equal(t, `{"type":"order.paid","timestamp":"2026-01-31T09:30:00.000001Z","data":{"b" : 1.10, "a":"\u00e4\/ä😀"}}`,
		string(webhook.PayloadEnvelope.Body("order.paid", created, webhook.Sequence{}, payload)))
	for _, format := range webhook.PayloadFormats() {
		parsed, ok := webhook.ParsePayloadFormat(format.String())
		require.True(t, ok)
		require.Equal(t, format, parsed)
	}
	_, ok := webhook.ParsePayloadFormat("Raw")
	require.False(t, ok)
}

// For every type and payload an envelope is JSON with three members, and it contains the
// payload's bytes unchanged.
func TestEnvelopeIsJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		eventType := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}`).Filter(webhook.ValidType).Draw(t, "type")
		created := time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "created"))
		payload := rapid.SampledFrom([]string{
			`null`, `0`, ` [ 1 , 2 ] `, `"</script>"`, `{"type":"x","data":{}}`, "{\n\t\"a\": 1e400\n}", `"\ud83d"`,
		}).Draw(t, "payload")
		body := webhook.PayloadEnvelope.Body(eventType, created, webhook.Sequence{}, []byte(payload))
		var read map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &read))
		require.Len(t, read, 3)
		require.Equal(t, `"`+eventType+`"`, string(read["type"]))
		var at time.Time
		require.NoError(t, json.Unmarshal(read["timestamp"], &at))
		require.True(t, created.Equal(at))
		require.Len(t, string(read["timestamp"]), len(`"2026-01-31T09:30:00.000000Z"`))
		require.Contains(t, string(body), `"data":`+payload+`}`)
	})
}
