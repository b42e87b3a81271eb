package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// explained is what the API says of a delivery, an event or an endpoint's health.
type explained struct {
	Summary     string `json:"summary"`
	Explanation struct {
		Code     string     `json:"code"`
		Cause    *string    `json:"cause"`
		Next     *string    `json:"next"`
		Remedy   *string    `json:"remedy"`
		Workflow *string    `json:"workflow"`
		Until    *time.Time `json:"until"`
	} `json:"explanation"`
	Stale bool `json:"stale"` // of health
}

// incomplete reports whether the worker that knows more did not answer the API, as the explanation says: another answer is needed to see all.
func (e *explained) incomplete() bool {
	return e.Stale || strings.Contains(text(e.Explanation.Cause), "did not answer in time, so details may be missing")
}

// explain asks the API. The path is below the tenant.
func (b *bundle) explain(path string) explained {
	b.t.Helper()
	var e explained
	b.ask(http.StatusOK, http.MethodGet, path, nil, &e)
	return e
}

// run runs a command of the client for the tenant and returns what it prints.
func (b *bundle) run(args ...string) string {
	b.t.Helper()
	f, err := runToEnd(contextFor(b.t, patience), settings{"EVERPOST_URL": b.in.addr["api"], "EVERPOST_KEY": b.in.key, "EVERPOST_TENANT": b.tenant}, args...)
	require.NoError(b.t, err)
	require.Zero(b.t, f.Code, f.Stderr)
	return f.Stdout
}

// elapsing are the parts of a sentence that depend on when it is made.
var elapsing = regexp.MustCompile(`(less than 1 ms|[0-9.]+ (ms|s|min|h|days|waiting|requests? per (second|minute)|of the endpoint's deliveries))\b`)

func timeless(text string) string { return elapsing.ReplaceAllString(text, "…") }

// requireExplained waits until a delivery has the code, and requires that its summary matches. It waits until that is the same in the list,
// in its event, and on the command line, which also prints the cause and the remedy: between two answers the situation may have changed. The
// Web UI says the same, as far as a workflow knows it.
func (b *bundle) requireExplained(d delivery, code, summary, cause string) {
	b.t.Helper()
	var got explained
	eventually(contextFor(b.t, patience), b.t, func() string {
		if got = b.explain("/deliveries/" + d.ID); got.Explanation.Code != code || got.incomplete() {
			return got.Explanation.Code + ": " + got.Summary + " " + text(got.Explanation.Cause)
		}
		require.Regexp(b.t, "^"+summary+"$", got.Summary)
		require.Contains(b.t, text(got.Explanation.Cause), cause)
		return b.differsElsewhere(d, got)
	})
	b.requireDetails(d.ID, got)
}

// differsElsewhere is how the list, the event or the command line explains a delivery differently; "" if it is the same.
func (b *bundle) differsElsewhere(d delivery, got explained) string {
	b.t.Helper()
	var list struct {
		Data []explained `json:"data"`
	}
	b.ask(http.StatusOK, http.MethodGet, "/deliveries?"+url.Values{"event_id": {d.EventID}}.Encode(), nil, &list)
	var event struct {
		Deliveries []explained `json:"deliveries"`
	}
	b.ask(http.StatusOK, http.MethodGet, "/events/"+d.EventID, nil, &event)
	said := b.run("explain", d.ID)
	lines := strings.Split(said, "\n")
	same := timeless
	if strings.HasPrefix(got.Explanation.Code, "waits_") { // it may have got another time meanwhile
		same = func(text string) string { return anyClock.ReplaceAllString(timeless(text), "T") }
	}
	for where, summary := range map[string]string{"list": list.Data[0].Summary, "event": event.Deliveries[0].Summary, "command line": lines[0]} {
		if same(summary) != same(got.Summary) {
			return "the " + where + " says " + summary + ", not " + got.Summary
		}
	}
	for _, part := range []*string{got.Explanation.Cause, got.Explanation.Remedy} {
		if part != nil && !strings.Contains(same(said), same(*part)) {
			return "the command line does not say " + *part + ": " + said
		}
	}
	var printed explained
	require.NoError(b.t, json.Unmarshal([]byte(b.run("explain", d.ID, "--json")), &printed))
	if printed.Explanation.Code != got.Explanation.Code {
		return "the command line prints the code " + printed.Explanation.Code + ", not " + got.Explanation.Code
	}
	return ""
}

