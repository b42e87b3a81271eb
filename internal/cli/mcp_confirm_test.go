package cli_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/webhook"
)

// key makes a key of a tenant.
func (b *bundle) key(tenant string, scope webhook.Scope) string {
	b.Helper()
	id := webhook.NewKeyID()
	text, sum := api.NewKey(id)
	require.NoError(b, b.store.Keys.CreateKey(b.Context(), webhook.Actor{Name: "test"},
		webhook.Key{ID: id, TenantID: tenant, Scope: scope, SHA256: sum, CreatedAt: time.Now()}))
	return text
}

// writingAgent is an agent that may change something, with a key of the tenant.
func (b *bundle) writingAgent(p person) agent {
	b.Helper()
	c := b.mcpCommand(b.key("acme", webhook.ScopeAdmin))
	c.Write = true
	return connectAgent(b.T, c, p)
}

func (b *bundle) stateOfEndpoint(id string) any { return b.json("endpoints", "get", id)["state"] }

// expectOf is what a refusal says that expect has to be.
func expectOf(t *testing.T, refusal string) string {
	t.Helper()
	found := regexp.MustCompile(`expect: "([^"]+)"`).FindStringSubmatch(refusal)
	require.NotNil(t, found, refusal)
	return found[1]
}

// A client that can ask its user does, and nothing happens without a yes.
func TestMCPConfirmedByThePerson(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint()
	var questions []string
	answer := "decline"
	a := b.writingAgent(func(question string) string {
		questions = append(questions, question)
		return answer
	})
	require.Contains(t, a.fails("pause_endpoint", map[string]any{"id": ep}), "Not done: the user did not agree.")
	require.Equal(t, "active", b.stateOfEndpoint(ep))
	answer = "cancel"
	text := a.fails("pause_endpoint", map[string]any{"id": ep, "confirm": true, "expect": "example.com"})
	require.Contains(t, text, "Not done: the user did not agree.", "confirm does not replace the person")
	require.Equal(t, "active", b.stateOfEndpoint(ep))
	answer = "accept"
	text, out := a.ok("pause_endpoint", map[string]any{"id": ep})
	require.Equal(t, "Done: pause. The endpoint "+ep+" is paused.\n", text)
	require.Equal(t, "paused", out["state"])
	require.Equal(t, "paused", b.stateOfEndpoint(ep))
	require.Len(t, questions, 3)
	require.Equal(t, "Pause the endpoint "+ep+` of tenant acme (host "example.com", active, 0 waiting, 0 held)? `+
		"Its deliveries are held until it is resumed, at the longest until their give-up time.", questions[2])

	a.ok("resume_endpoint", map[string]any{"id": ep, "rate_per_minute": 60})
	require.Equal(t, "active", b.stateOfEndpoint(ep))
	require.Contains(t, a.fails("close_circuit", map[string]any{"id": ep}), "(status 409)\nRemedy: Its state does not allow this now")
	require.Contains(t, a.fails("pause_endpoint", map[string]any{"id": webhook.NewEndpointID().String()}), "(status 404)")
	require.Len(t, questions, 5, "what does not exist is not asked about")

	entries := b.json("audit", "--action=endpoint.pause")["data"].([]any)
	require.Len(t, entries, 1, "and the audit log has what was done")
}

