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

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/chart"
	"github.com/everpost/everpost/internal/webhook"
)

// endpointsView is the list of endpoints.
type endpointsView struct {
	Filter filter
	List   client.Page[client.EndpointCondition]
	Next   string
}

func listEndpoints(p *page) error {
	typed := p.r.URL.Query()
	v := endpointsView{Filter: p.readFilter(typed, "text", "state", "condition", "trouble")}
	if err := p.get(&v.List, v.Filter.page(pageLimit, typed.Get("cursor")), "endpoint-conditions"); err != nil {
		if v.Filter, err = v.Filter.refused(err); err != nil {
			return err
		}
	}
	v.Next = v.List.NextCursor
	f := v.Filter.Form
	return p.show(view{Template: "endpoints", Title: "Endpoints", Entry: "Endpoints", Status: f.status(), Live: !f.Failed(), Data: v})
}

// endpointView is the page of an endpoint.
type endpointView struct {
	Endpoint client.Endpoint
	Sealed   bool // it cannot be decrypted: Endpoint has only its id
	Health   client.EndpointHealth
	Release  *release
	Stats    *charts
	Failures []failureGroup
	Grouped  int // deliveries in Failures
	Settings []setting
	Name     string
	Recent   []client.Delivery // the newest
}

// Retries are how many retries there were for each first attempt in the last 15 minutes, in words; "" for none.
func (v endpointView) Retries() string {
	ratio := v.Health.RetryRatio
	if ratio == nil || *ratio == 0 {
		return ""
	}
	number := strings.TrimSuffix(strconv.FormatFloat(*ratio, 'f', 1, 64), ".0")
	if number == "1" {
		return "1 retry for each first attempt"
	}
	return number + " retries for each first attempt"
}

// recentDeliveries is how many of an endpoint's newest deliveries its page shows.
const recentDeliveries = "10"

// Explanation is that of the health.
func (v endpointView) Explanation() *client.Explanation { return &v.Health.Explanation }

// Waiting is how many deliveries wait: for another attempt, for their turn, or for the time for which they are scheduled.
func (v endpointView) Waiting() int { return v.Health.Waiting + v.Health.Scheduled }

// MoreWaiting and MoreHeld report whether there are more than the API counts.
func (v endpointView) MoreWaiting() bool { return v.Waiting() >= webhook.MaxCounted }
func (v endpointView) MoreHeld() bool    { return v.Health.Held >= webhook.MaxCounted }

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
	Latest  client.Time
	Example client.Delivery
}

// maxFailures is how many of the newest failed deliveries are grouped.
const maxFailures = 100

func showEndpoint(p *page) error {
	id := p.r.PathValue("id")
	v := endpointView{}
	switch err := p.get(&v.Endpoint, nil, "endpoints", id); {
	case isStatus(err, http.StatusInternalServerError):
		v.Endpoint, v.Sealed = client.Endpoint{ID: id}, true // its deliveries wait: that is when this page is needed
	case err != nil:
		return err
	}
	if err := p.get(&v.Health, nil, "endpoints", id, "health"); err != nil {
		return err
	}
	var err error
	if v.Release, err = releaseOf(p, id); err != nil {
		return err
	}
	if v.Stats, err = statsOf(p, p.path("stats"), id, rangeOf(p, "24h")); err != nil {
		return err
	}
	var failed client.Page[client.Delivery]
	err = p.get(&failed, url.Values{
		"endpoint_id": {id}, "state": {"retrying", "dead_lettered"}, "limit": {strconv.Itoa(maxFailures)},
	}, "deliveries")
	if err != nil {
		return err
	}
	var recent client.Page[client.Delivery]
	if err := p.get(&recent, url.Values{"endpoint_id": {id}, "limit": {recentDeliveries}}, "deliveries"); err != nil {
		return err
	}
	v.Recent = recent.Data
	v.Failures, v.Grouped = groupFailures(failed.Data), len(failed.Data)
	v.Name = id
	if !v.Sealed {
		v.Settings, v.Name = settingsOf(v.Endpoint), nameOf(v.Endpoint)
	}
	return p.show(view{Template: "endpoint", Title: clip(visible(v.Name), 60), Entry: "Endpoints", Live: true, Data: v})
}

// nameOf is what people call an endpoint.
func nameOf(e client.Endpoint) string { return called(e.Description, e.URL) }

