package retry

import "time"

// Action is what happens to a delivery after an attempt.
type Action string

// The actions.
const (
	Deliver Action = "deliver" // the delivery is complete
	Wait    Action = "wait"    // try again at Verdict.At
	GiveUp  Action = "give_up" // dead-letter now, for Verdict.Reason
)

// DelaySource is what determined the delay before an attempt; "" when there is no delay.
type DelaySource string

// The sources of a delay.
const (
	SourceBackoff    DelaySource = "backoff"     // the policy, with jitter
	SourceRetryAfter DelaySource = "retry_after" // the receiver requested a longer delay than the policy's; at most MaxRetryAfter
	SourceDeadline   DelaySource = "deadline"    // moved forward to be the last attempt before the give-up time
	SourceAmbiguous  DelaySource = "ambiguous"   // Policy.AmbiguousDelays has a longer delay than the backoff
)

// The last attempt before the give-up time starts this long before it: exactly shortestLead if it is the backoff
// that would have been too long. If it is the Retry-After, the lead is drawn from shortestLead to longestLead, so that the
// deliveries that a receiver has turned away together do not come back in the same second.
const (
	shortestLead = time.Second
	longestLead  = 5 * time.Minute
)

// Progress is the state of a delivery's run after an attempt was classified.
type Progress struct {
	Attempts  int           // attempts of this run, including this one
	Ambiguous int           // consecutive ambiguous outcomes, including this one
	Previous  time.Duration // the delay before this attempt; 0 for the first
	Outcome   Outcome       // of this attempt
	Now       time.Time
	GiveUpAt  time.Time // no attempt starts later; zero means LongestGiveUp from Now
	Random    float64   // in [0,1), from Random
}

// Verdict is the policy's decision about what follows an attempt.
type Verdict struct {
	Action Action

	// Set if Action is Wait: the next attempt starts at At, which is Delay after Progress.Now.
	Delay   time.Duration
	At      time.Time
	Source  DelaySource
	Nominal time.Duration // the policy's delay before jitter and before the doubling for a 429

	// Set if Action is GiveUp.
	Reason Reason
}

// Next decides what follows an attempt. The rules apply in this order:
//
//   - A delivered or permanent outcome ends the delivery with the attempt's reason.
//   - The delivery is given up when there are more consecutive ambiguous outcomes than
//     AmbiguousDelays, or when MaxAttempts is reached. If both hold, the reason is the
//     former, which is more specific.
//   - The delay is the longest of: the backoff with jitter, doubled after a 429 without
//     Retry-After; the delay of AmbiguousDelays after an ambiguous outcome; and Retry-After, of
//     which MaxRetryAfter counts at most.
//   - A backoff beyond the give-up time ends the delivery now, unless the attempt can start one
//     second before the give-up time with at least half of its backoff kept.
//   - A Retry-After beyond the give-up time leaves one last attempt, shortly before the give-up
//     time (lead). If the answer comes that late itself, its attempt was the last one, and the
//     delivery ends now, whatever the backoff.
//
// An Outcome without a decision counts as Retry. A MaxAttempts of 0 or below, which no valid
// policy has, means no limit.
func (p Policy) Next(progress Progress) Verdict {
	p = p.orDefault()
	outcome := progress.Outcome

	switch outcome.Decision {
	case Delivered:
		return Verdict{Action: Deliver}
	case Permanent:
		return giveUp(outcome.Reason)
	case Retry:
	default:
	}

	switch {
	case outcome.Ambiguous && len(p.AmbiguousDelays) == 0:
		return giveUp(outcome.Reason)
	case outcome.Ambiguous && progress.Ambiguous > len(p.AmbiguousDelays):
		return giveUp(ReasonAmbiguousLimit)
	case p.MaxAttempts > 0 && progress.Attempts >= p.MaxAttempts:
		return giveUp(ReasonMaxAttempts)
	}

	return p.wait(progress)
}

// wait computes the delay for Next.
func (p Policy) wait(progress Progress) Verdict {
	requested := min(max(progress.Outcome.RetryAfter, 0), max(p.MaxRetryAfter, 0))
	backoff := p.Delay(progress.Attempts, progress.Previous, progress.Random)
	if progress.Outcome.Status == 429 && requested == 0 {
		backoff *= 2 // at most 120 days: Delay is bounded by twice LongestDelay
	}
	nominal, own := p.Nominal(progress.Attempts), SourceBackoff
	if progress.Outcome.Ambiguous {
		low, high := p.ambiguousWindow(progress.Ambiguous)
		// The same random number for both, so that the longer one has the distribution of its own window.
		if delay := draw(low, high, progress.Random); delay > backoff {
			backoff, own = delay, SourceAmbiguous
		}
		nominal = max(nominal, p.ambiguousNominal(progress.Ambiguous))
	}

	remaining := LongestGiveUp
	if !progress.GiveUpAt.IsZero() {
		remaining = progress.GiveUpAt.Sub(progress.Now)
	}
	delay, source, reason := p.fitBeforeGiveUp(backoff, requested, remaining, progress.Random)
	if reason != "" {
		return giveUp(reason)
	}
	if source == SourceBackoff {
		source = own
	}

	return Verdict{
		Action:  Wait,
		Delay:   delay,
		At:      progress.Now.Add(delay),
		Source:  source,
		Nominal: nominal,
	}
}

// fitBeforeGiveUp fits an attempt into the time that remains until the give-up time. It returns the
// delay and its source, or the reason to give up.
func (p Policy) fitBeforeGiveUp(backoff, requested, remaining time.Duration, random float64) (time.Duration, DelaySource, Reason) {
	if requested > max(remaining, 0) && remaining <= p.longestLead() {
		return 0, "", ReasonRetryAfterPastGiveUp
	}
	if backoff > remaining {
		if remaining < shortestLead { // also where the subtraction would overflow
			return 0, "", ReasonGiveUpTime
		}
		last := remaining - shortestLead
		if keepsHalf := last >= backoff-last; !keepsHalf {
			return 0, "", ReasonGiveUpTime
		}
		if requested > last && requested <= remaining {
			return requested, SourceRetryAfter, ""
		}
		return last, SourceDeadline, ""
	}
	switch {
	case requested <= backoff:
		return backoff, SourceBackoff, ""
	case requested <= remaining:
		return requested, SourceRetryAfter, ""
	default:
		lead := draw(shortestLead, p.longestLead(), random)
		return max(backoff, remaining-lead), SourceDeadline, ""
	}
}

// longestLead is the longest time before the give-up time at which the last attempt starts: 5 min, but not
// more than a tenth of the run.
func (p Policy) longestLead() time.Duration {
	return max(shortestLead, min(longestLead, p.GiveUpAfter/10))
}

func giveUp(reason Reason) Verdict {
	return Verdict{Action: GiveUp, Reason: reason}
}
