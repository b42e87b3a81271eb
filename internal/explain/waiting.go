package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// startsWithin is how long the first attempt of a delivery normally takes to begin at the most. The
	// outbox is read again after 8 s.
	startsWithin = 30 * time.Second
	checkWorker  = "Check that a worker runs and reaches Temporal: /readyz of its admin listener says so."
)

// stopped reports whether the endpoint is paused or disabled: what is due is held.
func (s *Situation) stopped() bool {
	return s.Endpoint != nil && s.Endpoint.State != webhook.EndpointActive
}

// becauseStopped is why nothing is sent: "because the endpoint is paused by hand".
func (s *Situation) becauseStopped() string {
	return "because the endpoint is " + s.Endpoint.State.String() + s.stateReason()
}

func (s *Situation) resume() string {
	words := "Resume the endpoint: everpost endpoints resume " + s.Delivery.EndpointID.String() + "."
	if s.stopped() && s.Endpoint.State == webhook.EndpointDisabled {
		return "Fix the receiver. " + words
	}
	return words
}

// number is the number of the next attempt, or of the one under way.
func (s *Situation) number() int { return s.Delivery.Attempts + 1 }

// open explains a pending or retrying delivery.
func (s *Situation) open() Explanation {
	e := s.waiting()
	if s.stopped() && e.Code != InProgress && e.Code != EngineAway {
		e.Next, e.Remedy = sentence("it is held when it is due, and sent when the endpoint is resumed", s.until("given up at ")), s.resume()
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
	case d.Deferred():
		return s.deferred()
	case d.State == webhook.StateRetrying && d.LastOutcome != nil:
		return s.retrying()
	case due:
		then := fmt.Sprintf("attempt %d is made then", s.number())
		if s.stopped() {
			then = "it is held then " + s.becauseStopped()
		}
		return Explanation{
			Code: Scheduled, Summary: sentence("scheduled for "+when(d.DueAt, now), s.replayed(), then), Until: d.DueAt,
			Cause:  "The event has a later deliver_at, or the delivery was rescheduled.",
			Next:   sentence(fmt.Sprintf("attempt %d is made at %s", s.number(), at(d.DueAt, now))),
			Remedy: sentence("to send it now: everpost deliveries retry " + d.DeliveryID.String()),
		}
	}
	return s.starting()
}

