package cli_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// rows returns the lines of a table, each split at two or more blanks.
func rows(t *testing.T, table string) [][]string {
	t.Helper()
	var cut [][]string
	for line := range strings.Lines(table) {
		var cells []string
		for cell := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), "  ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}
		cut = append(cut, cells)
	}
	return cut
}

// Lists follow the cursors up to --limit, and --cursor continues a list.
func TestListsFollowCursors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const all = 260 // more than one page of the API
	var posts sync.WaitGroup
	for range all {
		posts.Go(func() {
			_, err := b.store.Events.Accept(t.Context(), webhook.NewEvent{TenantID: "acme", Type: "order.paid", Payload: []byte(`{}`)})
			require.NoError(t, err)
		})
	}
	posts.Wait()

	ids := func(page map[string]any) (ids []string) {
		for _, e := range page["data"].([]any) {
			ids = append(ids, e.(map[string]any)["id"].(string))
		}
		return ids
	}
	whole := b.json("events", "list", "--limit=1000")
	require.Nil(t, whole["next_cursor"])
	require.Len(t, ids(whole), all)
	for _, limit := range []string{"1", "250", "251", "259"} {
		page := b.json("events", "list", "--limit="+limit)
		rest := b.json("events", "list", "--limit=1000", "--cursor="+page["next_cursor"].(string))
		require.Equal(t, ids(whole), append(ids(page), ids(rest)...), limit)
		require.Nil(t, rest["next_cursor"])
	}
	require.Nil(t, b.json("events", "list", "--limit=260")["next_cursor"])

	short := b.run("events", "list")
	require.Len(t, rows(t, short.stdout), 51, "50 by default, and the titles")
	require.Equal(t, "there are more events; --limit shows more of them\n", short.stderr)
	long := b.run("events", "list", "--limit=260")
	require.Len(t, rows(t, long.stdout), 261)
	require.Empty(t, long.stderr)
	for _, limit := range []string{"0", "-1", "10001"} {
		require.Equal(t, "everpost: --limit: must be a whole number from 1 to 10000", b.fails("events", "list", "--limit="+limit))
	}
	require.Contains(t, b.fails("events", "list", "--cursor=x"), "everpost: cursor: ")
}

