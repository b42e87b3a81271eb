package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// healthyRatio is the share of delivered attempts from which an endpoint is reported as "healthy".
const healthyRatio = 0.95

// health is an endpoint's health at a time.
type health struct {
	*webhook.Health

	now    time.Time
	listed bool // the record of failures was not read: there may be some
}

// Endpoint explains an endpoint's condition, and how many deliveries wait and why.
func Endpoint(h *webhook.Health, now time.Time) Explanation {
	s := health{Health: h, now: now}
	e, clauses := s.conditionNow()
	e.Summary = sentence(slices.Concat(clauses, s.backlog(), s.expiring(), s.filtered())...)
	e.Cause, e.Brief = joined(e.Cause, s.lastFailure()), ConditionOf(h, now).Cause
	if h.Endpoint.State != webhook.EndpointActive && h.Backlog.Empty() {
		e.Next = "What comes from now on waits until it is resumed, or is given up when its time is over."
	}
	if h.Backlog.Held > 0 && h.Endpoint.State == webhook.EndpointActive {
		e.Next = joined(e.Next, "Of the held deliveries the oldest go first.")
	}
	return e
}

// expiring warns of held deliveries that wait for no more than their turn, and may be given up before it comes: at the pace of the last 15 minutes
// the last of them waits for more than half of the time after which it is given up.
func (h health) expiring() []string {
	attempts, b := h.Observed.Attempts(), &h.Backlog
	if attempts == 0 || b.Held == 0 || h.Observed.Failing() || h.Endpoint.State != webhook.EndpointActive {
		return nil
	}
	policy, _ := h.Endpoint.PolicyInForce()
	wait := time.Duration(float64(b.Held+b.Waiting()) / float64(attempts) * float64(webhook.HistorySpan))
	if wait <= policy.GiveUpAfter/2 { //nolint:mnd // half
		return nil
	}
	about := "about "
	if b.MoreHeld {
		about = "more than "
	}
	return []string{"at the pace of the last 15 min the newest waits for " + about + elapsed(wait) + ", and each is given up after " +
		elapsed(policy.GiveUpAfter)}
}

// filtered warns of a filter that matches nothing.
func (h health) filtered() []string {
	if !h.MatchesNothing() {
		return nil
	}
	return []string{"its filter matched none of the last " + count(int(h.Verdicts.Filtered), "event") + " of its types"}
}

// Condition is Endpoint where it is not known what waits, nor the last failure.
func Condition(h *webhook.Health, now time.Time) Explanation {
	e, clauses := health{h, now, true}.conditionNow()
	e.Summary = sentence(clauses...)
	return e
}

// conditionNow is condition with the clauses of its summary: it, the requests in flight, and whether that may be out of date.
func (h health) conditionNow() (e Explanation, clauses []string) {
	e = h.condition()
	clauses = []string{e.Summary}
	if h.Observed.InFlight > 0 {
		clauses = append(clauses, strconv.Itoa(h.Observed.InFlight)+" in flight")
	}
	if h.Stale && h.Endpoint.State == webhook.EndpointActive {
		clauses = append(clauses, "the worker that enforces its limits did not answer in time, so details may be missing or up to 30 s old")
	}
	return e, clauses
}

