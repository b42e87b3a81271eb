package cli_test

import (
	"strings"
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
	require.Equal(t, map[string]any{"matched": true, "undecided": false, "failure": nil, "warnings": []any{}}, got)
	require.Equal(t, false, b.json("filters", "test", "--filter="+filter, "--event-id="+event)["matched"])
	require.Contains(t, b.fails("filters", "test", "--filter="+filter), "--event-id")
	require.Contains(t, b.fails("filters", "test", `--filter={"data":1}`, "--payload=1"), "is no field of an event")

	require.Contains(t, b.fails("filters", "test", "--filter={", "--payload=1"), "--filter: is not JSON")
	require.Equal(t, true, b.json("filters", "test", `--filter={"tags":"x"}`, "--payload=1", "--tag=w", "--tag=x")["matched"])

	made := call{args: []string{
		"event-types", "put", "order.paid", `--data={"versions":[{"version":1,"schema":{"properties":{"order":{}}}}]}`,
		"--url=" + b.url, "--key=" + operatorKey,
	}}.run(t)
	require.Zero(t, made.code, made.stderr)
	const unknown = "is in none of the schemas of these event types"
	require.Contains(t, b.ok("filters", "test", `--filter={"payload":{"ordr":1}}`, "--type=order.paid", "--payload={}"), unknown)
	require.NotContains(t, b.ok("filters", "test", "--filter="+filter, "--type=order.paid", "--payload={}"), unknown)

	table := rows(t, b.ok("events", "matches", event))
	require.Equal(t, []string{"ENDPOINT", "MATCHES", "SENT", "STATE", "WHY NOT"}, table[0])
	require.Equal(t, []string{other, "false", "false", "active", "event_type"}, table[1])
	require.Equal(t, large, table[2][0])
	require.Contains(t, table[2][4], "the filter wants $gte 100.")
}

// An agent sees which condition fails, and nothing of the payload.
func TestMCPMatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, large := b.endpoint("--event-type=user.*"), b.endpoint(`--filter={"payload":{"order":{"$gte":100}}}`)
	event, _ := b.send("order.paid", `{"order":17.25}`)
	a := connectAgent(t, b.mcpCommand(operatorKey), nil)
	text, out := a.ok("list_event_matches", map[string]any{"event_id": event})
	require.Len(t, out["matches"], 2)
	require.Contains(t, text, other+"  does not match: event_type; the event did not go to it")
	require.Contains(t, text, large+`  does not match: filter at "/payload/order/$gte", which wants "100"; `)
	require.NotContains(t, text, "17.25")
	require.Contains(t, a.fails("list_event_matches", map[string]any{"event_id": "evt_1"}), "event_id: is not the id of an event")
}

// An agent tries a filter, with an event of its own or a stored one, of whose payload it sees nothing.
func TestMCPTriesAFilter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, _ := b.send("order.paid", `{"order":17,"mail":"a@example.com"}`)
	a := connectAgent(t, b.mcpCommand(operatorKey), nil)
	try := func(filter map[string]any, more string, value any) (string, map[string]any) {
		return a.ok("test_filter", map[string]any{"filter": filter, more: value})
	}
	text, out := try(map[string]any{"payload": map[string]any{"order": map[string]any{"$gte": 100}}}, "event_id", event)
	require.Equal(t, `It does not match: the condition at "/payload/order/$gte" wants "100".`, strings.TrimSpace(text))
	require.Equal(t, map[string]any{
		"matched": false, "failed": map[string]any{"pointer": "/payload/order/$gte", "wanted": "100", "missing": false},
	}, out)
	text, _ = try(map[string]any{"payload": map[string]any{"mail": map[string]any{"$ne": "a@example.com"}}}, "event_id", event)
	require.Contains(t, text, `wants "\"a@example.com\"".`, "what the agent wrote itself")
	text, _ = try(map[string]any{"payload": map[string]any{"none": 1}}, "event_id", event)
	require.Contains(t, text, "and the event has nothing there.")
	_, out = try(map[string]any{"type": "order.paid", "tags": "x"}, "event",
		map[string]any{"type": "order.paid", "payload": map[string]any{}, "tags": []string{"x"}})
	require.Equal(t, map[string]any{"matched": true}, out)

	require.Contains(t, a.fails("test_filter", map[string]any{"filter": map[string]any{}}), "event_id: is required, or event in its place")
	require.Contains(t, a.fails("test_filter", map[string]any{"filter": map[string]any{}, "event_id": "evt_1"}), "event_id: is not the id of an event")
	require.Contains(t, a.fails("test_filter", map[string]any{"filter": map[string]any{"data": 1}, "event_id": event}), "is no field of an event")
}
