package query

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// names are the names of the filters, in the order in which they are suggested.
func names() []string {
	return []string{"state", "type", "endpoint", "event", "external_id", "url", "reason", "status", "since", "until", "tenant"}
}

// stateOpen stands for the states of a delivery that has not ended.
const stateOpen = "open"

func known(name string) bool { return slices.Contains(names(), name) }

// states are the names that the filter "state" takes.
func states() []string {
	all := []string{stateOpen}
	for _, s := range webhook.States() {
		all = append(all, s.String())
	}
	return all
}

// parser collects what a search asks for.
type parser struct {
	now      time.Time
	query    Query
	problems []Problem
	ids      []identified
	filters  []term // all terms with a name, and words that mean one
}

// identified is a term that is an id.
type identified struct {
	term
	kind string
}

func (p *parser) problem(t term, message string) {
	p.problems = append(p.problems, Problem{From: t.from, To: t.to, Message: message})
}

// term reads one term.
func (p *parser) term(t term) {
	switch {
	case t.open:
		p.problem(t, `the closing " is missing`)
	case t.name == "":
		p.word(t)
	case t.value == "":
		p.problem(t, t.name+" needs a value: "+example(t.name))
	default:
		p.filter(t)
	}
}

// word reads a word without a name: an id, a state, a reason, a filter of types with a wildcard, or text.
func (p *parser) word(t term) {
	switch kind, err := webhook.KindOf(t.value); {
	case t.quoted:
		p.text(t)
	case err == nil:
		p.ids = append(p.ids, identified{t, kind})
	case kind != "" && likeID(t.value):
		p.problem(t, `is not a complete id, which has 26 letters and digits after the _; put it in "quotes" if it is something else`)
	case slices.Contains(states(), t.value):
		p.filter(t.as("state"))
	case isReason(t.value):
		p.filter(t.as("reason"))
	case strings.HasSuffix(t.value, "*"):
		p.filter(t.as("type"))
	default:
		if near := nearName(t.value); near != "" {
			p.problem(t, "there is no such filter; did you mean "+near+":?")
			return
		}
		p.text(t)
	}
}

func (p *parser) text(t term) {
	if p.query.Text != "" {
		p.problem(t, `is a second word; put words that belong together in "quotes", and give others a name, such as external_id:`)
		return
	}
	if t.value == "" {
		p.problem(t, "is empty")
		return
	}
	p.query.Text = t.value
}

// filter reads a named term.
func (p *parser) filter(t term) {
	p.filters = append(p.filters, t)
	q := &p.query
	switch t.name {
	case "state":
		p.states(t)
	case "type":
		p.eventType(t)
	case "endpoint":
		id, err := webhook.ParseEndpointID(t.value)
		p.checked(t, q.EndpointID.IsZero(), err, func() { q.EndpointID = id })
	case "event":
		id, err := webhook.ParseEventID(t.value)
		p.checked(t, q.EventID.IsZero(), err, func() { q.EventID = id })
	case "external_id":
		p.once(t, q.ExternalID == "", func() { q.ExternalID = t.value })
	case "url":
		p.once(t, q.URL == "", func() { q.URL = t.value })
	case "reason":
		p.once(t, q.Reason == "", func() { q.Reason = t.value })
	case "tenant":
		p.once(t, q.Tenant == "", func() { q.Tenant = t.value })
	case "status":
		p.status(t)
	case "since":
		p.instant(t, &q.Since)
	case "until":
		p.instant(t, &q.Until)
	}
}

// once applies a filter that may be given one time.
func (p *parser) once(t term, first bool, apply func()) {
	if !first {
		p.problem(t, "is given twice")
		return
	}
	apply()
}

func (p *parser) checked(t term, first bool, err error, apply func()) {
	if err != nil {
		p.problem(t, err.Error())
		return
	}
	p.once(t, first, apply)
}

// states reads one or more states, separated by commas.
func (p *parser) states(t term) {
	for name := range strings.SplitSeq(t.value, ",") {
		if name == stateOpen {
			p.addStates(webhook.StatePending, webhook.StateRetrying, webhook.StateHeld)
			continue
		}
		s, ok := webhook.ParseState(name)
		if !ok {
			p.problem(t, "is not a state: "+strings.Join(states(), ", "))
			return
		}
		p.addStates(s)
	}
}

func (p *parser) addStates(states ...webhook.State) {
	for _, s := range states {
		if !slices.Contains(p.query.States, s) {
			p.query.States = append(p.query.States, s)
		}
	}
	slices.Sort(p.query.States)
}

func (p *parser) eventType(t term) {
	if !webhook.ValidFilter(t.value) {
		p.problem(t, `is not an event type or a filter such as "order.*"`)
		return
	}
	p.once(t, p.query.Type == "", func() { p.query.Type = t.value })
}

func (p *parser) status(t term) {
	n, err := strconv.Atoi(t.value)
	if err != nil || retry.NormalStatus(n) == 0 {
		p.problem(t, "is not a status code from 100 to 999")
		return
	}
	p.once(t, p.query.Status == 0, func() { p.query.Status = n })
}

func (p *parser) instant(t term, at *time.Time) {
	read, ok := ParseInstant(t.value, p.now)
	if !ok {
		p.problem(t, `is not a time: 2h, 7d, 2026-11-24 or 2026-11-24T12:00:00Z`)
		return
	}
	p.once(t, at.IsZero(), func() { *at = read })
}

// isReason reports whether the word is a reason of Everpost. "delivered" is a state as well, which comes first.
func isReason(word string) bool {
	r := retry.Reason(word)
	_, status := r.Status()
	return status || slices.Contains(retry.Reasons(), r)
}

// example shows how a filter is written.
func example(name string) string {
	switch name {
	case "state":
		return "state:retrying"
	case "type":
		return "type:order.*"
	case "endpoint":
		return "endpoint:ep_…"
	case "event":
		return "event:evt_…"
	case "external_id":
		return "external_id:order-1001"
	case "url":
		return "url:example.com"
	case "reason":
		return "reason:max_attempts"
	case "status":
		return "status:503"
	case "since":
		return "since:2h"
	case "until":
		return "until:2026-11-24"
	}
	return "tenant:acme"
}