// condition is the most important fact about the endpoint. Its Summary is a clause.
func (h health) condition() Explanation {
	s := &h.Observed
	switch {
	case h.Endpoint.State != webhook.EndpointActive:
		return h.stopped()
	case s.Circuit == webhook.CircuitOpen:
		return Explanation{
			Code: EndpointOpen, Summary: "circuit open" + since(s, h.now) + reasonOf(s) + "; " + probe(s, h.now), Until: s.NextProbe,
			Cause: "Most requests failed, so the endpoint gets none for a while.", Remedy: joined(h.remedy(), fixAndTry),
			Actions: []Action{h.toEndpoint(CloseCircuit)},
			Next:    "One request is sent as a probe; if it succeeds, the circuit closes and the rate rises again.",
		}
	case s.Circuit == webhook.CircuitHalfOpen:
		return Explanation{
			Code: EndpointProbe, Summary: "circuit half open" + since(s, h.now) + reasonOf(s) + "; " + probe(s, h.now), Until: s.ProbeOver,
			Cause: "Most requests failed; one request tests whether the receiver has recovered.",
			Next:  "If the probe succeeds, the circuit closes; else it stays open for longer.",
		}
	case s.BlockedUntil.After(h.now):
		return Explanation{
			Code: EndpointRests, Summary: pauseRequested(s, h.now), Until: s.BlockedUntil, Cause: pauseCause(s.BlockReason, s.BlockedUntil, h.now),
			Next: sentence("requests are sent again at " + at(s.BlockedUntil, h.now)),
		}
	case s.Failing():
		return h.failing()
	case s.Strayed != webhook.Strayed{}:
		return h.strayed()
	case s.Recovering:
		words := "recovering: " + PerSecond(s.Rate) + " and rising"
		if !s.Since.IsZero() {
			words = "circuit closed again" + since(s, h.now) + ", " + words
		}
		return Explanation{
			Code: EndpointRises, Summary: words, Cause: "After an outage or a pause the rate rises step by step, so that the receiver is not overloaded.",
			Next: sentence("the rate rises to the endpoint's " + PerSecond(h.Endpoint.RateLimit)),
		}
	case s.DeferReason == webhook.ReasonInFlight || s.DeferReason == webhook.ReasonHost || s.Latency > webhook.SlowLatency:
		return h.busy()
	case s.DeferReason == webhook.ReasonRate:
		return Explanation{
			Code: EndpointRate, Summary: "active, at its rate of " + PerSecond(h.Endpoint.RateLimit),
			Remedy: "If the receiver can take more, allow more requests per second (rate_limit_per_second).",
		}
	}
	return h.active()
}

// active describes an active endpoint without a known problem.
func (h health) active() Explanation {
	s := &h.Observed
	ratio, known := s.SuccessRate()
	switch {
	case !known && h.failure().Reason != "":
		last := h.failure()
		e := Explanation{Code: EndpointIdle, Summary: "active; the last failure on record is " + Outcome(last.Reason) + " at " + when(last.At, h.now)}
		e.Remedy, e.Actions = h.remedyOfLetters()
		return e
	case !known && h.listed:
		return Explanation{Code: EndpointIdle, Summary: "active; no problem was seen lately"}
	case !known:
		return Explanation{Code: EndpointIdle, Summary: "active; no failure on record"}
	}
	words := "active"
	if ratio >= healthyRatio {
		words += " and healthy"
	}
	words += ": " + percent(ratio) + " of the attempts of the last 15 min delivered"
	if s.Latency > 0 {
		words += ", answers take " + latency(s.Latency)
	}
	return Explanation{Code: EndpointOK, Summary: words}
}

// failure is the last failure that is known: the one on record, or the one that a process has seen since; zero for none.
func (h health) failure() (last webhook.LastFailure) {
	if h.LastFailure != nil {
		last = *h.LastFailure
	}
	if o := &h.Observed; o.LastFailure != "" && !last.At.After(o.LastFailedAt) {
		last = webhook.LastFailure{Reason: o.LastFailure, At: o.LastFailedAt, Error: o.LastError, Times: o.LastTimes}
	}
	return last
}

// lastFailure says how the last failed attempt on record went.
func (h health) lastFailure() string {
	last := h.failure()
	if last.Reason == "" {
		return ""
	}
	f := failureOf(last.Reason, last.Error).spent(last.Times).at(&h.Endpoint)
	text := sentence("the last failure on record, at " + when(last.At, h.now) + ": the attempt " + f.what)
	return joined(text, sentence(errorDetail(last.Error, h.now)))
}

// remedy is what fixes the last failure.
func (h health) remedy() string {
	last := h.failure()
	if last.Reason == "" {
		return ""
	}
	return failureOf(last.Reason, last.Error).spent(last.Times).at(&h.Endpoint).remedy
}

