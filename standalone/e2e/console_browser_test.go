package e2e_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// TestConsole uses the console as people do, in a real browser. Each task is done with JavaScript and without.
func TestConsole(t *testing.T) { //nolint:tparallel // one browser: its pages are looked at one after another
	t.Parallel()
	shared(t) // one place for all that follows
	browser := startBrowser(t)
	for name, task := range map[string]func(t *testing.T, b *bundle, w *window, scripts bool){
		"an event is sent and followed until it is delivered":  sendAndFollow,
		"a dead letter is sent again":                          replayDeadLetter,
		"all dead letters that match are sent again":           replayAllThatMatch,
		"dead letters are discarded":                           discardDeadLetters,
		"an endpoint is paused and resumed":                    pauseAndResume,
		"a replay is started, paused, changed and cancelled":   runReplay,
		"retry policies are drawn":                             drawPolicies,
		"the search finds things":                              search,
		"an operator makes a tenant and keys, and looks after": operate,
	} {
		t.Run(name, func(t *testing.T) {
			for _, scripts := range []bool{true, false} {
				mode := "with JavaScript"
				if !scripts {
					mode = "without JavaScript"
				}
				t.Run(mode, func(t *testing.T) {
					b := setup(t)
					w := browser.open(t, b.in)
					w.as(b.in, b.in.key)
					if !scripts {
						w.withoutScripts()
					}
					task(t, b, w, scripts)
				})
			}
		})
	}
	t.Run("log-in and its end", func(t *testing.T) { logInAndOut(t, browser) })
	t.Run("what is another tenant's is not found", func(t *testing.T) { lookElsewhere(t, browser) })
	t.Run("a form from elsewhere is refused", func(t *testing.T) { forgeForm(t, browser) })
	t.Run("every page", func(t *testing.T) { lookAtEveryPage(t, browser) })
	t.Run("every page of the reference", func(t *testing.T) { lookAtTheReference(t, browser) })
}

func sendAndFollow(t *testing.T, b *bundle, w *window, scripts bool) {
	t.Helper()
	r := newReceiver(t)
	r.Hold()
	defer r.Release()
	b.endpoint(r, "/hook", nil)
	w.show(b.below("events", "new"), http.StatusOK)
	w.fill("type", "order.paid")
	w.fill("payload", `{"order": "<b>17</b>"}`)
	w.pressButton("Send")
	require.Contains(t, w.path(), "/events/evt_")
	require.Contains(t, w.text(), "The event is stored and is being delivered.")
	require.Contains(t, w.text(), `"<b>17</b>"`, "the payload is text")
	w.press(`(//main//tbody//a[contains(@href, "/deliveries/")])[1]`)
	require.Contains(t, w.path(), "/deliveries/dlv_")
	require.NotContains(t, w.text(), "Delivered at")
	r.Release()
	w.await("Delivered at", !scripts) // with scripts the open page changes by itself
	w.await("Attempt 1", !scripts)
}

// refused is a dead letter of the tenant; a second request is accepted.
func (b *bundle) refused(r *receiver, kind string) delivery {
	b.t.Helper()
	r.Script("/"+kind, receivertest.Step{Status: http.StatusBadRequest, Body: "no such order"})
	_, d := b.postOne("a."+kind, `{"n":1}`)
	return b.waitState(d.ID, "dead_lettered")
}

func replayDeadLetter(t *testing.T, b *bundle, w *window, scripts bool) {
	t.Helper()
	r := newReceiver(t)
	ep := b.endpoint(r, "/one", fieldsOf{"event_types": []string{"a.one"}})
	d := b.refused(r, "one")
	w.show(b.below("dead-letters"), http.StatusOK)
	for _, said := range []string{"400 Bad Request", "1 dead letter", "attempt 1 got 400", strings.TrimPrefix(ep.URL, "http://")} {
		require.Contains(t, w.text(), said)
	}
	w.press(`//main//button[@name="one"][starts-with(@value, "replay ")]`)
	require.Contains(t, w.text(), "Send 1 dead letter again?")
	w.pressButton("Send again")
	require.Contains(t, w.text(), "Sending 1 dead letter again.")
	w.show(b.below("deliveries", d.ID), http.StatusOK)
	w.await("sent again (run 2)", !scripts)
}

