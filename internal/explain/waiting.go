package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// startsWithin is how long the first attempt of a delivery normally takes to begin at the most. The
	// outbox is read again after 8 s.
	startsWithin = 30 * time.Second
	checkWorker  = "Check that a worker runs and reaches Temporal: /readyz of its admin listener says so, and the log why an attempt was not made."
)

// stopped reports whether the endpoint is paused or disabled: what is due is held.
func (s *Situation) stopped() bool {
	return s.Endpoint != nil && s.Endpoint.State != webhook.EndpointActive
}

// becauseStopped is why nothing is sent: "because the endpoint is paused by hand".
func (s *Situation) becauseStopped() string {
	return "because the endpoint is " + s.Endpoint.State.String() + stateReason(s.Endpoint)
}

// toResume is what has to be done for an endpoint that is paused or disabled.
func (s *Situation) toResume() string {
	if s.stopped() && s.Endpoint.State == webhook.EndpointDisabled {
		return fixAndResume
	}
	return "Resume the endpoint."
}

const fixAndResume = "Fix the receiver, send it a test, then resume the endpoint."

func (s *Situation) resume() []Action {
	if s.stopped() && s.Endpoint.State == webhook.EndpointDisabled {
		return []Action{s.toEndpoint(TestEndpoint), s.toEndpoint(ResumeEndpoint)}
	}
	return []Action{s.toEndpoint(ResumeEndpoint)}
}

// number is the number of the next attempt, or of the one under way.
func (s *Situation) number() int { return s.Delivery.Attempts + 1 }

// open explains a pending or retrying delivery.
func (s *Situation) open() Explanation {
	e := s.waiting()
	if s.stopped() && e.Code != InProgress && e.Code != EngineAway {
		e.Next, e.Remedy = sentence("it is sent when the endpoint is resumed", s.until("given up at ")), s.toResume()
		e.Actions, e.Operator = s.resume(), ""
	}
	return e
}

func (s *Situation) waiting() Explanation {
	d, now := &s.Delivery, s.Now
	due := d.DueAt.After(now)
	switch {
	case d.ClaimedUntil.After(now) || !s.SentAt.IsZero():
		return s.inProgress()
	case s.EndpointDeleted:
		return Explanation{
			Code: Cancelling, Summary: "The endpoint was deleted; the delivery is being cancelled.", Cause: "Deliveries to a deleted endpoint are cancelled.",
		}
	case d.LastError != "":
		return s.fault("delays attempt " + strconv.Itoa(s.number()))
	case !s.EngineAway.IsZero() && !due:
		return s.engineAway()
	case d.Deferred() && s.stopped():
		return obstacles{s}.whileStopped()
	case d.Deferred():
		return obstacles{s}.queued()
	case d.State == webhook.StateRetrying && d.LastOutcome != nil:
		return s.retrying()
	case due:
		then := fmt.Sprintf("attempt %d is made then", s.number())
		if s.stopped() {
			then = "it waits from then on " + s.becauseStopped()
		}
		return Explanation{
			Code: Scheduled, Summary: sentence("scheduled for "+when(d.DueAt, now), s.replayed(), then), Until: d.DueAt,
			Cause:  "The event has a later deliver_at, or the delivery was rescheduled.",
			Next:   sentence(fmt.Sprintf("attempt %d is made at %s", s.number(), at(d.DueAt, now))),
			Remedy: "If it need not wait, send it now.", Actions: []Action{s.toDelivery(SendNow)},
		}
	}
	return s.starting()
}

func (s *Situation) starting() Explanation {
	soon := fmt.Sprintf("attempt %d is about to be made, or under way", s.number())
	if s.stopped() {
		soon = "it waits " + s.becauseStopped()
	}
	e := Explanation{
		Code: Starting, Until: s.Delivery.Expires(), Next: sentence(fmt.Sprintf("attempt %d is made as soon as a worker takes it", s.number())),
		Summary: sentence("accepted at "+when(s.Delivery.CreatedAt, s.Now), s.replayed(), soon),
	}
	if s.Now.Sub(s.began()) > startsWithin {
		e.Cause, e.Operator = "The delivery is stored, and no attempt of it is. It normally begins within milliseconds.", checkWorker
	}
	return e
}

