package console

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func endpointRoutes() []route {
	const one = "/t/{tenant}/endpoints/{id}"
	return []route{
		{pattern: "GET /t/{tenant}/endpoints", handle: endpoints},
		{pattern: "GET " + one, handle: showEndpoint},
		{pattern: "GET " + one + "/pause", handle: askPause},
		{pattern: "POST " + one + "/pause", handle: pauseEndpoint},
		{pattern: "GET " + one + "/resume", handle: askResume},
		{pattern: "POST " + one + "/resume", handle: resumeEndpoint},
		{pattern: "GET " + one + "/close-circuit", handle: askCloseCircuit},
		{pattern: "POST " + one + "/close-circuit", handle: closeCircuit},
		{pattern: "GET " + one + "/test", handle: askTest},
		{pattern: "POST " + one + "/test", handle: testEndpoint, slow: true, big: true},
		{pattern: "GET " + one + "/delete", handle: askDeleteEndpoint},
		{pattern: "POST " + one + "/delete", handle: deleteEndpoint},
	}
}

const pageLimit = "50" // rows of a list

// endpointsView is the list of endpoints.
type endpointsView struct {
	Form form
	List list[condition]
	Next string
	Any  bool // a filter is set
}

func endpoints(p *page) error {
	q := p.r.URL.Query()
	v := endpointsView{Form: newForm("text", q.Get("text"), "state", q.Get("state"), "trouble", q.Get("trouble"))}
	v.Any = q.Get("text")+q.Get("state")+q.Get("trouble") != ""
	err := p.get(&v.List, url.Values{
		"text": {q.Get("text")}, "state": {q.Get("state")}, "trouble": {q.Get("trouble")}, "cursor": {q.Get("cursor")}, "limit": {pageLimit},
	}, "endpoint-conditions")
	status := http.StatusOK
	if err != nil {
		if v.Form, err = v.Form.refused(q, err); err != nil {
			return err
		}
		status = http.StatusBadRequest
	}
	v.Next = v.List.NextCursor
	return p.show(view{Template: "endpoints", Title: "Endpoints", Entry: "Endpoints", Status: status, Live: status == http.StatusOK, Data: v})
}

// endpointView is the page of an endpoint.
type endpointView struct {
	Endpoint endpoint
	Health   health
	Stats    *charts
	Failures []failureGroup
	Looked   int
	Settings []setting
	Name     string
}

// setting is a field of an endpoint's configuration.
type setting struct {
	Name, Value string
	Changed     bool // it is not the default
}

// failureGroup is a number of failed deliveries with the same cause.
type failureGroup struct {
	Reason  string
	Count   int
	Dead    int
	Latest  time.Time
	Example delivery
}

// lookedFailures is how many of the newest failed deliveries are grouped.
const lookedFailures = 100

func showEndpoint(p *page) error {
	id := p.r.PathValue("id")
	v := endpointView{}
	if err := p.get(&v.Endpoint, nil, "endpoints", id); err != nil {
		return err
	}
	if err := p.get(&v.Health, nil, "endpoints", id, "health"); err != nil {
		return err
	}
	var err error
	if v.Stats, err = p.statsOf(p.path("stats"), id, 24*time.Hour, "1h"); err != nil {
		return err
	}
	var failed list[delivery]
	err = p.get(&failed, url.Values{
		"endpoint_id": {id}, "state": {"retrying", "dead_lettered"}, "limit": {strconv.Itoa(lookedFailures)},
	}, "deliveries")
	if err != nil {
		return err
	}
	v.Failures, v.Looked = groupFailures(failed.Data), len(failed.Data)
	v.Settings = settingsOf(v.Endpoint)
	v.Name = nameOf(v.Endpoint)
	return p.show(view{Template: "endpoint", Title: clip(visible(v.Name), 60), Entry: "Endpoints", Live: true, Data: v})
}