// groupFailures groups deliveries by the outcome of their last attempt, the newest group first.
func groupFailures(failed []client.Delivery) []failureGroup {
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
		if d.LastOutcome.At.After(g.Latest.Time) {
			g.Latest, g.Example = d.LastOutcome.At, d
		}
	}
	slices.SortFunc(groups, func(a, b failureGroup) int { return b.Latest.Compare(a.Latest.Time) })
	return groups
}

// settingsOf lists an endpoint's configuration.
func settingsOf(e client.Endpoint) []setting {
	text := func(name, value, initial string) setting { return setting{name, value, value != initial} }
	auth := "none"
	if e.Auth != nil {
		auth = e.Auth.Type
	}
	headers := make([]string, 0, len(e.Headers))
	for name := range e.Headers {
		headers = append(headers, name)
	}
	slices.Sort(headers)
	initial := webhook.DefaultAutoDisable()
	return []setting{
		text("Event types", strings.Join(e.EventTypes, ", "), "*"),
		text("Filter", filterText(e.Filter), "none"),
		text("Timeout", e.Timeout, webhook.DefaultTimeout.String()),
		text("Requests at a time", strconv.Itoa(e.MaxInFlight), strconv.Itoa(webhook.DefaultMaxInFlight)),
		text("Requests per second", strconv.FormatFloat(e.RateLimit, 'f', -1, 64), strconv.Itoa(webhook.DefaultRateLimit)),
		{"Retry policy", policyWords(e), e.PolicySource == "endpoint"},
		text("Circuit breaker", breakerWords(breakerOf(e.CircuitBreaker)), breakerWords(webhook.DefaultCircuitBreaker())),
		text("Disabled automatically", autoDisableWords(e.AutoDisable), disableRule(initial.Exhausted24h, initial.PermanentStreak)),
		text("Redirects that count as delivered", cmp.Or(statusList(e.SuccessStatuses), "none"), "none"),
		text("Sends dead letters again after an outage", yesNo(e.AutoReplay), "no"),
		text("Signature", e.Signature, "v1"),
		text("Body", e.PayloadFormat, "raw"),
		text("Numbers", e.Ordering.By, "none"),
		text("Headers", cmp.Or(strings.Join(headers, ", "), "none"), "none"),
		text("Authentication", auth, "none"),
		text("Client certificate", certificateWords(e.Certificate), "no"),
	}
}

// filterText is an endpoint's filter as it is shown.
func filterText(filter json.RawMessage) string {
	if text := string(filter); text != "" && text != "null" {
		return text
	}
	return "none"
}

// certificateWords says what is configured: "yes, with TLS 1.2 at most".
func certificateWords(c *client.Certificate) string {
	if c == nil || c.MaxTLS == nil {
		return yesNo(c != nil)
	}
	return "yes, with TLS " + *c.MaxTLS + " at most"
}

// statusList is "302, 303".
func statusList(statuses []int) string {
	texts := make([]string, 0, len(statuses))
	for _, status := range statuses {
		texts = append(texts, strconv.Itoa(status))
	}
	return strings.Join(texts, ", ")
}

// breakerOf is the breaker with its durations, which the API writes.
func breakerOf(b client.CircuitBreaker) webhook.CircuitBreaker {
	window, _ := time.ParseDuration(b.Window)
	cooldown, _ := time.ParseDuration(b.Cooldown)
	return webhook.CircuitBreaker{Enabled: b.Enabled, Window: window, MinRequests: b.MinRequests, FailureRatio: b.FailureRatio, Cooldown: cooldown}
}

func breakerWords(b webhook.CircuitBreaker) string {
	if !b.Enabled {
		return "off"
	}
	return "opens when " + percent(&b.FailureRatio) + " of at least " + many(b.MinRequests, "request") + " within " + chart.Span(b.Window) +
		" fail; for " + chart.Span(b.Cooldown) + " at first"
}

func disableRule(exhausted, streak int) string {
	return "after " + strconv.Itoa(exhausted) + " given up within 24 h without a success, or " + many(streak, "permanent failure") + " in a row"
}

func autoDisableWords(d client.AutoDisable) string {
	if !d.Enabled {
		return "never"
	}
	return disableRule(d.Exhausted24h, d.PermanentStreak)
}

func policyWords(e client.Endpoint) string {
	r := e.RetryPolicy
	return cmp.Or(r.Preset, "custom") + ": up to " + many(r.MaxAttempts, "attempt") + " within " + r.GiveUpAfter + " (set by the " + e.PolicySource + ")"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
