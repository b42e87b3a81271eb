package console

import (
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// portalEndpointRow is an endpoint in the list.
type portalEndpointRow struct {
	client.EndpointCondition

	Name     string
	Chip     chip
	Sentence string
	Types    []string // at most shownTypes of its event types
	More     int      // others
}

// shownTypes bounds the event types of an endpoint in the list.
const shownTypes = 3

type portalEndpointsView struct {
	Rows []portalEndpointRow
	Next string
}

func portalEndpoints(p *portalPage) error {
	var found client.Page[client.EndpointCondition]
	if err := p.get(&found, url.Values{"limit": {pageLimit}, "cursor": {p.r.URL.Query().Get("cursor")}}, "endpoint-conditions"); err != nil {
		return err
	}
	v, t := portalEndpointsView{Next: found.NextCursor}, p.texts()
	made := map[string]time.Time{}
	for _, e := range found.Data {
		if rests(e.Condition, e.Code) {
			made[e.EndpointID] = e.CreatedAt.Time
		}
	}
	unused, err := unusedOf(p, made)
	if err != nil {
		return err
	}
	for _, e := range found.Data {
		condition, code := e.Condition, e.Code
		if rests(condition, code) {
			condition, code = restOf(unused[e.EndpointID])
		}
		row := portalEndpointRow{
			EndpointCondition: e, Name: shortName(e.Description, e.URL), Chip: t.conditionChip(condition),
			Sentence: t.endpointSentence(code), Types: e.EventTypes,
		}
		if len(row.Types) > shownTypes {
			row.Types, row.More = row.Types[:shownTypes], len(row.Types)-shownTypes
		}
		v.Rows = append(v.Rows, row)
	}
	return p.show(portalView{Template: "endpoints", Title: p.say("nav.endpoints"), Entry: "endpoints", Live: true, Data: v})
}

// rests reports whether an endpoint is in order because nothing was sent to it lately. Then restOf says how it is.
func rests(condition, code string) bool { return condition == "healthy" && code == "endpoint_idle" }

// restOf is the condition of an endpoint to which nothing was sent lately, or nothing at all, and the code of its sentence.
func restOf(unused bool) (condition, code string) {
	if unused {
		return "unused", "endpoint_unused"
	}
	return "idle", "endpoint_idle"
}

// unusedOf are those of some endpoints, by id and with when they were made, to which nothing was ever sent. That is known of one that is younger than
// any delivery is kept, if the customer's newest deliveries, one page of them, reach back to when it was made. So a list says what an endpoint's page says.
func unusedOf(p *portalPage, made map[string]time.Time) (map[string]bool, error) {
	unused, now := map[string]bool{}, p.console.config.Now()
	oldest := now
	for id, at := range made {
		if now.Sub(at) < webhook.MinDeliveryRetention {
			unused[id] = true
			if at.Before(oldest) {
				oldest = at
			}
		}
	}
	if len(unused) == 0 {
		return unused, nil
	}
	var found client.Page[client.Delivery]
	if err := p.get(&found, url.Values{"limit": {"100"}, "since": {oldest.Format(time.RFC3339Nano)}}, "deliveries"); err != nil {
		return nil, unlessBusy(err)
	}
	for _, d := range found.Data {
		delete(unused, d.EndpointID)
	}
	if n := len(found.Data); n > 0 && found.NextCursor != "" {
		read := found.Data[n-1].CreatedAt.Time
		maps.DeleteFunc(unused, func(id string, _ bool) bool { return !made[id].After(read) })
	}
	return unused, nil
}

// shortName is what people call an endpoint: its description's first line, or its URL without the scheme.
func shortName(description, address string) string {
	if description != "" {
		return nameOf(client.Endpoint{Description: description, URL: address})
	}
	names := endpointNames{urls: map[string]string{"": address}}
	return names.Short("")
}

// portalEndpointView is the page of an endpoint.
type portalEndpointView struct {
	Endpoint client.Endpoint
	Name     string
	Chip     chip
	Sentence string
	Failure  string // why the last attempt failed; "" if it did not
	FailedAt client.Time
	All      bool // it gets all event types

	Sent, Failed int64 // attempts in 24 h
	Success      *float64
	Waiting      string
	Bars         []portalBar

	Recent    []portalDelivery
	Filter    string // "" for none
	HasSecret bool   // it verifies with a secret, which can be revealed; else with its public key
}

// portalDelivery is a delivery in a list.
type portalDelivery struct {
	client.Delivery

	Chip     chip
	Sentence string
	Endpoint string // its name
}

// shownRecent is how many of an endpoint's newest deliveries its page shows.
const shownRecent = "8"

func portalEndpoint(p *portalPage) error {
	id := p.r.PathValue("id")
	v, t := portalEndpointView{}, p.texts()
	if err := p.get(&v.Endpoint, nil, "endpoints", id); err != nil {
		return err
	}
	var health client.EndpointHealth
	if err := p.get(&health, nil, "endpoints", id, "health"); err != nil {
		return err
	}
	condition := string(v.Endpoint.State)
	if v.Endpoint.Condition != nil {
		condition = v.Endpoint.Condition.Code
	}
	if condition == "active" {
		condition = "healthy"
	}
	var recent client.Page[client.Delivery]
	if err := p.get(&recent, url.Values{"endpoint_id": {id}, "limit": {shownRecent}}, "deliveries"); err != nil {
		return err
	}
	code := health.Explanation.Code
	if rests(condition, code) && len(recent.Data) > 0 {
		condition, code = restOf(false)
	} else if rests(condition, code) {
		unused, err := unusedOf(p, map[string]time.Time{id: v.Endpoint.CreatedAt.Time})
		if err != nil {
			return err
		}
		condition, code = restOf(unused[id])
	}
	v.Name, v.Chip, v.Sentence = shortName(v.Endpoint.Description, v.Endpoint.URL), t.conditionChip(condition), t.endpointSentence(code)
	v.Waiting = t.more(health.Waiting+health.Scheduled+health.Held, health.More)
	v.All = slices.Contains(v.Endpoint.EventTypes, "*") || len(v.Endpoint.EventTypes) == 0
	v.HasSecret, v.Filter = v.Endpoint.PublicKey == nil, filterFields(v.Endpoint.Filter).Value("filter")
	if err := v.readStatistics(p, id); err != nil {
		return err
	}
	now := p.console.config.Now()
	for _, d := range recent.Data {
		v.Recent = append(v.Recent, portalDelivery{d, t.deliveryChip(d.State), t.sentenceOf(d, now), v.Name})
		if o := d.LastOutcome; o != nil && o.Decision != client.DecisionDelivered && v.Chip.Tone == toneBad && o.At.After(v.FailedAt.Time) {
			v.Failure, v.FailedAt = t.Why(o.Reason, o.Status), o.At
		}
	}
	return p.show(portalView{Template: "endpoint", Title: clip(visible(v.Name), 60), Entry: "endpoints", Live: true, Data: v})
}

// portalBar is the bar of an hour in the chart of an endpoint, in units of its view box.
type portalBar struct {
	X, GoodY, GoodHeight, BadY, BadHeight int
	Title                                 string
}

// The chart's view box: an hour is barStep wide.
const (
	barHours  = 24
	barStep   = 10
	barHeight = 48
)

// readStatistics reads the figures of the last 24 hours. Without statistics there are none.
func (v *portalEndpointView) readStatistics(p *portalPage, id string) error {
	since := p.console.config.Now().UTC().Truncate(time.Hour).Add(time.Hour - barHours*time.Hour)
	var s client.Stats
	err := p.get(&s, url.Values{"endpoint_id": {id}, "since": {since.Format(time.RFC3339)}, "step": {"1h"}}, "stats")
	if err != nil {
		if isStatus(err, 404) { //nolint:mnd // there are none
			return nil
		}
		return err
	}
	all := attemptsMade(s.Totals)
	v.Sent = s.Totals.Attempts["delivered"]
	v.Failed, v.Success = all-v.Sent, share(v.Sent, all)
	var sent, failed [barHours]int64
	most := int64(0)
	for _, b := range s.Data {
		if i := indexOf(&s, b, time.Hour, barHours); i >= 0 {
			sent[i] += b.Attempts["delivered"]
			failed[i] += attemptsMade(b.StatsCounts) - b.Attempts["delivered"]
			most = max(most, sent[i]+failed[i])
		}
	}
	if most == 0 {
		return nil
	}
	t := p.texts()
	for i := range barHours {
		good, bad := heightOf(sent[i], most), heightOf(failed[i], most)
		v.Bars = append(v.Bars, portalBar{
			X: i * barStep, GoodY: barHeight - good, GoodHeight: good, BadY: max(0, barHeight-good-bad), BadHeight: bad,
			Title: t.say("chart.hour", "time", t.Instant(s.Since.Add(time.Duration(i)*time.Hour)), "sent", sent[i], "failed", failed[i]),
		})
	}
	return nil
}

// heightOf is the height of a part of a bar: at least one unit if there is anything.
func heightOf(n, most int64) int {
	if n == 0 {
		return 0
	}
	return max(1, int(n*barHeight/most))
}