// nameOf is what people call an endpoint.
func nameOf(e endpoint) string {
	if e.Description != "" {
		line, _, _ := strings.Cut(e.Description, "\n")
		return line
	}
	return e.URL
}

// groupFailures groups deliveries by what their last attempt came to, the newest group first.
func groupFailures(failed []delivery) []failureGroup {
	var groups []failureGroup
	for _, d := range failed {
		if d.LastOutcome == nil {
			continue
		}
		i := slices.IndexFunc(groups, func(g failureGroup) bool { return g.Reason == d.LastOutcome.Reason })
		if i < 0 {
			i = len(groups)
			groups = append(groups, failureGroup{Reason: d.LastOutcome.Reason, Example: d})
		}
		g := &groups[i]
		g.Count++
		if d.State == "dead_lettered" {
			g.Dead++
		}
		if d.LastOutcome.At.After(g.Latest) {
			g.Latest, g.Example = d.LastOutcome.At, d
		}
	}
	slices.SortFunc(groups, func(a, b failureGroup) int { return b.Latest.Compare(a.Latest) })
	return groups
}

// settingsOf lists an endpoint's configuration. The defaults are those of the API (openapi.yaml).
func settingsOf(e endpoint) []setting {
	text := func(name, value, initial string) setting { return setting{name, value, value != initial} }
	breaker := "off"
	if b := e.CircuitBreaker; b.Enabled {
		breaker = "opens when " + percent(&b.FailureRatio) + " of at least " + strconv.Itoa(b.MinRequests) + " requests within " + b.Window +
			" fail; for " + b.Cooldown + " at first"
	}
	auth := "none"
	if e.Auth != nil {
		auth = e.Auth.Type
	}
	headers := make([]string, 0, len(e.Headers))
	for name := range e.Headers {
		headers = append(headers, name)
	}
	slices.Sort(headers)
	return []setting{
		text("Event types", strings.Join(e.EventTypes, ", "), "*"),
		text("Timeout", e.Timeout, "15s"),
		text("Requests at a time", strconv.Itoa(e.MaxInFlight), "10"),
		text("Requests per second", strconv.FormatFloat(e.RateLimit, 'f', -1, 64), "10000"),
		{"Retry policy", policyWords(e), e.PolicySource == "endpoint"},
		text("Circuit breaker", breaker, "opens when 50 % of at least 20 requests within 60s fail; for 30s at first"),
		text("Disabled automatically", autoDisableWords(e.AutoDisable), defaultAutoDisable),
		text("Replays dead letters after an outage", yesNo(e.AutoReplay), "no"),
		text("Signature", e.Signature, "v1"),
		text("Body", e.PayloadFormat, "raw"),
		text("Headers", cmp.Or(strings.Join(headers, ", "), "none"), "none"),
		text("Authentication", auth, "none"),
		text("Client certificate", yesNo(len(e.Certificate) > 0 && string(e.Certificate) != "null"), "no"),
	}
}

const defaultAutoDisable = "after 10 given up within 24 h without a success, or 100 permanent failures in a row"

func autoDisableWords(raw json.RawMessage) string {
	var d struct {
		Exhausted int `json:"exhausted_24h"`
		Streak    int `json:"permanent_streak"`
	}
	if json.Unmarshal(raw, &d) != nil || d.Exhausted == 0 {
		return "never"
	}
	return "after " + strconv.Itoa(d.Exhausted) + " given up within 24 h without a success, or " + strconv.Itoa(d.Streak) + " permanent failures in a row"
}

func policyWords(e endpoint) string {
	var r struct {
		Preset   string `json:"preset"`
		Attempts int    `json:"max_attempts"`
		GiveUp   string `json:"give_up_after"`
	}
	if json.Unmarshal(e.RetryPolicy, &r) != nil {
		return "from " + e.PolicySource
	}
	return cmp.Or(r.Preset, "custom") + ": up to " + strconv.Itoa(r.Attempts) + " attempts within " + r.GiveUp + " (set by the " + e.PolicySource + ")"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