// An empty list prints nothing on standard output and a message on standard error.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for command, noun := range map[string]string{
		"events list": "events", "deliveries list": "deliveries", "dead-letters list": "dead letters", "endpoints list": "endpoints",
	} {
		require.Equal(t, result{stderr: "no " + noun + "\n"}, b.run(strings.Fields(command)...))
		require.Equal(t, `{"data":[],"next_cursor":null}`+"\n", b.ok(append(strings.Fields(command), "--json")...))
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint("--event-type=order.*")
	event, deliveries := b.send("order.paid", `{"n":1}`, "--external-id=one")
	other, _ := b.send("user.created", `{"n":22}`)

	table := rows(t, b.ok("events", "list"))
	require.Equal(t, []string{"ID", "TYPE", "EXTERNAL ID", "CREATED", "ENDPOINTS", "BYTES", "TAGS"}, table[0])
	require.Len(t, table, 3)
	created := table[1][3]
	_, err := time.Parse(time.DateTime, created)
	require.NoError(t, err)
	require.Equal(t, []string{other, "user.created", "-", created, "0", "8", "-"}, table[1])
	require.Equal(t, []string{event, "order.paid", "one", table[2][3], "1", "7", "-"}, table[2])
	for filter, want := range map[string]int{
		"--type=order.paid": 1, "--external-id=one": 1, "--external-id=two": 0, "--since=1h": 2, "--until=1h": 0,
		"--since=2100-01-01T00:00:00Z": 0, "--until=2100-01-01T00:00:00+02:00": 2, "--since=0001-01-01T00:00:00Z": 2,
	} {
		require.Len(t, b.json("events", "list", filter)["data"], want, filter)
	}

	require.Equal(t, event, b.json("events", "get", event)["id"])
	shown := rows(t, b.ok("events", "get", event))
	require.Contains(t, shown, []string{"external_id", "one"})
	require.Contains(t, shown, []string{"deliver_at", "-"})
	require.Contains(t, fmt.Sprint(shown), "[deliveries id="+deliveries[0]+" endpoint_id="+ep+" state=pending summary=A")
	none := webhook.NewEventID().String()
	require.Equal(t, "everpost: no such event of tenant acme; check the id, and --tenant: what is another tenant's is not shown",
		b.fails("events", "get", none))
	require.Contains(t, b.fails("events", "payload", none), "no such event")
	require.Contains(t, b.fails("events", "get", deliveries[0]), `" is not an id of the form evt_…`)
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep, other := b.endpoint(), b.endpoint("--event-type=user.*")
	event, ids := b.send("order.paid")
	_, users := b.send("user.created", "--endpoint="+other)
	id, user := ids[0], users[0]
	b.attempted(id, 1, 503, webhook.StateRetrying)

	table := rows(t, b.ok("deliveries", "list"))
	require.Equal(t, []string{"ID", "STATE", "EVENT TYPE", "ENDPOINT", "ATTEMPTS", "CREATED", "SUMMARY"}, table[0])
	require.Len(t, table, 3)
	require.Equal(t, []string{user, "pending", "user.created", other, "0"}, table[1][:5])
	require.Equal(t, []string{id, "retrying", "order.paid", ep, "1"}, table[2][:5])
	require.Regexp(t, "^Attempt 1 at .* UTC got 503 Service Unavailable; attempt 2 ", table[2][6])
	for filter, want := range map[string]int{
		"--state=retrying": 1, "--state=pending,retrying": 2, "--state=held": 0, "--endpoint=" + other: 1, "--event=" + event: 1,
		"--event-type=order.paid": 1, "--since=1h": 2, "--until=1h": 0,
	} {
		require.Len(t, b.json("deliveries", "list", filter)["data"], want, filter)
	}
	require.Len(t, b.json("deliveries", "list", "--state=pending", "--state=retrying")["data"], 2)
	require.Contains(t, b.fails("deliveries", "list", "--state=lost"), `--state must be one of "pending",`)

	shown := rows(t, b.ok("deliveries", "get", id))
	require.Contains(t, shown, []string{"state", "retrying"})
	require.Contains(t, shown, []string{"completed_at", "-"})
	require.Contains(t, shown, []string{"code", "retry_response"})
	require.Regexp(t, "^Attempt 1 at .* UTC got 503 Service Unavailable; attempt 2 ", shown[0][0])
	require.Equal(t, id, b.json("deliveries", "get", id)["id"])

	b.attempted(id, 2, 200, webhook.StateDelivered)
	table = rows(t, b.ok("deliveries", "attempts", id))
	require.Equal(t, []string{"ATTEMPT", "RUN", "STARTED", "STATUS", "REASON", "TOOK", "OF WHICH", "WAITED FOR", "NEXT IN", "ERROR"}, table[0])
	require.Equal(t, []string{"2", "1", table[1][2], "200", "delivered", "41 ms", "names 5 ms, wait 36 ms", "-", "-", "-"}, table[1])
	require.Equal(t, []string{"1", "1", table[2][2], "503", "http_503", "41 ms", "names 5 ms, wait 36 ms", "-", "1m0s (retry_after)", "-"}, table[2])
	require.Len(t, b.json("deliveries", "attempts", id, "--limit=1")["data"], 1)
}