const (
	clock = `(\d{1,2} \w{3} (\d{4} )?)?\d\d:\d\d(:\d\d)? UTC`
	hours = `; attempt 2 follows at ` + clock + `, in \d+ min; up to 5 attempts, until ` + clock + `\.`
	kept  = `; kept as a dead letter until ` + clock + `\.`
)

// What goes wrong with a delivery is said with its cause, in the API and on the command line.
func TestExplanationsOfFailures(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	unavailable := receivertest.Step{Status: http.StatusServiceUnavailable}
	givenUp := `Given up at ` + clock + `, \d+ s after it was accepted: `
	for name, c := range map[string]struct {
		step                 receivertest.Step
		fields               fieldsOf
		code, summary, cause string
	}{
		"unavailable": {
			step: unavailable, code: "retry_response",
			summary: `Attempt 1 at ` + clock + ` got 503 Service Unavailable` + hours, cause: "The receiver at 127.0.0.1 answered 503 (Service Unavailable).",
		},
		"pause": {
			step: receivertest.Step{Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": "30"}}, code: "retry_after",
			summary: `Attempt 1 at ` + clock + ` got 503 Service Unavailable and asked for a pause of 30 s` + hours,
			cause:   "Its Retry-After is kept: no attempt is made earlier.",
		},
		"forbidden": {
			step: receivertest.Step{Status: http.StatusForbidden}, code: "refused",
			summary: givenUp + `attempt 1 got 403 Forbidden, which is final` + kept, cause: "answered 403 (Forbidden).",
		},
		"closed": {
			fields: fieldsOf{"url": "http://" + closedPort(t) + "/closed"}, code: "retry_connection",
			summary: `Attempt 1 at ` + clock + ` failed: the receiver at 127\.0\.0\.1 refused the connection` + hours,
			cause:   "refused the connection",
		},
		"outdated": {
			fields: fieldsOf{"url": outdated(t) + "/outdated"}, code: "retry_tls",
			summary: `Attempt 1 at ` + clock + ` failed: no secure connection to the receiver at 127\.0\.0\.1 could be made` + hours,
			cause:   "The TLS handshake failed. The certificate expired on ",
		},
		"missing": {
			step: receivertest.Step{Status: http.StatusNotFound}, code: "retry_not_found",
			summary: `Attempt 1 at ` + clock + ` got 404 Not Found; attempt 2 follows at ` + clock + `, in \d+ min; ` +
				`retry 1 of at most 5 for such a failure, until ` + clock + `\.`,
			cause: "answered 404 (Not Found).",
		},
		"slow": {
			step: receivertest.Step{Hang: true}, fields: fieldsOf{"timeout": "1s"}, code: "retry_timeout",
			summary: `Attempt 1 at ` + clock + ` timed out: connected to the receiver at 127\.0\.0\.1, ` +
				`and no answer began in time` + hours, cause: "no complete answer came within",
		},
		"drop": {
			step: receivertest.Step{Drop: true}, code: "retry_connection",
			summary: `Attempt 1 at ` + clock + ` failed: the receiver at 127\.0\.0\.1 closed the connection before it had ` +
				`answered` + hours, cause: "closed the connection",
		},
		"plain": {
			fields: fieldsOf{"url": strings.Replace(r.URL(), "http:", "https:", 1) + "/plain"}, code: "retry_tls",
			summary: `Attempt 1 at ` + clock + ` failed: no secure connection to the receiver at 127\.0\.0\.1 could be made` + hours,
			cause:   "The TLS handshake failed. The error was: ",
		},
		"nowhere": {
			fields: fieldsOf{"url": "http://nowhere.invalid/nowhere"}, code: "retry_dns",
			summary: `Attempt 1 at ` + clock + ` failed: the host name nowhere\.invalid (does not exist|could not be ` +
				`resolved)` + hours, cause: "nowhere.invalid.",
		},
		"unauthorized": {
			step: receivertest.Step{Status: http.StatusUnauthorized}, code: "refused",
			summary: givenUp + `attempt 1 got 401 Unauthorized, which is final` + kept, cause: "answered 401 (Unauthorized).",
		},
		"moved": {
			step: receivertest.Step{Status: http.StatusFound}, code: "refused",
			summary: givenUp + `attempt 1 got 302 Redirect, which is final` + kept, cause: "answered 302 (a redirect, which is never followed).",
		},
		"exhausted": {
			step: unavailable, fields: fieldsOf{"retry_policy": fieldsOf{"preset": "fast", "max_attempts": 1}}, code: "exhausted",
			summary: givenUp + `1 attempt failed, as many as the retry policy allows; the last got 503 Service Unavailable` + kept,
			cause:   "answered 503 (Service Unavailable).",
		},
	} {
		r.Script("/"+name, c.step)
		fields := fieldsOf{"retry_policy": patiently(), "event_types": []string{"a." + name}}
		maps.Copy(fields, c.fields)
		b.endpoint(r, "/"+name, fields)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bundle{t: t, in: b.in, client: b.client, tenant: b.tenant}
			_, d := b.postOne("a."+name, `{}`)
			b.requireExplained(b.delivery(d.ID), c.code, c.summary, c.cause)
		})
	}
}