// failing describes an endpoint whose last attempts failed.
func (h health) failing() Explanation {
	last := h.failure().Reason
	e := Explanation{
		Code: EndpointFails, Summary: "active, but " + lastFailed(&h.Observed, last, h.now), Next: "Failed deliveries are sent again by the retry policy.",
	}
	switch {
	case last == "":
		e.Next = "Failed deliveries are sent again by the retry policy; those with a final answer, such as 401, are given up."
	case h.final():
		e.Next = sentence(Outcome(last) + " is final: a delivery that gets it is given up at once")
	}
	remedy, more := h.remedyOfLetters()
	e.Remedy, e.Actions = remedy, append([]Action{h.toEndpoint(TestEndpoint)}, more...)
	return e
}

// final reports whether a delivery is given up after the last failure that is known, without another attempt.
func (h health) final() bool {
	reason := retry.Reason(h.failure().Reason)
	policy, _ := h.Endpoint.PolicyInForce()
	if status, ok := reason.Status(); ok {
		return retry.Classify(retry.Answer{Status: status}, policy).Decision == retry.Permanent
	}
	return reason == retry.ReasonDeniedAddress
}

// remedyOfLetters is what fixes the last failure and, if that was final, what to do with the dead letters that it has left.
func (h health) remedyOfLetters() (remedy string, actions []Action) {
	if remedy = h.remedy(); remedy == "" || !h.final() {
		return remedy, nil
	}
	return joined(remedy, "Then send its dead letters again."), []Action{deadLettersAgain(h.Endpoint.TenantID, h.Endpoint.ID)}
}

// strayed describes an endpoint whose redirects count as delivered, and lead elsewhere now.
func (h health) strayed() Explanation {
	s := &h.Observed.Strayed
	return Explanation{
		Code: EndpointStray, Summary: "active, but " + strayedTo(s) + ", since " + clock(s.At, h.now),
		Cause: "Its success_statuses count a redirect as delivered. A page that asks for a log-in answers with a redirect, too, and accepts nothing.",
		Next:  "Such answers go on counting as delivered.", Actions: []Action{h.toEndpoint(TestEndpoint)},
		Remedy: "Look whether the receiver still takes events; if it does not, pause the endpoint, mend the receiver, and send again what was lost.",
	}
}

// strayedTo says where redirects lead, and led before.
func strayedTo(s *webhook.Strayed) string {
	words := "its redirects lead to " + foreign(s.To)
	if s.Before == "" {
		return words + ", which looks like a log-in"
	}
	return words + " instead of " + foreign(s.Before)
}

// stopped describes an endpoint that is not active.
func (h health) stopped() Explanation {
	state, reason := h.Endpoint.State.String(), foreign(h.Endpoint.StateReason)
	words := state
	switch {
	case strings.HasPrefix(reason, state):
		words = reason
	case reason != "":
		words = state + " (" + reason + ")"
	}
	e := Explanation{
		Code: EndpointPause, Summary: words + ": nothing is sent", Next: "Its deliveries wait until it is resumed or their give-up time passes.",
		Remedy: "Resume the endpoint.", Actions: []Action{h.toEndpoint(ResumeEndpoint)},
	}
	if h.Endpoint.State == webhook.EndpointDisabled {
		e.Code, e.Remedy, e.Actions = EndpointOff, h.toResume(), []Action{h.toEndpoint(TestEndpoint), h.toEndpoint(ResumeEndpoint)}
	}
	return e
}

// toResume is what has to be done for a disabled endpoint: what fixes its last failure, where that is known.
func (h health) toResume() string {
	switch remedy := h.remedy(); {
	case remedy == "":
		return fixAndResume
	case h.failure().Reason == "http_410":
		return remedy // it says so itself
	default:
		return joined(remedy, "Then send it a test, and resume the endpoint.")
	}
}

