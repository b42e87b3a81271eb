package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	filter := `{"payload":{"order":{"$gte":100}}}`
	large, other := b.endpoint("--event-type=order.*", "--filter="+filter), b.endpoint("--event-type=user.*")
	event, _ := b.send("order.paid")

	got := b.json("filters", "test", "--filter="+filter, `--payload={"order":100}`)
	require.Equal(t, map[string]any{"matched": true, "undecided": false, "failure": nil}, got)
	require.Equal(t, false, b.json("filters", "test", "--filter="+filter, "--event-id="+event)["matched"])
	require.Contains(t, b.fails("filters", "test", "--filter="+filter), "--event-id")
	require.Contains(t, b.fails("filters", "test", `--filter={"data":1}`, "--payload=1"), "is no field of an event")

	table := rows(t, b.ok("events", "matches", event))
	require.Equal(t, []string{"ENDPOINT", "MATCHES", "SENT", "STATE", "WHY NOT"}, table[0])
	require.Equal(t, []string{other, "false", "false", "active", "event_type"}, table[1])
	require.Equal(t, large, table[2][0])
	require.Contains(t, table[2][4], "the filter wants $gte 100.")
}