// A delivery that waits says for what, and one that has ended says how.
func TestExplanationsOfWaitsAndEnds(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	of := func(kind string, further ...string) delivery {
		_, d := b.postOne(kind, `{}`, further...)
		return b.delivery(d.ID)
	}
	b.endpoint(r, "/well", fieldsOf{"event_types": []string{"a.well"}})
	delivered := of("a.well")
	b.requireExplained(delivered, "delivered", `Delivered at `+clock+`, \d+ s ago, with the first attempt: 200 in .*\.`, "any 2xx means")
	b.command(http.StatusAccepted, delivered.ID, "replay", nil)
	eventually(contextFor(t, patience), t, func() string {
		if d := b.delivery(delivered.ID); d.Run != 2 || d.State != "delivered" {
			return "it is " + d.State
		}
		return ""
	})
	b.requireExplained(delivered, "delivered", `Delivered at `+clock+`, \d+ s ago, sent again \(run 2\), with attempt 2: 200 in .*\.`, "any 2xx means")

	scheduled := of("a.well", "deliver_at", `"`+at(time.Now().Add(48*time.Hour))+`"`)
	b.requireExplained(scheduled, "scheduled", `Scheduled for `+clock+`, in \d+ (h|days); attempt 1 is made then\.`, "deliver_at")
	b.command(http.StatusAccepted, scheduled.ID, "cancel", fieldsOf{"reason": "no longer needed"})
	b.requireExplained(scheduled, "cancelled", `Cancelled at `+clock+`, \d+ s ago, on request \("no longer needed"\), after 0 attempts\.`, "no longer needed")

	paused := b.endpoint(r, "/paused", fieldsOf{"event_types": []string{"a.paused"}})
	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+paused.ID+"/pause", nil, nil)
	b.requireExplained(of("a.paused"), "held_paused",
		`Waits because the endpoint is paused by hand; sent when it is resumed, or given up at `+clock+`\.`, "")
	b.requireHealth(paused, "endpoint_paused", `Paused by hand: nothing is sent; 1 held until it is resumed; the oldest since .*\.`)

	r.Script("/gone", receivertest.Step{Status: http.StatusGone})
	gone := b.endpoint(r, "/gone", fieldsOf{"event_types": []string{"a.gone"}})
	b.requireExplained(of("a.gone"), "refused", `Given up at .*: attempt 1 got 410 Gone, which is final`+kept, "answered 410 (Gone).")
	b.requireHealth(gone, "endpoint_disabled", `Disabled \(the receiver answered 410: it accepts no more events\): nothing is sent; .*\.`)
	b.requireExplained(of("a.gone"), "held_disabled",
		`Waits because the endpoint is disabled \(the receiver answered 410: it accepts no more events\); `+
			`sent when it is resumed, or given up at `+clock+`\.`, "")

	unmatched := b.post("user.created", `{}`)
	require.Zero(t, unmatched.Matched)
	e := b.explain("/events/" + unmatched.ID)
	require.Equal(t, "no_matching_endpoint", e.Explanation.Code)
	require.Contains(t, e.Summary, "No endpoint matched the type user.created, so nothing is sent; the tenant has 3 endpoints; ")
	require.Contains(t, e.Summary, paused.ID+" (127.0.0.1, paused) subscribes to a.paused")
	require.Contains(t, e.Summary, gone.ID+" (127.0.0.1, disabled) subscribes to a.gone")
	require.True(t, strings.HasPrefix(b.run("explain", unmatched.ID), e.Summary+"\n\n"))
}