func replayAllThatMatch(t *testing.T, b *bundle, w *window, scripts bool) {
	t.Helper()
	r := newReceiver(t)
	b.endpoint(r, "/one", fieldsOf{"event_types": []string{"a.one"}})
	b.endpoint(r, "/two", fieldsOf{"event_types": []string{"a.two"}})
	first, second, other := b.refused(r, "one"), b.refused(r, "one"), b.refused(r, "two")
	w.show(b.below("dead-letters")+"?event_type=a.one", http.StatusOK)
	require.Contains(t, w.text(), "2 dead letters that match")
	w.pressButton("Send all that match again")
	require.Contains(t, w.text(), "Send 2 dead letters again?")
	require.Equal(t, "a.one", evaluate[string](w, `document.getElementById("f-event_type").value`))
	w.pressButton("Send 2 dead letters again")
	require.Contains(t, w.path(), "/replays/rpl_")
	w.awaitIn(contextFor(t, longRecovery), "completed", !scripts)
	b.waitState(first.ID, "delivered")
	b.waitState(second.ID, "delivered")
	require.Equal(t, "dead_lettered", b.delivery(other.ID).State)
}

func discardDeadLetters(t *testing.T, b *bundle, w *window, _ bool) {
	t.Helper()
	r := newReceiver(t)
	b.endpoint(r, "/one", fieldsOf{"event_types": []string{"a.one"}})
	b.endpoint(r, "/two", fieldsOf{"event_types": []string{"a.two"}})
	chosen, kept, last := b.refused(r, "one"), b.refused(r, "one"), b.refused(r, "two")
	w.show(b.below("dead-letters"), http.StatusOK)
	w.pressButton("Discard selected")
	require.Contains(t, w.text(), "Nothing was selected.")
	require.NoError(t, chromedp.Do(w.ctx, chromedp.Click(`//input[@name="id"][@value="`+chosen.ID+`"]`)))
	w.pressButton("Discard selected")
	require.Contains(t, w.text(), "Discard 1 dead letter?")
	w.fill("why", "a test")
	w.pressButton("Discard")
	require.Equal(t, "a test", text(b.waitState(chosen.ID, "discarded").Reason))
	require.Equal(t, "dead_lettered", b.delivery(kept.ID).State)

	w.show(b.below("dead-letters")+"?event_type=a.two", http.StatusOK)
	w.pressButton("Discard all that match")
	require.Contains(t, w.text(), "Discard 1 dead letter?")
	w.pressButton("Discard")
	b.waitState(last.ID, "discarded")
	require.Equal(t, "dead_lettered", b.delivery(kept.ID).State, "it does not match")
}

func pauseAndResume(t *testing.T, b *bundle, w *window, scripts bool) {
	t.Helper()
	r := newReceiver(t)
	ep := b.endpoint(r, "/hook", nil)
	w.show(b.below("endpoints", ep.ID), http.StatusOK)
	w.pressButton("Pause")
	require.Contains(t, w.path(), "/pause", "it asks first")
	w.pressButton("Pause")
	w.await("Paused by hand", !scripts)
	_, d := b.postOne("order.paid", `{}`)
	b.waitState(d.ID, "held")
	w.show(b.below("deliveries", d.ID), http.StatusOK)
	require.Contains(t, w.text(), "Waits because the endpoint is paused by hand")
	w.show(b.below("endpoints", ep.ID), http.StatusOK)
	w.pressButton("Resume")
	require.Contains(t, w.text(), "1 held deliver")
	w.pressButton("Resume")
	require.Contains(t, w.text(), "The endpoint is active")
	b.waitState(d.ID, "delivered")
}

func runReplay(t *testing.T, b *bundle, w *window, scripts bool) {
	t.Helper()
	r := newReceiver(t)
	b.endpoint(r, "/one", fieldsOf{"event_types": []string{"a.one"}})
	for range 3 {
		b.refused(r, "one")
	}
	r.Default(receivertest.Step{Status: http.StatusBadRequest}) // so that they stay dead letters
	w.show(b.below("replays"), http.StatusOK)
	require.Contains(t, w.text(), "There is no replay.")
	w.pressButton("Send deliveries again")
	w.fill("rate_per_minute", "none")
	w.expect(http.StatusBadRequest)
	w.pressButton("Next: count")
	require.Contains(t, w.text(), "must be a whole number")
	w.fill("rate_per_minute", "1")
	w.pressButton("Next: count")
	require.Contains(t, w.text(), "Send 3 dead letters again?")
	w.pressButton("Send 3 dead letters again")
	require.Contains(t, w.path(), "/replays/rpl_")
	_, id, _ := strings.Cut(w.path(), "/replays/")
	w.pressButton("Pause")
	b.waitReplayState(id, "paused")
	w.await("Resume", !scripts)
	w.fill("rate_per_minute", "2")
	w.pressButton("Change")
	w.await("asked 2/min", !scripts)
	w.pressButton("Resume")
	w.await("running", !scripts)
	w.pressButton("Cancel")
	require.Contains(t, w.text(), "Cancel the replay? ")
	w.pressButton("Cancel the replay")
	b.waitReplayState(id, "cancelled")
	w.show(b.below("replays"), http.StatusOK)
	require.Contains(t, w.text(), "cancelled")
}

