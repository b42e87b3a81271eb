package console

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/chart"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// replay is a replay as its page shows it.
type replay struct{ client.Replay }

func (r *replay) drawn() chart.Replay {
	c := chart.Replay{
		Total: -1, Released: r.Released, Skipped: r.Skipped, Delivered: r.Delivered, Failed: r.Failed,
		Rate: r.CurrentRate, Asked: r.Rate, Ramp: r.Ramp, Open: r.Open(),
	}
	if r.Total != nil {
		c.Total = *r.Total
	}
	return c
}

// Progress draws how far the replay has come.
func (r *replay) Progress() template.HTML { return chart.DrawProgress(r.drawn()) }

// RampDrawn draws the replay's rate.
func (r *replay) RampDrawn() template.HTML { return chart.DrawRamp(r.drawn()) }

// Open reports whether the replay may still release deliveries.
func (r *replay) Open() bool {
	return r.State == client.ReplayQueued || r.State == client.ReplayRunning || r.State == client.ReplayPaused
}

// Paused reports whether the replay is paused.
func (r *replay) Paused() bool { return r.State == client.ReplayPaused }

// Outcome says what has come of the released deliveries; "" while there is none.
func (r *replay) Outcome() string {
	if r.Released == 0 {
		return ""
	}
	said := []string{count(r.Delivered) + " delivered at the first attempt"}
	for _, of := range []struct {
		n    int64
		what string
	}{{r.Failed, "not"}, {r.Released - r.Delivered - r.Failed, "without an answer yet"}, {r.Skipped, "skipped"}} {
		if of.n > 0 {
			said = append(said, count(of.n)+" "+of.what)
		}
	}
	return strings.Join(said, ", ")
}

// ofItsTime is the filter of deliveries as the replay sends them: there is none of a replay's own.
func (r *replay) ofItsTime() url.Values {
	began := rfc3339(r.CreatedAt.Time)
	query := url.Values{"until": {began}}
	if !r.Since.IsZero() {
		query.Set("since", rfc3339(r.Since.Time))
	}
	if !r.Until.IsZero() && r.Until.Before(r.CreatedAt.Time) {
		query.Set("until", rfc3339(r.Until.Time))
	}
	for name, value := range map[string]*string{"endpoint_id": r.EndpointID, "event_type": r.EventType} {
		if value != nil {
			query.Set(name, *value)
		}
	}
	return query
}

// GivenUpAgain is the filter of the dead letters that the replay has left, as near as filters come.
func (r *replay) GivenUpAgain() template.URL {
	query := r.ofItsTime()
	query.Set("ended_since", rfc3339(r.CreatedAt.Time))
	return template.URL(query.Encode()) //nolint:gosec // it is encoded
}

// StillTried is the filter of the deliveries of the replay that are not over, as near as filters come.
func (r *replay) StillTried() template.URL {
	query := r.ofItsTime()
	query["state"] = []string{string(client.DeliveryPending), string(client.DeliveryRetrying), string(client.DeliveryHeld)}
	return template.URL(query.Encode()) //nolint:gosec // it is encoded
}

// Rest is how many deliveries are to come; -1 if that is not known.
func (r *replay) Rest() int64 {
	if r.Total == nil {
		return -1
	}
	return max(*r.Total-r.Released-r.Skipped, 0)
}

// TotalCount is the size of the set; 0 if that is not known.
func (r *replay) TotalCount() int64 {
	if r.Total == nil {
		return 0
	}
	return *r.Total
}

// RestTime is how long the rest takes at the current rate, in words; "" if that is not known.
func (r *replay) RestTime() string {
	if r.State != client.ReplayRunning || r.Rest() <= 0 || r.CurrentRate <= 0 {
		return ""
	}
	return chart.Span(time.Duration(float64(r.Rest()) / float64(r.CurrentRate) * float64(time.Minute)).Round(time.Second))
}

// SourceWords is what is sent again, in words.
func (r *replay) SourceWords() string { return sourceWords(string(r.Source)) }

// countOf is a number of what the replay sends, with its noun.
func (r *replay) countOf(n int64) string {
	return count(n) + " " + explain.Plural(n, sourceNoun(string(r.Source)))
}

// sourceNoun is one of what a replay sends.
func sourceNoun(source string) string {
	if source == webhook.ReplayEvents.String() {
		return "past event"
	}
	return "dead letter"
}

func sourceWords(source string) string { return sourceNoun(source) + "s" }

