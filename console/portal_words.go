package console

import (
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// The portal says what happened in its own words: package explain is for those who run the product.

// tones of a state, which are classes of the style sheet.
const (
	toneGood  = "good"
	toneWait  = "wait"
	toneBad   = "bad"
	toneQuiet = "quiet"
)

// chip is a state in a word, with its colour.
type chip struct{ Text, Tone string }

// conditionChip is the condition of an endpoint.
func (t *texts) conditionChip(code string) chip {
	tone := toneBad
	switch code {
	case "healthy":
		tone = toneGood
	case "slow", "at_limit":
		tone = toneWait
	case "paused", "idle", "unused":
		tone = toneQuiet
	}
	return chip{t.say("condition." + code), tone}
}

// deliveryChip is the state of a delivery.
func (t *texts) deliveryChip(state client.DeliveryState) chip {
	switch state { //nolint:exhaustive // the others wait
	case "delivered":
		return chip{t.say("state.sent"), toneGood}
	case "dead_lettered", "discarded":
		return chip{t.say("state.failed"), toneBad}
	case "cancelled":
		return chip{t.say("state.cancelled"), toneQuiet}
	}
	return chip{t.say("state.waiting"), toneWait}
}

// Why is why an attempt failed, in a few words: from its reason and its status.
func (t *texts) Why(reason string, status *int) string {
	if status != nil && *status > 0 {
		if key := "why.http_" + strconv.Itoa(*status); t.Has(key) {
			return t.say(key)
		}
		key := "why.status"
		if *status/100 == 3 { //nolint:mnd // redirects
			key = "why.redirect"
		}
		return t.say(key, "status", strconv.Itoa(*status))
	}
	kind, _, _ := strings.Cut(reason, "_")
	switch {
	case reason == "dns_not_found", reason == "dns_temporary", reason == "denied_address":
		return t.say("why.dns")
	case reason == "timeout_dial", reason == "connect_refused", kind == "proxy":
		return t.say("why.connect")
	case kind == "timeout", reason == "headers_incomplete":
		return t.say("why.timeout")
	case kind == "tls":
		return t.say("why.tls")
	case kind == "token":
		return t.say("why.token")
	case kind == "connection", reason == "unexpected_eof", reason == "protocol_error":
		return t.say("why.broken")
	}
	return t.say("why.unknown")
}

// sentenceOf says in a sentence what became of a delivery: by the code of its explanation, or without one by its state.
func (t *texts) sentenceOf(d client.Delivery, now time.Time) string {
	code := ""
	if d.Explanation != nil {
		code = d.Explanation.Code
	}
	if code == "" || !t.Has("code."+code) {
		code = codeOfState(d)
	}
	why, next := t.say("why.unknown"), t.say("time.soon")
	if o := d.LastOutcome; o != nil {
		why = t.Why(o.Reason, o.Status)
	}
	if !d.NextAttemptAt.IsZero() && d.NextAttemptAt.After(now) {
		next = t.Relative(d.NextAttemptAt.Time, now)
	}
	return t.say("code."+code, "count", d.Attempts, "why", why, "next", next)
}

// codeOfState is the code of a delivery without an explanation, as far as its state and its reason tell.
func codeOfState(d client.Delivery) string {
	switch d.State {
	case "delivered", "cancelled", "discarded":
		return string(d.State)
	case "dead_lettered":
		return "exhausted"
	case "retrying":
		if d.LastOutcome != nil {
			return "retry_response"
		}
	case "held":
		switch value(d.Reason) {
		case webhook.ReasonPaused:
			return "held_paused"
		case webhook.ReasonDisabled:
			return "held_disabled"
		}
		return "held_backlog"
	case "pending":
		if value(d.Reason) != "" {
			return "waits_capacity"
		}
	}
	return "starting"
}

// endpointSentence says how an endpoint is, by the code of its explanation; "" for one that is not known.
func (t *texts) endpointSentence(code string) string {
	if !t.Has("code." + code) {
		return ""
	}
	return t.say("code." + code)
}

// attemptWords says what came of an attempt.
func (t *texts) attemptWords(a client.Attempt) string {
	if a.Decision == client.DecisionDelivered {
		if a.Status != nil {
			return t.say("attempt.accepted", "status", strconv.Itoa(*a.Status))
		}
		return t.say("attempt.accepted_without_status")
	}
	return t.say("attempt.failed", "why", t.Why(a.Reason, a.Status))
}

// more is a number that was counted up to a bound.
func (t *texts) more(n int, more bool) string {
	if more || n >= webhook.MaxCounted {
		return t.say("count.more", "number", t.Number(int64(n)))
	}
	return t.Number(int64(n))
}