// began is when the run began: a delivery that a replay has made of an old event began later than the event.
func (s *Situation) began() time.Time {
	began := s.Delivery.CreatedAt
	if s.Endpoint == nil || s.Delivery.GiveUpAt.IsZero() {
		return began
	}
	policy, _ := s.Endpoint.PolicyInForce()
	if by := s.Delivery.BeganAt(policy.GiveUpAfter); by.After(began) {
		return by
	}
	return began
}

// replayed says that the delivery is sent again.
func (s *Situation) replayed() string {
	if s.Delivery.Run > 1 {
		return fmt.Sprintf("sent again, run %d", s.Delivery.Run)
	}
	return ""
}

func (s *Situation) engineAway() Explanation {
	return Explanation{
		Code: EngineAway,
		Summary: sentence(fmt.Sprintf("attempt %d waits because Temporal has been unreachable since %s", s.number(), when(s.EngineAway, s.Now)),
			"it is made when Temporal is back"),
		Cause:    "Temporal drives the deliveries, and does not answer or cannot write. The delivery is safely stored in PostgreSQL.",
		Next:     sentence("it continues when Temporal is back", s.until("tried until ")),
		Operator: "Check the Temporal service and its database.", Until: s.Delivery.Expires(),
	}
}

// until is the give-up time after a few words.
func (s *Situation) until(words string) string {
	if s.Delivery.GiveUpAt.IsZero() {
		return ""
	}
	return words + at(s.Delivery.Expires(), s.Now)
}

func (s *Situation) inProgress() Explanation {
	d, now := &s.Delivery, s.Now
	sent, over := fmt.Sprintf("attempt %d is under way and has no answer yet", s.number()), ""
	if !s.SentAt.IsZero() {
		ago := ""
		if !now.IsZero() {
			ago = ", " + latency(max(now.Sub(s.SentAt), 0)) + " ago"
		}
		sent = fmt.Sprintf("attempt %d was sent at %s%s, and has no answer yet", s.number(), at(s.SentAt, now), ago)
	}
	if s.Endpoint != nil && !s.Endpoint.AutoTimeout && s.Endpoint.Timeout > 0 {
		over = "it times out after " + latency(s.Endpoint.Timeout)
	}
	e := Explanation{Code: InProgress, Until: d.ClaimedUntil, Summary: sentence(sent, over), Cause: sentence(receiverOf(s.Endpoint) + " has not answered yet")}
	e.Next = sentence("without an answer in time it is tried again" + s.until(", until "))
	if s.lastAllowed() {
		e.Next = "It is the last attempt that the retry policy allows: without an answer in time the delivery becomes a dead letter."
	}
	if s.Observed != nil && s.Endpoint != nil && s.Observed.InFlight > 0 {
		e.Cause += " " + sentence(s.slots())
	}
	e.Cause = joined(e.Cause, s.unanswered())
	return e
}

// lastAllowed reports whether the retry policy allows no attempt after the next one, or the one under way.
func (s *Situation) lastAllowed() bool {
	if s.Endpoint == nil {
		return false
	}
	policy, _ := s.Endpoint.PolicyInForce()
	return policy.MaxAttempts > 0 && s.Delivery.RunAttempts+1 >= policy.MaxAttempts
}

// slots says how many requests the endpoint allows at a time, and how many are under way.
func (s *Situation) slots() string {
	words := "the endpoint allows " + count(s.Endpoint.MaxInFlight, "request") + " at a time"
	switch {
	case s.Observed == nil || s.Observed.InFlight == 0:
		return words
	case s.Observed.InFlight == 1:
		return words + ", and 1 is under way"
	}
	return fmt.Sprintf("%s, and %d are under way", words, s.Observed.InFlight)
}

