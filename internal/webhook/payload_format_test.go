package webhook_test

import (
	"encoding/json"
	"math"
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

// For every type, payload and place an envelope is JSON with three members, or four with a number, and it contains the
// payload's bytes unchanged. It adds no more bytes than docs/receivers.md says.
func TestEnvelopeIsJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		eventType := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}`).Filter(webhook.ValidType).Draw(t, "type")
		created := time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "created"))
		payload := rapid.SampledFrom([]string{
			`null`, `0`, ` [ 1 , 2 ] `, `"</script>"`, `{"type":"x","data":{}}`, "{\n\t\"a\": 1e400\n}", `"\ud83d"`,
		}).Draw(t, "payload")
		key := rapid.StringOfN(rapid.Rune(), 1, webhook.MaxOrderingKey, -1).Filter(webhook.ValidOrderingKey)
		place := rapid.SampledFrom([]webhook.Sequence{
			{}, {Line: 1, Number: 1}, {Key: key.Draw(t, "key"), Line: math.MaxInt64, Number: math.MaxInt64}, {Key: `"\<&>😀`, Line: 7, Number: 8},
		}).Draw(t, "place")
		body := webhook.PayloadEnvelope.Body(eventType, created, place, []byte(payload))
		var read map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &read))
		members, room := 3, 200
		if !place.IsZero() {
			members, room = 4, 200+600
			var ordering struct {
				Key      string `json:"key"`
				Line     int64  `json:"line"`
				Sequence int64  `json:"sequence"`
			}
			require.NoError(t, json.Unmarshal(read["ordering"], &ordering))
			found := webhook.Sequence{Key: ordering.Key, Line: ordering.Line, Number: ordering.Sequence}
			require.Equal(t, place, found)
		}
		require.Len(t, read, members)
		require.LessOrEqual(t, len(body), len(payload)+room)
		require.Equal(t, `"`+eventType+`"`, string(read["type"]))
		var at time.Time
		require.NoError(t, json.Unmarshal(read["timestamp"], &at))
		require.True(t, created.Equal(at))
		require.Len(t, string(read["timestamp"]), len(`"2026-01-31T09:30:00.000000Z"`))
		require.Contains(t, string(body), `"data":`+payload+`}`)
	})
}
