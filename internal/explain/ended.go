package explain

import (
	"fmt"
	"strconv"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// ended explains a delivery that has ended.
type ended struct{ *Situation }

// delivered explains a delivery that the receiver accepted.
func (s ended) delivered() Explanation {
	d := &s.Delivery
	e := Explanation{Code: Delivered, Next: "Nothing more is sent."}
	e.Remedy, e.Actions = s.again(SendAgain)
	e.Summary = "delivered"
	if !d.CompletedAt.IsZero() { // a workflow knows the time only of its own attempts
		e.Summary += " at " + when(d.CompletedAt, s.Now)
	}
	switch {
	case d.Run > 1:
		e.Summary += fmt.Sprintf(", sent again (run %d), with attempt %d", d.Run, d.Attempts)
	case d.Attempts == 1:
		e.Summary += ", with the first attempt"
	case d.CompletedAt.IsZero():
		e.Summary += fmt.Sprintf(", with attempt %d", d.Attempts)
	default:
		e.Summary += fmt.Sprintf(", with attempt %d, %s after it was accepted", d.Attempts, elapsed(d.CompletedAt.Sub(d.CreatedAt)))
	}
	if last := d.LastOutcome; last != nil {
		e.Summary += fmt.Sprintf(": %d in %s", last.Status, latency(last.Latency))
		e.Cause = sentence(fmt.Sprintf("%s answered %d, and any 2xx means that it has accepted the event", receiverOf(s.Endpoint), last.Status))
	}
	e.Summary = sentence(e.Summary)
	return e
}

// deadLetter explains a delivery that was given up.
func (s ended) deadLetter() Explanation {
	d := &s.Delivery
	e, f, last, operator := Explanation{}, failure{}, "", ""
	if d.LastOutcome != nil {
		if d.LastOutcome.Decision == retry.Delivered {
			return s.acceptedLate()
		}
		f, operator = s.lastFailure(), operatorAfter(d.LastOutcome.Reason, s.Error)
		e.Cause, last = f.cause, "; the last "+f.what
	}
	made := s.made()
	var why string
	switch d.Reason {
	case string(retry.ReasonMaxAttempts):
		e.Code, why = Exhausted, made+" failed, as many as the retry policy allows"+last
	case string(retry.ReasonGiveUpTime):
		e.Code, why = Exhausted, made+" failed, and the retry policy's time is over"+last
		if d.RunAttempts == 0 {
			e.Code, why, f.remedy = Expired, "no attempt could be made before the give-up time", ""
			e.Cause = "Everpost, its database or Temporal was unavailable until then, or the workers were overloaded."
		}
	case string(retry.ReasonAmbiguousLimit):
		e.Code, why = Exhausted, made+" failed, and after such a failure it is not sent again more often"+last
	case string(retry.ReasonRetryAfterPastGiveUp):
		e.Code, why = Exhausted, made+" failed, and the receiver asked for a pause beyond the give-up time"+last
		if d.LastOutcome != nil {
			e.Cause = joined(e.Cause, sentence("it asked for a pause of "+timeUntil(d.LastOutcome.RetryAfter)))
		}
	case webhook.ReasonHeldExpired:
		e.Code, why, f.remedy = Expired, "it waited until the give-up time", ""
		e.Cause = "Its endpoint was paused or disabled, or more deliveries waited for it than it took."
	case webhook.ReasonDeferredExpired:
		e.Code, why, f.remedy = Expired, "it waited for its turn until the give-up time", ""
		e.Cause = "The endpoint took fewer requests than it got, because its receiver failed or its limits are low."
	case webhook.ReasonInternal:
		e.Code, why, f.remedy = FailedInside, "a fault of Everpost, not of the receiver, lasted until the give-up time", ""
		e.Operator = "Fix the fault; then send it again."
		e.Cause = sentence(foreign(d.LastError))
	case string(retry.ReasonPayloadCorrupt):
		e.Code, why = FailedInside, "the stored payload does not match its SHA-256, and such a payload is never sent"
		f.remedy, e.Operator = "Post the event again.", "Check the database's storage."
		e.Cause = "The payload has changed since it was accepted."
	case string(retry.ReasonPayloadRemoved):
		e.Code, why, f.remedy = Refused, "its payload was removed before it could be sent", ""
	case webhook.ReasonTerminated:
		e.Code, why, f.remedy = Terminated, "its workflow was terminated from outside", ""
		e.Cause = "A person or a tool terminated the workflow in Temporal."
	default:
		e.Code, why = Refused, "it failed permanently"
		if d.LastOutcome != nil {
			why = fmt.Sprintf("attempt %d %s, which is final", d.Attempts, f.what)
		}
	}
	var again string
	again, e.Actions = s.again(actsOnDeadLetter(e.Code)...)
	e.Remedy, e.Operator = joined(sentence(f.remedy), again), joined(operator, e.Operator)
	return s.givenUp(e, why)
}

// actsOnDeadLetter are the ways to send a dead letter again: also with all others of the endpoint if its receiver was the cause.
func actsOnDeadLetter(code Code) []Act {
	if code == Exhausted || code == Expired || code == Refused {
		return []Act{SendAgain, SendDeadLettersAgain}
	}
	return []Act{SendAgain}
}

// acceptedLate explains a dead letter that was given up during its last attempt, which the receiver then accepted.
func (s ended) acceptedLate() Explanation {
	return s.givenUp(Explanation{
		Code: Expired, Cause: "The receiver has accepted that attempt afterwards.",
		Remedy: "Discard the dead letter: the receiver has the event.", Actions: []Action{s.toDelivery(Discard)},
	}, fmt.Sprintf("the answer to attempt %d was not known by then", s.Delivery.Attempts))
}

// again says that a delivery that has ended can be sent again, and how.
func (s ended) again(acts ...Act) (remedy string, actions []Action) {
	if !s.Removed.IsZero() {
		return sentence("it cannot be sent again: " + s.Removed.String()), nil
	}
	for _, act := range acts {
		if act == SendDeadLettersAgain {
			actions = append(actions, deadLettersAgain(s.Delivery.TenantID, s.Delivery.EndpointID))
			continue
		}
		actions = append(actions, s.toDelivery(act))
	}
	remedy = "It can be sent again"
	if len(actions) > 1 {
		remedy += ", alone or with all dead letters of the endpoint"
	}
	return remedy + ".", actions
}

// givenUp completes the explanation of a dead letter: when it was given up and why, and how long it is kept.
func (s ended) givenUp(e Explanation, why string) Explanation {
	d, kept, after := &s.Delivery, "kept as a dead letter", ""
	if s.Kept > 0 {
		e.Until = d.CompletedAt.Add(s.Kept)
		kept += " until " + at(e.Until, s.Now)
	}
	e.Next = sentence("nothing more is sent unless a person sends it again", kept)
	if d.Run <= 1 {
		after = ", " + elapsed(d.CompletedAt.Sub(d.CreatedAt)) + " after it was accepted"
	}
	e.Summary = sentence("given up at "+at(d.CompletedAt, s.Now)+after+": "+why, kept)
	return e
}

// made is how many attempts were made in this run.
func (s ended) made() string {
	words := count(s.Delivery.RunAttempts, "attempt")
	if s.Delivery.Run > 1 {
		words += fmt.Sprintf(" in run %d", s.Delivery.Run)
	}
	return words
}

// withdrawn explains a cancelled or discarded delivery.
func (s ended) withdrawn() Explanation {
	d := &s.Delivery
	e := Explanation{Code: Cancelled, Next: "Nothing more is sent."}
	e.Remedy, e.Actions = s.again(SendAgain)
	did, why := "cancelled", "on request"
	switch d.Reason {
	case webhook.ReasonEndpointDeleted:
		why, e.Remedy, e.Cause = "because its endpoint was deleted", "", "Deliveries to a deleted endpoint are cancelled."
		e.Actions = nil
	case webhook.ReasonPayloadErased:
		why, e.Cause = "because its payload was erased", "The payload was erased on request, and open deliveries were cancelled with it."
	case webhook.ReasonRetention:
		why, e.Cause = "because its time as a dead letter was over", "Dead letters are kept for a limited time."
	case webhook.ReasonCancelled, webhook.ReasonDiscarded, "":
		e.Cause = "The request gave no reason."
	default:
		given := strconv.Quote(foreign(d.Reason)) // a person's words
		why = "on request (" + given + ")"
		e.Cause = sentence("the request gave the reason " + given)
	}
	if d.State == webhook.StateDiscarded {
		e.Code, did = Discarded, "discarded"
	}
	e.Summary = sentence(did + " at " + when(d.CompletedAt, s.Now) + ", " + why + ", after " + count(d.Attempts, "attempt"))
	return e
}
