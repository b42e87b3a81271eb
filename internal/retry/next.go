package retry

import "time"

// Action is what happens to a delivery after an attempt.
type Action uint8

// The actions.
const (
	Deliver Action = iota + 1 // it is delivered: done
	Wait                      // try again at Verdict.At
	GiveUp                    // dead-letter now, for Verdict.Reason
)

// String returns "deliver", "wait" or "give_up", and "" for the zero value.
func (a Action) String() string {
	switch a {
	case Deliver:
		return "deliver"
	case Wait:
		return "wait"
	case GiveUp:
		return "give_up"
	default:
		return ""
	}
}

// DelaySource says what settled the delay before an attempt. The zero value means
// that there is no delay.
type DelaySource uint8

// The sources of a delay.
const (
	SourceBackoff    DelaySource = iota + 1 // the policy, with jitter
	SourceRetryAfter                        // the receiver asked for longer than the policy
	SourceDeadline                          // moved forward to be the last before the give-up time
	SourceAmbiguous                         // Policy.AmbiguousDelays has a longer one than the backoff
)

// String returns "backoff", "retry_after", "deadline" or "ambiguous", and "" for the
// zero value.
func (s DelaySource) String() string {
	switch s {
	case SourceBackoff:
		return "backoff"
	case SourceRetryAfter:
		return "retry_after"
	case SourceDeadline:
		return "deadline"
	case SourceAmbiguous:
		return "ambiguous"
	default:
		return ""
	}
}

// MarshalText returns String as bytes.
func (s DelaySource) MarshalText() ([]byte, error) {
	return []byte(s.String()), nil
}

// UnmarshalText is the inverse of MarshalText and refuses any other text.
func (s *DelaySource) UnmarshalText(text []byte) error {
	return parseEnum(s, text, "delay source", 0, SourceBackoff, SourceRetryAfter, SourceDeadline, SourceAmbiguous)
}

// lastAttemptLead is how long before the give-up time a last attempt is placed.
const lastAttemptLead = time.Second

// Progress is where a delivery's run stands when an attempt has been judged.
type Progress struct {
	Attempts  int           // made in this run, the one just judged included
	Ambiguous int           // consecutive ambiguous outcomes, this one included
	Previous  time.Duration // the delay before the attempt just judged; 0 before the first
	Outcome   Outcome       // of the attempt just judged
	Now       time.Time
	GiveUpAt  time.Time // no attempt starts later; zero means LongestGiveUp from Now
	Random    float64   // in [0,1), from Random
}

// Verdict is what the policy makes of it.
type Verdict struct {
	Action Action

	// With Wait: the next attempt starts at At, Delay from Progress.Now.
	Delay   time.Duration
	At      time.Time
	Source  DelaySource
	Nominal time.Duration // the policy's delay before the jitter and the doubling for a 429

	// With GiveUp: why.
	Reason Reason
}

// Next decides what follows an attempt. In this order:
//
//   - delivered, or permanent with the attempt's reason;
//   - given up when the ambiguous outcomes in a row are more than the policy has delays
//     for, or the attempts as many as it allows (the former also when both are: it says
//     more);
//   - else the delay is the backoff with jitter, twice that after a 429 without
//     Retry-After, at least the one of AmbiguousDelays after an ambiguous outcome, or the
//     Retry-After if that is longer;
//   - a Retry-After past the give-up time ends the delivery now, as does a backoff
//     past it, unless the attempt can be moved to one second before the give-up time
//     with at least half of its backoff kept and no Retry-After broken.
//
// An Outcome without a decision counts as Retry. A MaxAttempts of 0 or below, which no
// valid policy has, counts as none.
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

// wait computes the delay of Next.
func (p Policy) wait(progress Progress) Verdict {
	asked := max(progress.Outcome.RetryAfter, 0)
	backoff := p.Delay(progress.Attempts, progress.Previous, progress.Random)
	if progress.Outcome.Status == 429 && asked == 0 {
		backoff *= 2 // at most 120 days: Delay is bounded by twice LongestDelay
	}
	nominal, own := p.Nominal(progress.Attempts), SourceBackoff
	if progress.Outcome.Ambiguous {
		low, high := p.ambiguousWindow(progress.Ambiguous)
		// The same number for both: so the longer of them is spread as evenly as each.
		if delay := draw(low, high, progress.Random); delay > backoff {
			backoff, own = delay, SourceAmbiguous
		}
		nominal = max(nominal, p.ambiguousNominal(progress.Ambiguous))
	}

	remaining := LongestGiveUp
	if !progress.GiveUpAt.IsZero() {
		remaining = progress.GiveUpAt.Sub(progress.Now)
	}
	delay, source, reason := place(backoff, asked, remaining)
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

// place fits an attempt into what remains until the give-up time. It returns either
// the delay and its source, or the reason to give up.
func place(backoff, asked, remaining time.Duration) (time.Duration, DelaySource, Reason) {
	if asked > 0 && asked > remaining {
		return 0, 0, ReasonRetryAfterPastGiveUp
	}
	if delay := max(backoff, asked); delay <= remaining {
		if asked > backoff {
			return delay, SourceRetryAfter, ""
		}
		return delay, SourceBackoff, ""
	}
	// From here on it is the backoff that is too long.
	if remaining < lastAttemptLead {
		return 0, 0, ReasonGiveUpTime
	}
	last := remaining - lastAttemptLead
	keepsHalf := last >= backoff-last
	if !keepsHalf || last < asked {
		return 0, 0, ReasonGiveUpTime
	}

	return last, SourceDeadline, ""
}

func giveUp(reason Reason) Verdict {
	return Verdict{Action: GiveUp, Reason: reason}
}