func (s *Situation) starting() Explanation {
	soon := fmt.Sprintf("attempt %d is about to be made, or under way", s.number())
	if s.stopped() {
		soon = "it is about to be held " + s.becauseStopped()
	}
	e := Explanation{
		Code: Starting, Until: s.Delivery.GiveUpAt, Next: sentence(fmt.Sprintf("attempt %d is made as soon as a worker takes it", s.number())),
		Summary: sentence("accepted at "+when(s.Delivery.CreatedAt, s.Now), s.replayed(), soon),
	}
	if s.Now.Sub(s.began()) > startsWithin {
		e.Cause, e.Remedy = "The delivery is stored, and no attempt of it is. It normally begins within milliseconds.", checkWorker
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
	if by := s.Delivery.GiveUpAt.Add(-policy.GiveUpAfter); by.After(began) {
		return by
	}
	return began
}

// replayed says that the delivery is sent again.
func (s *Situation) replayed() string {
	if s.Delivery.Run > 1 {
		return fmt.Sprintf("replayed, run %d", s.Delivery.Run)
	}
	return ""
}

func (s *Situation) engineAway() Explanation {
	return Explanation{
		Code: EngineAway,
		Summary: sentence(fmt.Sprintf("attempt %d waits because Temporal has been unreachable since %s", s.number(), when(s.EngineAway, s.Now)),
			"it is made when Temporal is back"),
		Cause:  "Temporal drives the deliveries, and does not answer or cannot write. The delivery is safely stored in PostgreSQL.",
		Next:   sentence("it continues when Temporal is back", s.until("tried until ")),
		Remedy: "Check the Temporal service and its database.", Until: s.Delivery.GiveUpAt,
	}
}

// until is the give-up time after a few words.
func (s *Situation) until(words string) string {
	if s.Delivery.GiveUpAt.IsZero() {
		return ""
	}
	return words + at(s.Delivery.GiveUpAt, s.Now)
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
		return fmt.Sprintf("attempt %d is due at %s, and held then %s", s.number(), when(due, s.Now), s.becauseStopped())
	case s.stopped():
		return fmt.Sprintf("attempt %d is held %s", s.number(), s.becauseStopped())
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
	e := Explanation{Code: f.code, Cause: f.cause, Remedy: f.remedy, Until: d.DueAt}
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
			e.Cause += " That may be permanent or be fixed soon, so it is retried less often and with longer delays."
		}
	}
	e.Summary, e.Next = sentence(did, s.follows(), limits), sentence(s.follows(), limits)
	if s.Now.Sub(d.DueAt) > time.Minute && !d.DueAt.IsZero() {
		e.Remedy = checkWorker
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

// deferred explains a delivery that admission has given a later time.
func (s *Situation) deferred() Explanation {
	d, now := &s.Delivery, s.Now
	e := Explanation{Until: d.DueAt, Next: sentence(s.follows(), s.until("tried until "))}
	receiver := receiverOf(s.Endpoint)
	var why string
	switch d.Reason {
	case webhook.ReasonInFlight:
		e.Code, why = WaitsInFlight, "waits until "+receiver+" has answered earlier requests"
		if s.Endpoint != nil {
			e.Cause = sentence(s.slots())
		}
		e.Remedy = "If the receiver can take more at a time, raise the endpoint's max_in_flight."
	case webhook.ReasonHost:
		e.Code, why = WaitsHost, "waits because "+receiver+" is at the limit of requests at a time that all endpoints of its host share"
		e.Remedy = "An operator can raise EVERPOST_MAX_IN_FLIGHT_PER_HOST."
	case webhook.ReasonCircuitOpen:
		e.Code, why = WaitsCircuit, "waits because the circuit of the endpoint is open"
		if o := s.Observed; o != nil && o.Circuit != webhook.CircuitClosed {
			why = "waits because the circuit of the endpoint has been open" + since(o, now) + reasonOf(o)
			e.Next = sentence(probe(o, now), s.follows(), s.until("tried until "))
		}
		e.Cause = "Most requests to the endpoint failed, so it gets none until a probe succeeds."
		e.Remedy = "Fix the receiver. To try it at once: everpost endpoints close-circuit " + d.EndpointID.String() + "."
		if o := s.Observed; o != nil && o.Circuit == webhook.CircuitClosed {
			why = "was deferred while the circuit of the endpoint was open, which has closed since"
			e.Cause = "Most requests to the endpoint failed for a while."
			e.Remedy = "To send it now: everpost deliveries retry " + d.DeliveryID.String() + "."
		}
	case webhook.ReasonRetryAfter, webhook.ReasonRateLimitHint:
		e.Code, why = WaitsReceiver, "waits because "+receiver+" asked for a pause"
		if o := s.Observed; o != nil && o.BlockedUntil.After(now) {
			why += " until " + at(o.BlockedUntil, now)
		}
		e.Cause = "A response had Retry-After with 429, or said that no request is left of the receiver's rate limit; it holds for the whole endpoint."
	case webhook.ReasonCapacity:
		e.Code, why = WaitsCapacity, "waits because requests to slow receivers already use their half of the worker's capacity"
		e.Remedy = "Add workers, or have the slow receivers answer faster."
	case webhook.ReasonNoOwner:
		e.Code, why = WaitsOwner, "waits because the worker that enforces the endpoint's limits did not answer in time; another takes over within seconds"
		e.Remedy = "Nothing, unless it lasts: then see the logs of the workers for 'leases' and 'process'."
	default:
		e.Code, why = WaitsRate, "waits for admission"
		if s.Endpoint != nil {
			why += " at the endpoint's rate of " + PerSecond(s.Endpoint.RateLimit)
		}
		if o := s.Observed; o != nil && o.Recovering {
			why = "waits for admission while the rate rises again after an outage: " + PerSecond(o.Rate) + " now"
		}
		e.Remedy = "If the receiver can take more, raise the endpoint's rate_limit_per_second."
	}
	e.Summary = sentence(why, s.follows(), s.until("tried until "))
	e.Cause = joined(joined(e.Cause, s.ahead()), s.unanswered())
	return e
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
	return Explanation{
		Code: InternalFault, Summary: sentence("a fault of Everpost, not of the receiver, "+does+": "+text, s.until("tried again until ")),
		Cause: sentence(text) + " No attempt is counted, and nothing is recorded against the endpoint.",
		Next:  "It continues when the fault has ended.", Remedy: "An operator finds the cause in the worker's log.", Until: s.Delivery.GiveUpAt,
	}
}

// held explains a held delivery.
func (s *Situation) held() Explanation {
	d := &s.Delivery
	if d.ClaimedUntil.After(s.Now) || !s.SentAt.IsZero() {
		return s.inProgress()
	}
	e := Explanation{Until: d.GiveUpAt, Cause: s.ahead()}
	giveUp := s.until(", or given up at ")
	switch {
	case s.EndpointDeleted:
		return s.open()
	case s.stopped():
		e.Code = HeldPaused
		if s.Endpoint.State == webhook.EndpointDisabled {
			e.Code = HeldDisabled
		}
		e.Summary = sentence("held "+s.becauseStopped(), "sent when it is resumed"+giveUp)
		e.Next, e.Remedy = sentence("nothing is sent until the endpoint is resumed", s.until("it is given up at ")), s.resume()
	case d.Reason == webhook.ReasonInternal:
		return s.fault("holds the delivery")
	case !s.PausedReplay.IsZero():
		e.Code, e.Summary = Releasing, sentence("held: the replay that releases it is paused", "sent when the replay is resumed"+giveUp)
		e.Next = sentence("nothing is sent until the replay is resumed or cancelled", s.until("it is given up at "))
		replay := s.PausedReplay.String()
		e.Remedy = "Look at the replay: everpost replays get " + replay + ". To continue: everpost replays resume " + replay + "."
		e.Cause = joined("A release of held deliveries pauses when too many of their attempts fail, or on request.", e.Cause)
	case d.Reason == webhook.ReasonBacklog:
		e.Code, e.Summary = HeldBacklog,
			sentence("held because more deliveries wait for the endpoint than it can take soon", "released oldest first"+giveUp)
		e.Next = sentence("it is released when those before it are sent" + giveUp)
		e.Remedy = "If the receiver can take more, raise max_in_flight or rate_limit_per_second."
		e.Cause = joined(joined("The endpoint gets more events than it takes.", e.Cause), s.unanswered())
	case s.Endpoint != nil:
		e.Code, e.Summary = Releasing,
			sentence("the endpoint is active again and this delivery is being released", "held deliveries go oldest first"+s.until(", tried until "))
		e.Next = sentence(fmt.Sprintf("attempt %d is made when those before it are released", s.number()))
	default: // what the endpoint's state is now is not known
		state := "paused"
		if e.Code = HeldPaused; d.Reason == webhook.ReasonDisabled {
			e.Code, state = HeldDisabled, "disabled"
		}
		e.Summary = sentence("held because the endpoint is "+state, "sent when it is resumed"+giveUp)
		e.Next, e.Remedy = sentence("nothing is sent until the endpoint is resumed", s.until("it is given up at ")), s.resume()
	}
	return e
}

// stateReason is why the endpoint is not active: " by hand", or a reason in brackets.
func (s *Situation) stateReason() string {
	if s.Endpoint == nil || s.Endpoint.StateReason == "" {
		return ""
	}
	reason := foreign(s.Endpoint.StateReason)
	if rest, repeats := strings.CutPrefix(reason, s.Endpoint.State.String()+" "); repeats {
		return " " + rest
	}
	return " (" + reason + ")"
}
