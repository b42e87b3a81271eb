package explain

import (
	"cmp"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// obstacles explains a delivery that has to wait because of its endpoint.
type obstacles struct{ *Situation }

// queued explains a delivery that waits for its turn at the endpoint: it has got a later time, or is one of more than the
// endpoint takes soon. What is wrong with the endpoint comes before the mechanism that makes the delivery wait.
func (s obstacles) queued() Explanation {
	e, known := s.obstacle()
	if !known {
		e = s.turn()
	}
	e.Summary = sentence(e.Summary, s.goesOn())
	if e.Next == "" {
		e.Next = sentence(s.goesOn())
	}
	if e.Until.IsZero() {
		e.Until = s.Delivery.DueAt
	}
	if e.Until.IsZero() {
		e.Until = s.Delivery.Expires()
	}
	e.Cause = joined(joined(e.Cause, s.ahead()), s.unanswered())
	return e
}

// goesOn says when a delivery is sent that waits for its turn: at its time, or after those before it.
func (s obstacles) goesOn() string {
	if s.Delivery.State == webhook.StateHeld {
		return "sent after those before it" + s.until(", or given up at ")
	}
	follows := s.follows()
	if until := s.until("tried until "); until != "" {
		follows += "; " + until
	}
	return follows
}

// obstacle is what is wrong with the active endpoint, the deepest first: its circuit is open, its receiver has asked for a
// pause, fails, or has just recovered. Its Summary is a clause; false: nothing is known to be wrong.
func (s obstacles) obstacle() (Explanation, bool) {
	o, reason := s.Observed, s.Delivery.Reason
	switch {
	case o == nil && reason == webhook.ReasonCircuitOpen, o != nil && o.Circuit != webhook.CircuitClosed && o.Circuit != "":
		return s.circuitOpen(), true
	case o == nil && asksForPause(reason), o != nil && o.BlockedUntil.After(s.Now):
		return s.pauseAsked(), true
	case o == nil || reason == webhook.ReasonNoOwner:
		return Explanation{}, false
	case o.Failing():
		return s.failing(), true
	case o.Recovering:
		return Explanation{
			Code: WaitsRecovery, Summary: "waits while the rate rises again after an outage: " + PerSecond(o.Rate) + " now",
			Cause: "After an outage or a pause the rate rises step by step, so that the receiver is not overloaded.",
		}, true
	case reason == webhook.ReasonCircuitOpen:
		return Explanation{
			Code: WaitsCircuit, Summary: "got a later time while the circuit of the endpoint was open, which has closed since",
			Cause: "Most requests to the endpoint failed for a while.", Remedy: "If it need not wait, send it now.",
			Actions: []Action{s.toDelivery(SendNow)},
		}, true
	case asksForPause(reason):
		return Explanation{
			Code: WaitsReceiver, Summary: "got a later time while " + receiverOf(s.Endpoint) + " asked for a pause, which has ended since",
			Cause: "A pause that a response asks for holds for the whole endpoint.", Remedy: "If it need not wait, send it now.",
			Actions: []Action{s.toDelivery(SendNow)},
		}, true
	}
	return Explanation{}, false
}

func asksForPause(reason string) bool {
	return reason == webhook.ReasonRetryAfter || reason == webhook.ReasonRateLimitHint
}

// circuitOpen is the obstacle of an open circuit, with the receiver's last failure.
func (s obstacles) circuitOpen() Explanation {
	e := Explanation{
		Code: WaitsCircuit, Summary: "waits because the circuit of the endpoint is open",
		Cause:  "Most requests to the endpoint failed, so it gets none until a probe succeeds.",
		Remedy: fixAndTry, Actions: []Action{s.toEndpoint(CloseCircuit)},
	}
	if o := s.Observed; o != nil {
		f := failureOf(o.LastFailure, o.LastError).spent(o.LastTimes).at(s.Endpoint)
		e.Summary = "waits because the circuit of the endpoint has been open" + since(o, s.Now) + reasonOf(o)
		e.Next = sentence(probe(o, s.Now), s.goesOn())
		if o.LastFailure != "" {
			e.Cause, e.Remedy = joined(e.Cause, joined(f.cause, sentence(errorDetail(o.LastError, s.Now)))), joined(f.remedy, fixAndTry)
		}
	}
	return e
}

const fixAndTry = "When the receiver is well again, close the circuit to have it tried at once."

// pauseAsked is the obstacle of a receiver that has asked for a pause of the whole endpoint.
func (s obstacles) pauseAsked() Explanation {
	e := Explanation{
		Code: WaitsReceiver, Summary: "waits because " + receiverOf(s.Endpoint) + " asked for a pause",
		Cause: pauseCause(s.Delivery.Reason, time.Time{}, s.Now),
	}
	if o := s.Observed; o != nil {
		e.Cause = pauseCause(cmp.Or(o.BlockReason, s.Delivery.Reason), o.BlockedUntil, s.Now)
		e.Summary += " until " + at(o.BlockedUntil, s.Now)
		e.Remedy = "If it happens often, set the endpoint's rate to what the receiver allows."
	}
	return e
}

// failing is the obstacle of a receiver that fails while the circuit is closed.
func (s obstacles) failing() Explanation {
	o := s.Observed
	f := failureOf(o.LastFailure, o.LastError).spent(o.LastTimes).at(s.Endpoint)
	e := Explanation{Code: WaitsFailing, Summary: "waits because " + receiverOf(s.Endpoint) + " fails: " + lastFailed(o, o.LastFailure, s.Now)}
	e.Cause = "A receiver that fails takes fewer requests than it gets."
	if o.LastFailure != "" {
		e.Cause, e.Remedy = joined(joined(f.cause, sentence(errorDetail(o.LastError, s.Now))), e.Cause), f.remedy
	}
	return e
}

// lastFailed says how many attempts in a row failed, and when the last did if that was not lately: "the last 12 attempts failed, the last with 503".
func lastFailed(o *webhook.Observation, reason string, now time.Time) string {
	words, with := "the last attempt failed", " with "
	if o.FailureStreak > 1 {
		words, with = fmt.Sprintf("the last %d attempts failed", o.FailureStreak), ", the last with "
	}
	if reason != "" {
		words += with + Outcome(reason)
	}
	if o.Attempts() == 0 && !o.LastFailedAt.IsZero() {
		words += " at " + when(o.LastFailedAt, now)
	}
	return words
}

// turn says what a delivery waits for at an endpoint that is well. Summary is a clause.
func (s obstacles) turn() (e Explanation) {
	receiver := receiverOf(s.Endpoint)
	switch s.Delivery.Reason {
	case webhook.ReasonInFlight:
		e.Code, e.Summary = WaitsInFlight, "waits until "+receiver+" has answered earlier requests"
		if s.Endpoint != nil {
			e.Cause = sentence(s.slots())
		}
		e.Remedy = s.raise("allow more requests at a time (max_in_flight)")
	case webhook.ReasonHost:
		e.Code, e.Summary = WaitsHost, "waits because "+receiver+" is at the limit of requests at a time that all endpoints of its host share"
		e.Operator = "EVERPOST_MAX_IN_FLIGHT_PER_HOST sets that limit."
	case webhook.ReasonCapacity:
		e.Code, e.Summary = WaitsCapacity, "waits because requests to slow receivers, or with large payloads, already use their share of the worker"
		e.Remedy, e.Operator = "Have the slow receivers answer faster.", "Add workers."
	case webhook.ReasonNoOwner:
		e.Code = WaitsOwner
		e.Summary = "waits because the worker that enforces the endpoint's limits did not answer in time; another takes over within seconds"
		e.Operator = "If it lasts, see the logs of the workers for 'leases' and 'process'."
	case webhook.ReasonBacklog:
		e.Code, e.Summary = HeldBacklog, "waits because the endpoint has got more deliveries than it takes soon"
		e.Cause, e.Remedy = "Deliveries come faster than the endpoint takes them.",
			s.raise("allow more requests at a time or per second (max_in_flight, rate_limit_per_second)")
	default:
		e.Code, e.Summary = WaitsRate, "waits for its turn"
		if s.Endpoint != nil {
			e.Summary += " at the endpoint's rate of " + PerSecond(s.Endpoint.RateLimit)
		}
		e.Remedy = s.raise("allow more requests per second (rate_limit_per_second)")
	}
	return e
}

// raise is the remedy of an endpoint at its limit: not to raise that of a receiver that is slow; "" if it is not known whether it is well.
func (s obstacles) raise(how string) string {
	switch {
	case s.Observed == nil && s.Now.IsZero():
		return ""
	case s.Observed != nil && s.Observed.Latency > webhook.SlowLatency:
		return "Have the receiver answer at once and work afterwards: answers take " + latency(s.Observed.Latency) + "."
	}
	return "If the receiver can take more, " + how + "."
}

// whileStopped explains a delivery that waits because its endpoint is paused or disabled.
func (s obstacles) whileStopped() Explanation {
	e := Explanation{
		Code: HeldPaused, Until: s.Delivery.Expires(), Summary: sentence("waits "+s.becauseStopped(), s.sentWhenResumed()),
		Next: s.nothingUntilResumed(), Remedy: s.toResume(), Actions: s.resume(), Cause: joined(s.clock(), s.ahead()),
	}
	if s.Endpoint.State == webhook.EndpointDisabled {
		e.Code = HeldDisabled
	}
	return e
}

// clock says that the time until the delivery is given up does not pass.
func (s *Situation) clock() string {
	if s.Delivery.HeldAt.IsZero() {
		return ""
	}
	return sentence("the time for its retries stands still since " + when(s.Delivery.HeldAt, s.Now))
}

func (s obstacles) sentWhenResumed() string {
	return "sent when it is resumed" + s.until(", or given up at ")
}

func (s obstacles) nothingUntilResumed() string {
	return sentence("nothing is sent until the endpoint is resumed", s.until("it is given up at "))
}

// whileReleaseStopped explains a delivery whose release a person has stopped.
func (s obstacles) whileReleaseStopped() Explanation {
	e := Explanation{
		Code: Releasing, Until: s.Delivery.Expires(),
		Summary: sentence("waits because the release of the endpoint's held deliveries is stopped", "sent when it goes on"+s.until(", or given up at ")),
		Cause:   "A person has stopped the release. Deliveries of newer events are sent.",
		Next:    sentence("nothing is sent until the release goes on", s.until("it is given up at ")),
		Remedy:  "Let the release go on: resume the endpoint.", Actions: []Action{s.toEndpoint(ResumeEndpoint)},
	}
	if why, known := s.obstacle(); known {
		e.Cause, e.Remedy = joined(e.Cause, sentence("it "+why.Summary)), joined(why.Remedy, e.Remedy)
		e.Actions = append(e.Actions, why.Actions...)
	}
	e.Cause = joined(e.Cause, s.ahead())
	return e
}

// releasing explains a delivery of an endpoint that is active again.
func (s obstacles) releasing() Explanation {
	if e, known := s.obstacle(); known {
		e.Summary, e.Cause = sentence(e.Summary, s.goesOn()), joined(e.Cause, s.ahead())
		if e.Next == "" {
			e.Next = sentence(s.goesOn())
		}
		e.Until = s.Delivery.Expires()
		return e
	}
	return Explanation{
		Code: Releasing, Until: s.Delivery.Expires(), Cause: s.ahead(),
		Summary: sentence("the endpoint is active again and this delivery is being released", "the oldest go first"+s.until(", tried until ")),
		Next:    sentence(fmt.Sprintf("attempt %d is made when those before it are released", s.number())),
	}
}