// requireHealth waits until the health of an endpoint has the code, and requires that its summary matches. It waits until that is the same on
// the command line.
func (b *bundle) requireHealth(ep endpoint, code, summary string) {
	b.t.Helper()
	var got explained
	eventually(contextFor(b.t, patience), b.t, func() string {
		if got = b.explain("/endpoints/" + ep.ID + "/health"); got.Explanation.Code != code || got.incomplete() {
			return got.Explanation.Code + ": " + got.Summary
		}
		require.Regexp(b.t, "^"+summary+"$", got.Summary)
		for _, command := range [][]string{{"explain", ep.ID}, {"endpoints", "health", ep.ID}} {
			if said, _, _ := strings.Cut(b.run(command...), "\n"); timeless(got.Summary) != timeless(said) {
				return fmt.Sprintf("%v says %s, not %s", command, said, got.Summary)
			}
		}
		return ""
	})
}

// While a receiver does not answer, its deliveries say that one is under way and that the others wait for it.
func TestExplanationsOfABusyEndpoint(t *testing.T) {
	t.Parallel()
	needsStandalone(t, knownToOne)
	b, r := setup(t), newReceiver(t)
	r.Hold()
	defer r.Release()
	b.endpoint(r, "/hook", fieldsOf{"max_in_flight": 1, "timeout": "30s"})
	_, first := b.postOne("order.paid", `{}`)
	require.NoError(t, r.WaitHeld(contextFor(t, patience), 1))
	first = b.delivery(first.ID)
	b.requireExplained(first, "in_progress", `Attempt 1 was sent at `+clock+`, .* ago, and has no answer yet; it times out after 30 s\.`,
		"The receiver at 127.0.0.1 has not answered yet. The endpoint allows 1 request at a time, and 1 is under way.")
	_, waits := b.postOne("order.paid", `{}`)
	b.requireExplained(b.delivery(waits.ID), "waits_in_flight",
		`Waits until the receiver at 127\.0\.0\.1 has answered earlier requests; attempt 1 follows at `+clock+`, in \d+ s; tried until `+clock+`\.`,
		"The endpoint allows 1 request at a time, and 1 is under way.")
}

// What waits for an open circuit says since when, why, and when the probe goes.
func TestExplanationsOfAnOpenCircuit(t *testing.T) {
	t.Parallel()
	b, _, ep, _, waits := tripped(t)
	why := `open since ` + clock + ` after 2 of 2 requests failed, the last with 503 Service Unavailable; `
	b.requireExplained(waits, "waits_circuit",
		`Waits because the circuit of the endpoint has been `+why+
			`attempt 1 follows at `+clock+`, in \d+ (s|min); tried until `+clock+`\.`,
		"Most requests to the endpoint failed")
	b.requireHealth(ep, "endpoint_circuit_open", `Circuit `+why+`next probe in \d+ (s|min); 3 waiting \(1 for a turn, 2 to be sent again\); `+
		`the oldest since `+clock+`\.`)
	cause := b.explain("/endpoints/" + ep.ID + "/health").Explanation.Cause
	require.Contains(t, text(cause), "The last failure on record, at ")
	require.Contains(t, text(cause), fmt.Sprintf("the attempt got %d Service Unavailable.", http.StatusServiceUnavailable))
}