// Commands go to each named delivery: when one rejects it, the others still get it, and the
// error names the one.
func TestDeliveryCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint()
	var ids []string
	for range 3 {
		_, sent := b.send("order.paid")
		ids = append(ids, sent...)
	}
	b.attempted(ids[0], 1, 200, webhook.StateDelivered)
	b.attempted(ids[1], 1, 503, webhook.StateRetrying)
	gone := webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID()).String()

	require.Equal(t, ids[1]+"  reschedule accepted, retrying\n", b.ok("deliveries", "reschedule", ids[1], "--at=1h"))
	require.Equal(t, ids[1]+"  retry accepted, retrying\n", b.ok("deliveries", "retry", ids[1]))
	require.Equal(t, "retrying", b.json("deliveries", "retry", ids[1])["state"])
	r := b.run("deliveries", "cancel", ids[0], ids[1], gone, ids[2], "--reason=sent by mistake")
	require.Equal(t, 1, r.code)
	require.Equal(t, ids[1]+"  cancel accepted, retrying\n"+ids[2]+"  cancel accepted, pending\n", r.stdout)
	require.Equal(t, "everpost: "+ids[0]+": cancel is not possible: the delivery is delivered; "+
		gone+": no such delivery of tenant acme; check the id, and --tenant: what is another tenant's is not shown\n", r.stderr)

	require.Equal(t, ids[0]+"  replay accepted, pending\n", b.ok("deliveries", "replay", ids[0], "--reason=lost by the receiver"))
	require.InDelta(t, 2, b.json("deliveries", "get", ids[0])["run"], 0)
	require.Contains(t, b.fails("deliveries", "cancel"), `<id>`)
	require.Contains(t, b.fails("deliveries", "cancel", ids[0], "--reason="+strings.Repeat("x", 300)), ids[0]+": reason: must be 1 to 255 printable characters")
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint()
	var ids []string
	for range 3 {
		_, sent := b.send("order.paid")
		b.attempted(sent[0], 1, 503, webhook.StateDeadLettered)
		ids = append(ids, sent...)
	}
	_, open := b.send("order.paid")

	table := rows(t, b.ok("dead-letters", "list"))
	require.Equal(t, []string{"ID", "REASON", "LAST", "EVENT TYPE", "ENDPOINT", "ATTEMPTS", "CREATED", "GIVEN UP"}, table[0])
	require.Len(t, table, 4)
	require.Equal(t, []string{ids[2], "max_attempts", "http_503", "order.paid", ep, "1"}, table[1][:6])
	for filter, want := range map[string]int{
		"--reason=max_attempts": 3, "--reason=http_400": 0, "--status=503": 3, "--status=500": 0, "--endpoint=" + ep: 3, "--event-type=user.created": 0,
	} {
		require.Len(t, b.json("dead-letters", "list", filter)["data"], want, filter)
	}

	require.Equal(t, ids[0]+"  replay accepted, pending\n", b.ok("dead-letters", "replay", ids[0], "--reason=repaired"))
	require.Equal(t, ids[1]+"  discard accepted, dead_lettered\n", b.ok("dead-letters", "discard", ids[1]))
	require.Contains(t, b.fails("dead-letters", "replay", open[0]), open[0]+": replay is not possible: the delivery is pending")
	require.Contains(t, b.fails("dead-letters", "discard", open[0]), "discard is not possible: the delivery is pending")

	require.Contains(t, b.fails("dead-letters", "replay"), "say which: their ids, or --all")
	require.Contains(t, b.fails("dead-letters", "replay", ids[2], "--all"), "takes ids or --all, not both")
	for _, flag := range []string{
		"--endpoint=" + ep, "--event-type=order.paid", "--since=1h", "--until=1h", "--status=503", "--rate-per-minute=5", "--no-ramp",
	} {
		require.Contains(t, b.fails("dead-letters", "replay", ids[2], flag), "go with --all", flag)
	}
	require.Equal(t, "dead_lettered", b.json("deliveries", "get", ids[2])["state"])
}

// Everything that has an id is explained by it.
func TestExplain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint("--event-type=order.*")
	event, ids := b.send("order.paid")
	b.attempted(ids[0], 1, 503, webhook.StateRetrying)
	const sentence = "Attempt 1 at .* UTC got 503 Service Unavailable; attempt 2 .*; up to 16 attempts, until .* UTC\\."
	shown := b.ok("explain", ids[0])
	require.Regexp(t, "^"+sentence+"\n\n", shown)
	require.Contains(t, rows(t, shown), []string{"cause", "The receiver at example.com answered 503 (Service Unavailable)."})
	require.Contains(t, rows(t, shown), []string{"code", "retry_response"})
	explained := func(command ...string) string { // without how far away the next attempt is, which changes
		text, err := json.Marshal(b.json(command...)["explanation"])
		require.NoError(t, err)
		return regexp.MustCompile(`, in \d+ s;`).ReplaceAllString(string(text), ";")
	}
	require.Equal(t, explained("deliveries", "get", ids[0]), explained("explain", ids[0]))

	require.Regexp(t, "^"+ids[0]+" to "+ep+": "+sentence+"\n$", b.ok("explain", event))
	none, _ := b.send("user.created")
	shown = b.ok("explain", none)
	require.Contains(t, shown, "No endpoint matched the type user.created, so nothing is sent; the tenant has 1 endpoint; "+
		""+ep+" (example.com) subscribes to order.*.\n\n")
	require.Contains(t, rows(t, shown), []string{"code", "no_matching_endpoint"})

	shown = b.ok("explain", ep)
	require.Regexp(t, "^Active; the last failure on record is 503 Service Unavailable at .* ago; 1 waiting to be sent again.*\\.\n\n", shown)
	require.Contains(t, rows(t, shown), []string{"code", "endpoint_idle"})
	require.Equal(t, ep, b.json("explain", ep)["endpoint_id"])

	for id, want := range map[string]string{
		"rpl_06f4q2m0hhf5dd6cs7m9k2q8xw": "is not the id of a delivery (dlv_…), an event (evt_…) or an endpoint (ep_…)",
		"dlv_1":                          "is not an id of the form dlv_…", "evt_": "is not an id of the form evt_…", "ep_x": "is not an id of the form ep_…",
	} {
		r := b.run("explain", id)
		require.Equal(t, 2, r.code, id)
		require.Contains(t, r.stderr, want, id)
	}
	require.Contains(t, b.fails("explain", webhook.NewEventID().String()), "no such event of tenant acme")
}