// attempted says how the last attempt went: "attempt 3 at 12:03:44 UTC got 503".
func (s *Situation) attempted(f failure) string {
	return fmt.Sprintf("attempt %d at %s %s", s.Delivery.Attempts, at(s.Delivery.LastOutcome.At, s.Now), f.what)
}

// follows says when the next attempt is made.
func (s *Situation) follows() string {
	switch due := s.Delivery.DueAt; {
	case s.stopped() && due.After(s.Now):
		return fmt.Sprintf("attempt %d is due at %s, and waits from then on %s", s.number(), when(due, s.Now), s.becauseStopped())
	case s.stopped():
		return fmt.Sprintf("attempt %d waits %s", s.number(), s.becauseStopped())
	case due.After(s.Now):
		return fmt.Sprintf("attempt %d follows at %s", s.number(), when(due, s.Now))
	case !due.IsZero() && s.Now.Sub(due) > startsWithin:
		return fmt.Sprintf("attempt %d has been due since %s", s.number(), when(due, s.Now))
	}
	return fmt.Sprintf("attempt %d is due now", s.number())
}

// limits says how long it goes on: "up to 16 attempts, until 26 Nov 12:00 UTC".
func (s *Situation) limits() string {
	if s.Endpoint == nil {
		return s.until("until ")
	}
	policy, _ := s.Endpoint.PolicyInForce()
	if policy.MaxAttempts == 0 {
		return s.until("until ")
	}
	words := "up to " + count(policy.MaxAttempts, "attempt")
	if s.Delivery.Run > 1 {
		words += " in this run"
	}
	return words + s.until(", until ")
}

func (s *Situation) retrying() Explanation {
	d := &s.Delivery
	f := s.lastFailure()
	did := s.attempted(f)
	e := Explanation{Code: f.code, Cause: f.cause, Remedy: f.remedy, Operator: operatorAfter(d.LastOutcome.Reason, s.Error), Until: d.DueAt}
	limits := s.limits()
	switch asked := d.LastOutcome.RetryAfter; {
	case asked > 0:
		e.Code = RetryAfter
		did += " and asked for a pause of " + timeUntil(asked)
		e.Cause += s.keptOf(asked)
	case d.Ambiguous > 0 && s.Endpoint != nil:
		policy, _ := s.Endpoint.PolicyInForce()
		if n := len(policy.AmbiguousDelays); d.Ambiguous <= n {
			limits = fmt.Sprintf("retry %d of at most %d for such a failure", d.Ambiguous, n) + s.until(", until ")
			e.Cause += " That may be permanent or be fixed soon, so it is sent again less often and with longer delays."
		}
	}
	e.Summary, e.Next = sentence(did, s.follows(), limits), sentence(s.follows(), limits)
	if s.Now.Sub(d.DueAt) > time.Minute && !d.DueAt.IsZero() {
		e.Operator = checkWorker
	}
	if o := s.Observed; o != nil && o.Circuit != webhook.CircuitClosed && o.Circuit != "" && !s.stopped() {
		e.Cause = joined(e.Cause, sentence("the circuit of the endpoint has been open"+since(o, s.Now)+reasonOf(o)+
			", and no attempt is made before it has closed"))
		e.Actions = []Action{s.toEndpoint(CloseCircuit)}
	}
	return e
}