const (
	replaysTitle   = "Replays"
	newReplayTitle = "Send deliveries again"
)

// replaysView is the list of replays.
type replaysView struct {
	Replays   []*replay
	Next      string
	Endpoints endpointNames
}

func listReplays(p *page) error {
	var found client.Page[*replay]
	if err := p.get(&found, url.Values{"limit": {"20"}, "cursor": {p.r.URL.Query().Get("cursor")}}, "replays"); err != nil {
		return err
	}
	names, err := readEndpointNames(p)
	if err != nil {
		return err
	}
	return p.show(view{Template: "replays", Title: replaysTitle, Entry: replaysTitle, Data: replaysView{found.Data, found.NextCursor, names}})
}

// replayView is one replay.
type replayView struct {
	*replay

	Endpoints endpointNames
	RateForm  form
	Ill       []client.EndpointCondition // see newReplayView
}

func showReplay(p *page) error { return showReplayWith(p, newForm("rate_per_minute", "")) }

func showReplayWith(p *page, rate form) error {
	v := replayView{replay: &replay{}, RateForm: rate}
	if err := p.get(v.replay, nil, "replays", p.r.PathValue("id")); err != nil {
		return err
	}
	if v.EndpointID != nil {
		var err error
		if v.Endpoints, err = readEndpointName(p, *v.EndpointID); err != nil {
			return err
		}
		if v.Open() {
			if v.Ill, err = illEndpoints(p, url.Values{"endpoint_id": {*v.EndpointID}}); err != nil {
				return err
			}
		}
	}
	return p.show(view{Template: "replay", Title: "Replay " + v.ID, Entry: replaysTitle, Status: rate.status(), Live: true, Data: v})
}

// changeReplay pauses, resumes or cancels a replay, or changes its rate.
func changeReplay(p *page) error {
	id, command := p.r.PathValue("id"), p.r.PathValue("command")
	done := map[string]string{"pause": "The replay is being paused.", "resume": "The replay goes on.", "cancel": "The replay is being cancelled."}
	if command == "rate" {
		body := map[string]any{"rate_per_minute": number(p.typed.Get("rate_per_minute"))}
		if err := p.send(nil, http.MethodPatch, body, "replays", id); err != nil {
			rate, other := newForm("rate_per_minute", "").refused(p.typed, err)
			if other != nil {
				return other
			}
			return showReplayWith(p, rate)
		}
		return p.done(p.to("replays", id), "The rate has been changed.")
	}
	if done[command] == "" {
		return errNotFound()
	}
	if err := p.send(nil, http.MethodPost, nil, "replays", id, command); err != nil {
		return err
	}
	return p.done(p.to("replays", id), done[command])
}

func askCancelReplay(p *page) error {
	var r replay
	if err := p.get(&r, nil, "replays", p.r.PathValue("id")); err != nil {
		return err
	}
	q := question{
		Question: "Cancel the replay?", Detail: "Released deliveries continue.", Button: "Cancel the replay", Back: p.to("replays", r.ID), Danger: true,
	}
	if rest := r.Rest(); rest >= 0 {
		q.Question += " Not sent then: " + r.countOf(rest) + "."
	}
	return p.ask("Replay "+r.ID, replaysTitle, q)
}

// newReplayView is the form of a new replay, and the count of what it would send.
type newReplayView struct {
	Form      form
	Endpoints endpointNames
	Counted   bool
	Total     *int64                     // nil: counting takes too long
	Ill       []client.EndpointCondition // endpoints of the set to which nothing, or little, gets through now
}

// Words is what would be sent, in words.
func (v newReplayView) Words() string {
	source := v.Form.Value("source")
	switch {
	case v.Total == nil:
		return "more " + sourceWords(source) + " than can be counted in a few seconds"
	case source == webhook.ReplayDeadLetters.String():
		return letterWords(*v.Total, false)
	}
	return count(*v.Total) + " " + explain.Plural(*v.Total, sourceNoun(source))
}

// Nothing reports whether there is nothing to send.
func (v newReplayView) Nothing() bool { return v.Total != nil && *v.Total == 0 }

// newReplayForm is the form with the defaults of the API.
func newReplayForm() form {
	return newForm("source", webhook.ReplayDeadLetters.String(), "endpoint_id", "", "event_type", "", "reason", "", "status", "",
		"since", "", "until", "", "ended_since", "", "ended_until", "", "include_unmatched", "", "rate_per_minute", "100", "ramp", "on")
}