// busy describes an endpoint that is slow or at its limit of requests in flight.
func (h health) busy() Explanation {
	s := &h.Observed
	e := Explanation{
		Code: EndpointSlow, Summary: "active", Next: "Deliveries go as earlier ones are answered.",
		Remedy: "Have the receiver answer at once and work afterwards.",
	}
	if s.Latency > webhook.SlowLatency {
		e.Summary += " but slow, answers take " + latency(s.Latency)
	}
	switch s.DeferReason {
	case webhook.ReasonHost:
		e.Code, e.Remedy, e.Operator = EndpointBusy, "", "EVERPOST_MAX_IN_FLIGHT_PER_HOST sets that limit."
		e.Summary += ", waiting for its host, whose cap all endpoints there share: " + PerSecond(s.Rate)
	case webhook.ReasonInFlight:
		e.Code, e.Remedy = EndpointBusy, "If the receiver can take more, allow more requests at a time (max_in_flight)."
		e.Summary += fmt.Sprintf(", at its cap of %s at a time: %s", count(h.Endpoint.MaxInFlight, "request"), PerSecond(s.Rate))
	}
	return e
}

func since(s *webhook.Observation, now time.Time) string {
	if s.Since.IsZero() {
		return ""
	}
	return " since " + clock(s.Since, now)
}

func reasonOf(s *webhook.Observation) string {
	if s.Why == "" {
		return ""
	}
	return " after " + WhyOpen(s.Why)
}

func probe(s *webhook.Observation, now time.Time) string {
	if s.Circuit == webhook.CircuitHalfOpen && s.ProbeOver.After(now) {
		return "a probe is under way"
	}
	if !s.NextProbe.After(now) {
		return "the next delivery is the probe"
	}
	return "next probe in " + timeUntil(s.NextProbe.Sub(now))
}

func pauseRequested(s *webhook.Observation, now time.Time) string {
	words := "the receiver asked for a pause"
	switch s.BlockReason {
	case webhook.ReasonRetryAfter:
		words += " (429 with Retry-After)"
	case webhook.ReasonRateLimitHint:
		words = "the receiver says that its rate limit is used up"
	}
	return words + "; next request in " + timeUntil(s.BlockedUntil.Sub(now))
}

// pauseCause says which response has asked for the pause of a whole endpoint, and until when that holds; zero if it is not known.
func pauseCause(reason string, until, now time.Time) string {
	words := "a response asked for it"
	switch reason {
	case webhook.ReasonRetryAfter:
		words = "the receiver answered " + statusWords(tooManyRequests) + " with Retry-After"
	case webhook.ReasonRateLimitHint:
		words = "the headers of a response say that no request is left of the receiver's rate limit"
	}
	words += "; that holds for the whole endpoint"
	if !until.IsZero() {
		words += ", until " + at(until, now)
	}
	return sentence(words)
}

// backlog describes the waiting deliveries, and since when the oldest waits.
func (h health) backlog() []string {
	b := &h.Backlog
	var parts []string
	if n := b.Waiting(); n > 0 || b.MoreWaiting {
		parts = append(parts, atLeast(n, b.MoreWaiting)+" waiting"+h.waitReason())
	}
	if b.Scheduled > 0 {
		parts = append(parts, atLeast(b.Scheduled, b.MoreWaiting)+" scheduled")
	}
	if b.Held > 0 {
		words := atLeast(b.Held, b.MoreHeld) + " held"
		if h.Endpoint.State == webhook.EndpointActive {
			words += ", the oldest go first"
		} else {
			words += " until it is resumed"
		}
		parts = append(parts, words)
	}
	switch {
	case len(parts) == 0:
		return []string{"nothing waits"}
	case !b.Oldest.IsZero():
		parts = append(parts, "the oldest since "+clock(b.Oldest, h.now))
	}
	return parts
}

// waitReason describes what the waiting deliveries wait for.
func (h health) waitReason() string {
	b := &h.Backlog
	switch {
	case h.Endpoint.State != webhook.EndpointActive:
		return " until it is resumed"
	case b.MoreWaiting:
		return ""
	case b.Deferred == 0:
		next := ""
		if b.NextAt.After(h.now) && b.Retrying == 1 {
			next = " in " + timeUntil(b.NextAt.Sub(h.now))
		} else if b.NextAt.After(h.now) && b.Scheduled == 0 {
			next = ", the next in " + timeUntil(b.NextAt.Sub(h.now))
		}
		return " to be sent again" + next
	case b.Retrying > 0:
		return fmt.Sprintf(" (%d for a turn, %d to be sent again)", b.Deferred, b.Retrying)
	}
	return " for a turn"
}