// A client that cannot ask has to call twice, and to name what it means.
func TestMCPConfirmedByName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint()
	_, ids := b.send("order.paid", `{}`)
	b.attempted(ids[0], 1, 503, webhook.StateRetrying)
	a := b.writingAgent(nil)
	for _, arguments := range []map[string]any{
		{"id": ids[0]}, {"id": ids[0], "confirm": true}, {"id": ids[0], "expect": "order.paid"}, {"id": ids[0], "confirm": true, "expect": "order.sent"},
	} {
		text := a.fails("cancel_delivery", arguments)
		require.Contains(t, text, "Not done: this needs a confirmation.\nCancel the delivery "+ids[0]+
			` of tenant acme ("order.paid" to `+ep+", retrying after 1 attempt)?")
		require.Regexp(t, `confirm: true and expect: "order\.paid-[0-9a-z]+-[0-9a-f]+" \(the event type of the delivery, and a code\)\.`, text)
	}
	cancel := map[string]any{"id": ids[0], "reason": "by mistake"}
	expect := expectOf(t, a.fails("cancel_delivery", cancel))
	another := map[string]any{"id": ids[0], "reason": "another", "confirm": true, "expect": expect}
	require.Contains(t, a.fails("cancel_delivery", another), "this needs a confirmation", "a code is for one call with its arguments")
	require.Equal(t, "retrying", b.json("deliveries", "get", ids[0])["state"])
	cancel["confirm"], cancel["expect"] = true, expect
	text, out := a.ok("cancel_delivery", cancel)
	require.Contains(t, text, "The command cancel for "+ids[0]+" is stored and will be carried out")
	require.Equal(t, "cancel", out["command"])
	require.Len(t, b.json("audit", "--action=delivery.cancel")["data"].([]any), 1)

	refusal := a.fails("pause_endpoint", map[string]any{"id": ep})
	require.Regexp(t, `expect: "example\.com-[0-9a-z-]+" \(the host of the endpoint, and a code\)`, refusal)
	pause := map[string]any{"id": ep, "confirm": true, "expect": expectOf(t, refusal)}
	a.ok("pause_endpoint", pause)
	require.Equal(t, "paused", b.stateOfEndpoint(ep))
	a.ok("resume_endpoint", map[string]any{"id": ep, "confirm": true, "expect": expectOf(t, a.fails("resume_endpoint", map[string]any{"id": ep}))})
	require.Contains(t, a.fails("pause_endpoint", pause), "Not done: the confirmation was used before.")
	require.Equal(t, "active", b.stateOfEndpoint(ep))

	ingest := b.mcpCommand(b.key("acme", webhook.ScopeIngest))
	ingest.Write = true
	reader, again := connectAgent(t, ingest, nil), map[string]any{"id": ids[0]}
	again["confirm"], again["expect"] = true, expectOf(t, reader.fails("cancel_delivery", map[string]any{"id": ids[0]}))
	refused := reader.fails("cancel_delivery", again)
	require.Contains(t, refused, "Remedy: Use a key of the tenant with the scope admin.", "the key decides")
}

// Deliveries that are sent again: one, and many with their number.
func TestMCPReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint("--event-type=order.*")
	var letters []string
	for range 12 {
		_, ids := b.send("order.paid", `{}`)
		b.attempted(ids[0], 1, 503, webhook.StateDeadLettered)
		letters = append(letters, ids[0])
	}
	var asked string
	yes := func(question string) string { asked = question; return "accept" }
	a := b.writingAgent(yes)
	require.Contains(t, a.fails("replay_dead_letters", nil), "all: is required without a filter")
	require.Contains(t, a.fails("replay_dead_letters", map[string]any{"status": 404}), "no dead letters match")
	require.Empty(t, asked)
	text, out := a.ok("replay_dead_letters", map[string]any{"reason": "max_attempts", "rate_per_minute": 30})
	require.Regexp(t, `^Send 12 dead letters of tenant acme again, at 30 per minute at first `+
		`\(12 to ep_\w+, given up: all attempts used up \(max_attempts\), last answer 503 Service Unavailable\)\?`, asked)
	require.Contains(t, text, "Started: rpl_")
	require.InDelta(t, 12, out["total"], 0)
	const progress = "0 of 12 released"
	text, _ = a.ok("list_replays", nil)
	require.Contains(t, text, out["id"].(string)+" of dead_letters is running: "+progress+" at 30 per minute")
	text, _ = a.ok("explain", map[string]any{"id": out["id"]})
	require.Contains(t, text, progress)

	byName := b.writingAgent(nil)
	refused := byName.fails("replay_dead_letters", map[string]any{"all": true, "confirm": true, "expect": "1"})
	require.Regexp(t, `expect: "12-[0-9a-z-]+" \(the number of dead letters, and a code\)`, refused)
	require.Contains(t, byName.fails("replay_dead_letters", map[string]any{"all": true, "confirm": true, "expect": "12"}), "needs a confirmation")
	byName.ok("replay_dead_letters", map[string]any{"all": true, "confirm": true, "expect": expectOf(t, refused)})

	a.ok("replay_delivery", map[string]any{"id": letters[0], "reason": "fixed"})
	require.Contains(t, asked, "Send the delivery "+letters[0]+` of tenant acme ("order.paid" to `)
	require.Contains(t, a.fails("retry_delivery", map[string]any{"id": letters[1]}), "(status 409)")
}

// While the user reads, other dead letters may come: not too many.
func TestMCPReplayOfMoreThanWasConfirmed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint()
	add := func(n int) {
		for range n {
			_, ids := b.send("order.paid", `{}`)
			b.attempted(ids[0], 1, 503, webhook.StateDeadLettered)
		}
	}
	add(1)
	later := 11
	a := b.writingAgent(func(string) string { add(later); return "accept" })
	require.Contains(t, a.fails("replay_dead_letters", map[string]any{"all": true}), "Not done: 1 delivery was confirmed, and there are 12 now.")
	require.Empty(t, b.json("replays", "list")["data"])
	later = 1
	a.ok("replay_dead_letters", map[string]any{"all": true})
	require.Len(t, b.json("replays", "list")["data"], 1)
}
