package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// The life of a replay, as far as it goes without Temporal.
func TestReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint()
	_, sent := b.send("order.paid")
	b.attempted(sent[0], 1, 503, webhook.StateDeadLettered)

	replay := b.json("replays", "create", "--endpoint="+ep, "--reason=max_attempts", "--status=503", "--since=1h", "--rate-per-minute=30", "--no-ramp")
	id, ok := replay["id"].(string)
	require.True(t, ok)
	require.InDelta(t, 30, replay["rate_per_minute"], 0)
	other, ok := b.json("dead-letters", "replay", "--all", "--event-type=user.created")["id"].(string)
	require.True(t, ok)

	table := rows(t, b.ok("replays", "list"))
	require.Equal(t, []string{"ID", "STATE", "TOTAL", "RELEASED", "DELIVERED", "FAILED", "PER MINUTE", "CREATED", "REASON"}, table[0])
	require.Equal(t, other, table[1][0])
	require.Equal(t, id, table[2][0])
	require.Contains(t, rows(t, b.ok("replays", "get", id)), []string{"id", id})

	for _, c := range [][]string{{"pause", id}, {"resume", id}, {"set-rate", id, "250"}, {"cancel", id}} {
		require.Contains(t, rows(t, b.ok(append([]string{"replays"}, c...)...)), []string{"id", id}, c)
	}
	require.Contains(t, b.fails("replays", "create", "--source=events", "--all"), "everpost: endpoint_id: ")
	require.Equal(t, false, replay["include_unmatched"])
	require.Contains(t, b.fails("replays", "create", "--all", "--include-unmatched"), "everpost: include_unmatched: ")
	wide := b.json("replays", "create", "--source=events", "--endpoint="+ep, "--since=1h", "--event-type=order.*", "--include-unmatched")
	require.Equal(t, []any{true, "order.*"}, []any{wide["include_unmatched"], wide["event_type"]})
	require.Contains(t, b.fails("replays", "get", webhook.NewReplayID().String()), "no such replay of tenant acme")
	require.Contains(t, b.fails("replays", "get", id+"x"), "is not an id of the form rpl_…")
}