func drawPolicies(t *testing.T, b *bundle, w *window, _ bool) {
	t.Helper()
	pictures := func() int { return evaluate[int](w, `document.querySelectorAll("main svg[role=img] > desc").length`) }
	w.show(b.below("retry-policies"), http.StatusOK)
	require.Equal(t, 2, pictures(), "the policy, and an outage")
	require.Contains(t, w.text(), "If the receiver is down for 3 h, every delivery arrives")
	w.pressButton("fast")
	require.Contains(t, w.text(), "no delivery that is accepted when the outage begins arrives: each is given up after 5 attempts")
	w.fill("policy", `{"preset": "fast", "max_attempts": 3}`)
	w.fill("down", "1s")
	w.pressButton("Draw")
	require.Contains(t, w.text(), "If the receiver is down for 1 s, ")
	require.Contains(t, evaluate[string](w, `document.querySelector("svg.policy > desc").textContent`), "attempt 3 after")
	require.Contains(t, evaluate[string](w, `document.getElementById("policy-json").textContent`), `"max_attempts": 3`)

	w.expect(http.StatusBadRequest)
	w.fill("policy", `{"factor": 0.5, "max_attempt": 3}`)
	w.pressButton("Draw")
	require.Contains(t, w.text(), "factor must be")
	require.Contains(t, w.text(), "max_attempt is not a setting of a retry policy")
	require.Contains(t, evaluate[string](w, `document.querySelector("[name=policy]").value`), `"max_attempt": 3`, "what was typed stays")
}

func search(t *testing.T, b *bundle, w *window, scripts bool) {
	t.Helper()
	r := newReceiver(t)
	ep := b.endpoint(r, "/needle", fieldsOf{"event_types": []string{"a.needle"}, "retry_policy": patiently()})
	r.Script("/needle", receivertest.Step{Status: http.StatusServiceUnavailable})
	e, d := b.postOne("a.needle", `{}`, "external_id", `"order-1001"`)
	b.waitState(d.ID, "retrying")
	find := func(what string) {
		t.Helper()
		w.show(b.below("search")+"?"+url.Values{"q": {what}}.Encode(), http.StatusOK)
	}
	for id, page := range map[string]string{e.ID: "events", d.ID: "deliveries", ep.ID: "endpoints"} {
		find(id)
		require.Equal(t, b.below(page, id), w.path())
	}
	for what, found := range map[string]string{
		"order-1001":                           "a.needle",
		"/needle":                              strings.TrimPrefix(ep.URL, "http://"),
		"type:a.* state:retrying since:2h":     "got 503",
		"endpoint:" + ep.ID + " retrying":      "got 503",
		"external_id:order-1001 open":          "got 503",
		"state:delivered":                      "Nothing was found.",
		"external_id:none retrying":            "Nothing was found.",
		"state:gone":                           "is not a state",
		strings.Replace(d.ID, "dlv", "evt", 1): "No event has the id",
	} {
		find(what)
		require.Contains(t, w.text(), found, what)
	}
	require.NoError(t, chromedp.Do(w.ctx, chromedp.SetValue(chromedp.ID("find"), "state:held"), chromedp.Submit(chromedp.ID("find"))))
	eventually(contextFor(t, patience), t, func() string {
		if strings.Contains(w.path(), "q=state") && strings.Contains(w.text(), "Nothing was found.") {
			return ""
		}
		return w.path()
	})
	if scripts {
		w.show(b.below("search"), http.StatusOK)
		require.NoError(t, chromedp.Do(w.ctx, chromedp.SendKeys(chromedp.ID("find"), "type:a")))
		eventually(contextFor(t, patience), t, func() string {
			suggested := evaluate[string](w, `[...document.querySelectorAll("#suggestions option")].map(o => o.value).join(" ")`)
			if strings.Contains(suggested, "type:a.needle") {
				return ""
			}
			return "it suggests " + suggested
		})
	}
}