// showNewReplay shows the form. With "preview" in the query it also counts what would be sent.
func showNewReplay(p *page) error {
	if !p.canChange() {
		return errNotFound()
	}
	typed, f := p.r.URL.Query(), newReplayForm()
	for _, name := range f.known {
		if _, given := typed[name]; given || typed.Has("preview") { // a checkbox that is not set is not sent
			f.Values[name] = typed[name]
		}
	}
	v := newReplayView{Form: f}
	if typed.Has("preview") {
		var err error
		if v, err = countReplay(p, f); err != nil {
			return err
		}
	}
	return showReplayForm(p, v)
}

// countReplay counts what would be sent, and finds the endpoints to warn of. A refusal of the API is shown with the form.
func countReplay(p *page, f form) (v newReplayView, err error) {
	v.Form = f
	var preview client.ReplayPreview
	if err := p.send(&preview, http.MethodPost, replayBody(p, f.Values), "replays", "preview"); err != nil {
		v.Form, err = f.refused(f.Values, err)
		return v, err
	}
	v.Total, v.Counted = preview.Total, true
	if !v.Nothing() {
		v.Ill, err = illEndpoints(p, f.Values)
	}
	return v, err
}

// unlessBusy is the error unless it says that the tenant, or everything, is busy now.
func unlessBusy(err error) error {
	if isStatus(err, http.StatusTooManyRequests) || isStatus(err, http.StatusServiceUnavailable) {
		return nil
	}
	return err
}

// stopsDeliveries reports whether little or nothing gets through to an endpoint in this condition.
func stopsDeliveries(condition string) bool {
	return slices.Contains([]string{"failing", "circuit_open", "paused", "disabled"}, condition)
}

// shownIll bounds the endpoints that a replay warns of.
const shownIll = 5

// illEndpoints are endpoints that a replay with these fields sends to, and to which little or nothing gets through. None if they cannot be read now:
// a warning is no reason not to replay.
func illEndpoints(p *page, fields url.Values) (ill []client.EndpointCondition, err error) {
	var sick client.Page[client.EndpointCondition]
	if err := p.get(&sick, url.Values{"trouble": {"true"}, "limit": {"250"}}, "endpoint-conditions"); err != nil || len(sick.Data) == 0 {
		return nil, unlessBusy(err)
	}
	ofSet := map[string]bool{}
	if id := fields.Get("endpoint_id"); id != "" {
		ofSet[id] = true
	} else {
		var groups letterGroups
		if err := p.get(&groups, p.readFilter(fields, letterFields()...).query, "dead-letters", "groups"); err != nil {
			return nil, unlessBusy(err)
		}
		for _, g := range groups.Groups {
			ofSet[g.EndpointID] = true
		}
	}
	for _, e := range sick.Data {
		if ofSet[e.EndpointID] && stopsDeliveries(e.Condition) && len(ill) < shownIll {
			ill = append(ill, e)
		}
	}
	return ill, nil
}

func showReplayForm(p *page, v newReplayView) error {
	names, err := readEndpointNames(p)
	if err != nil {
		return err
	}
	v.Endpoints = names
	return p.show(view{Template: "new_replay", Title: newReplayTitle, Entry: replaysTitle, Status: v.Form.status(), Data: v})
}

// replayBody is the body that a form stands for.
func replayBody(p *page, typed url.Values) map[string]any {
	body := map[string]any{"source": typed.Get("source"), "ramp": typed.Get("ramp") != ""}
	f := p.readFilter(typed, letterFields()...)
	for name := range f.query {
		body[name] = f.query.Get(name)
	}
	for _, name := range []string{"status", "rate_per_minute"} {
		if n := number(typed.Get(name)); n != nil {
			body[name] = n
		}
	}
	if typed.Get("include_unmatched") != "" {
		body["include_unmatched"] = true
	}
	return body
}

// createReplay starts a replay. The form was shown with its count before.
func createReplay(p *page) error {
	var made replay
	if err := p.create(&made, replayBody(p, p.typed), "replays"); err != nil {
		f, other := newReplayForm().refused(p.typed, err)
		if other != nil {
			return other
		}
		return showReplayForm(p, newReplayView{Form: f})
	}
	p.redirect(p.to("replays", made.ID)) // its page says how it stands
	return nil
}

// Hidden are the fields of the form as they were counted.
func (v newReplayView) Hidden() map[string]string {
	hidden := map[string]string{}
	for _, name := range v.Form.known {
		if value := v.Form.Value(name); value != "" {
			hidden[name] = value
		}
	}
	return hidden
}
