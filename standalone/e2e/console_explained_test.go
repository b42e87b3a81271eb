package e2e_test

import (
	"html"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// stuck is a delivery that waits or has ended, and the code that says why.
type stuck struct {
	delivery

	code string
}

// stuckDeliveries brings about deliveries that do not arrive, each for another reason.
func (b *bundle) stuckDeliveries(r, busy *receiver) map[string]stuck {
	b.t.Helper()
	all := map[string]stuck{}
	unavailable := receivertest.Step{Status: http.StatusServiceUnavailable}
	var gone, tripping endpoint
	for name, c := range map[string]struct {
		step   receivertest.Step
		fields fieldsOf
		code   string
	}{
		"unavailable":  {unavailable, nil, "retry_response"},
		"rest":         {receivertest.Step{Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": "30"}}, nil, "retry_after"},
		"missing":      {receivertest.Step{Status: http.StatusNotFound}, nil, "retry_not_found"},
		"slow":         {receivertest.Step{Hang: true}, fieldsOf{"timeout": "1s"}, "retry_timeout"},
		"drop":         {receivertest.Step{Drop: true}, nil, "retry_connection"},
		"plain":        {fields: fieldsOf{"url": strings.Replace(r.URL(), "http:", "https:", 1) + "/plain"}, code: "retry_tls"},
		"nowhere":      {fields: fieldsOf{"url": "http://nowhere.invalid/nowhere"}, code: "retry_dns"},
		"unauthorized": {receivertest.Step{Status: http.StatusUnauthorized}, nil, "refused"},
		"exhausted":    {unavailable, fieldsOf{"retry_policy": fieldsOf{"preset": "fast", "max_attempts": 1}}, "exhausted"},
		"gone":         {receivertest.Step{Status: http.StatusGone}, nil, "refused"},
		"tripping":     {unavailable, fieldsOf{"circuit_breaker": fieldsOf{"min_requests": 1, "cooldown": "5m"}}, "retry_response"},
		"well":         {code: "scheduled"},
		"paused":       {code: "held_paused"},
	} {
		r.Script("/"+name, c.step)
		fields := fieldsOf{"retry_policy": patiently(), "event_types": []string{"a." + name}}
		maps.Copy(fields, c.fields)
		ep := b.endpoint(r, "/"+name, fields)
		var further []string
		switch name {
		case "well":
			further = []string{"deliver_at", `"` + at(time.Now().Add(48*time.Hour)) + `"`}
		case "gone":
			gone = ep
		case "tripping":
			tripping = ep
		case "paused":
			b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+ep.ID+"/pause", nil, nil)
		}
		_, d := b.postOne("a."+name, `{}`, further...)
		all[name] = stuck{d, c.code}
	}
	b.waitState(all["gone"].ID, "dead_lettered")
	eventually(contextFor(b.t, patience), b.t, func() string {
		var ep struct {
			State string `json:"state"`
		}
		b.ask(http.StatusOK, http.MethodGet, "/endpoints/"+gone.ID, nil, &ep)
		if ep.State != "disabled" {
			return "the endpoint that answered 410 is " + ep.State
		}
		return ""
	})
	_, disabled := b.postOne("a.gone", `{}`)
	all["disabled"] = stuck{disabled, "held_disabled"}
	b.waitState(all["tripping"].ID, "retrying")
	b.waitOpened(tripping)
	_, open := b.postOne("a.tripping", `{}`)
	all["open"] = stuck{open, "waits_circuit"}

	busy.Hold()
	b.endpoint(busy, "/busy", fieldsOf{"event_types": []string{"a.busy"}, "max_in_flight": 1, "timeout": "30s"})
	_, first := b.postOne("a.busy", `{}`)
	require.NoError(b.t, busy.WaitHeld(contextFor(b.t, patience), 1))
	_, second := b.postOne("a.busy", `{}`)
	all["busy"], all["behind"] = stuck{first, "in_progress"}, stuck{second, "waits_in_flight"}
	return all
}

// tags are what is between texts of a page.
var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	spaces = regexp.MustCompile(`\s+`)
)

// readable is a page's text in one line.
func readable(page string) string {
	return spaces.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(page, " ")), " ")
}

// The page of every stuck delivery begins with the sentence of its explanation, and has its cause, what happens next and
// what to do.
func TestConsoleExplainsStuckDeliveries(t *testing.T) {
	t.Parallel()
	b, r, busy := setup(t), newReceiver(t), newReceiver(t)
	defer busy.Release()
	reader := newReader(t, b.in, b.in.key)
	situations := b.stuckDeliveries(r, busy)
	require.GreaterOrEqual(t, len(situations), 12)
	for name, s := range situations {
		var e explained
		eventually(contextFor(t, patience), t, func() string {
			if e = b.explain("/deliveries/" + s.ID); e.Explanation.Code != s.code {
				return name + ": " + e.Explanation.Code + ", not " + s.code + ": " + e.Summary
			}
			said := timeless(readable(reader.page(b.below("deliveries", s.ID))))
			for _, part := range []*string{&e.Summary, e.Explanation.Cause, e.Explanation.Next, e.Explanation.Remedy} {
				if part != nil && !strings.Contains(said, timeless(*part)) {
					return name + ": the page does not say: " + *part + "\n" + said
				}
			}
			return ""
		})
		require.NotEmpty(t, e.Summary)
		if name == "slow" {
			said := readable(reader.page(b.below("deliveries", s.ID)))
			require.Regexp(t, `Ended without an answer .+, after 1(\.\d)? s \((connecting \d+ ms, )?waiting \d+ ms\)`, said, "where the time went")
		}
	}
	unmatched := b.post("nobody.wants", `{}`)
	e := b.explain("/events/" + unmatched.ID)
	require.Contains(t, timeless(readable(reader.page(b.below("events", unmatched.ID)))), timeless(e.Summary))
}