// keptOf says how much of a Retry-After is kept, unless a command has moved the attempt.
func (s *Situation) keptOf(asked time.Duration) string {
	d := &s.Delivery
	wait, limit := d.DueAt.Sub(d.LastOutcome.At), asked
	if s.Endpoint != nil {
		policy, _ := s.Endpoint.PolicyInForce()
		limit = policy.MaxRetryAfter
	}
	const rounding = time.Second
	switch {
	case d.DueAt.IsZero() || wait >= asked-rounding:
		return " Its Retry-After is kept: no attempt is made earlier."
	case limit < asked && wait >= limit-rounding:
		return " Of a Retry-After, " + timeUntil(limit) + " count at most: the retry policy's max_retry_after."
	case d.LastOutcome.At.Add(min(asked, limit)).After(d.GiveUpAt):
		return " That is later than the give-up time, so a last attempt is made shortly before it."
	}
	return ""
}

// unanswered says that the process that knows most about the wait did not answer.
func (s *Situation) unanswered() string {
	if !s.Stale {
		return ""
	}
	return "The worker that enforces the endpoint's limits did not answer in time, so details may be missing or up to 30 s old."
}

// ahead says how many deliveries come first, and how long they take at the present rate.
func (s *Situation) ahead() string {
	if s.Ahead == nil || s.Ahead.N == 0 {
		return ""
	}
	words := atLeast(s.Ahead.N, s.Ahead.More) + " of the endpoint's deliveries come before it"
	if s.Ahead.N == 1 && !s.Ahead.More {
		words = "1 of the endpoint's deliveries comes before it"
	}
	if o := s.Observed; o != nil && o.Rate > 0 {
		takes := time.Duration(float64(s.Ahead.N) / o.Rate * float64(time.Second))
		words += ", about " + timeUntil(takes) + " at " + PerSecond(o.Rate)
	}
	return sentence(words)
}

// joined joins sentences.
func joined(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + " " + second
}

// fault explains a fault of Everpost. does is what it does to the delivery.
func (s *Situation) fault(does string) Explanation {
	text := foreign(s.Delivery.LastError)
	if text == "" {
		text = "its cause is in the worker's log"
	}
	operator := "The worker's log has the cause."
	if cause, found := strings.CutPrefix(text, string(retry.ReasonProxyRefused)+": "); found {
		text, operator = cause, checkProxy
	}
	return Explanation{
		Code: InternalFault, Summary: sentence("a fault of Everpost, not of the receiver, "+does+": "+text, s.until("tried again until ")),
		Cause: sentence(text) + " No attempt is counted, and nothing is recorded against the endpoint.",
		Next:  "It continues when the fault has ended.", Operator: operator, Until: s.Delivery.Expires(),
	}
}

// held explains a held delivery.
func (s *Situation) held() Explanation {
	d := &s.Delivery
	switch {
	case d.ClaimedUntil.After(s.Now) || !s.SentAt.IsZero():
		return s.inProgress()
	case s.EndpointDeleted:
		return s.open()
	case s.stopped():
		return obstacles{s}.whileStopped()
	case d.Reason == webhook.ReasonInternal:
		return s.fault("keeps the delivery waiting")
	case s.ReleaseStopped:
		return obstacles{s}.whileReleaseStopped()
	case d.Reason == webhook.ReasonBacklog:
		return obstacles{s}.queued()
	case s.Endpoint != nil:
		return obstacles{s}.releasing()
	}
	// What the endpoint's state is now is not known.
	e := Explanation{Code: HeldPaused, Until: d.Expires(), Next: obstacles{s}.nothingUntilResumed(), Remedy: "Resume the endpoint.", Actions: s.resume()}
	state := "paused"
	if d.Reason == webhook.ReasonDisabled {
		e.Code, state = HeldDisabled, "disabled"
	}
	e.Summary = sentence("waits because the endpoint is "+state, obstacles{s}.sentWhenResumed())
	return e
}

// stateReason is why the endpoint is not active: " by hand", or a reason in brackets.
func stateReason(e *webhook.Endpoint) string {
	if e.StateReason == "" {
		return ""
	}
	reason := foreign(e.StateReason)
	if rest, repeats := strings.CutPrefix(reason, e.State.String()+" "); repeats {
		return " " + rest
	}
	return " (" + reason + ")"
}
