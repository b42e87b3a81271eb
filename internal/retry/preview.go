package retry

import "time"

// PreviewAttempt is when an attempt of a run may start. Times are relative to the first
// attempt, which is assumed to start with the run; the receiver is assumed to answer
// immediately and without Retry-After.
type PreviewAttempt struct {
	Number int

	Earliest time.Duration // no attempt of this number starts sooner
	Nominal  time.Duration // without jitter; GiveUpAfter when not Expected
	Latest   time.Duration // no attempt of this number starts later

	// LatestAfter429 is Latest if every answer is a 429 without Retry-After, which doubles
	// each delay.
	LatestAfter429 time.Duration

	// LatestAfterRetryAfter is Latest if every answer has a Retry-After of MaxRetryAfter or more.
	LatestAfterRetryAfter time.Duration

	// Expected is false for an attempt that only takes place if the jitter makes the
	// preceding delays shorter than nominal; otherwise the give-up time is reached first.
	Expected bool
}

// Preview lists the attempts that the policy makes if none succeeds and no outcome is
// ambiguous, up to MaxAttempts and GiveUpAfter.
func Preview(policy Policy) []PreviewAttempt {
	policy = policy.orDefault()
	return policy.preview(policy.MaxAttempts, policy.Window, policy.Nominal)
}

// PreviewAmbiguous is Preview for a receiver whose outcomes are all ambiguous:
// AmbiguousDelays limits the attempts too, and none of the answers is a 429.
func PreviewAmbiguous(policy Policy) []PreviewAttempt {
	policy = policy.orDefault()
	window := func(attempt int, previous time.Duration) (time.Duration, time.Duration) {
		low, high := policy.Window(attempt, previous)
		least, most := policy.ambiguousWindow(attempt)
		return max(low, least), max(high, most)
	}
	nominal := func(attempt int) time.Duration { return max(policy.Nominal(attempt), policy.ambiguousNominal(attempt)) }
	attempts := policy.preview(min(policy.MaxAttempts, len(policy.AmbiguousDelays)+1), window, nominal)
	for i := range attempts {
		attempts[i].LatestAfter429 = attempts[i].Latest
	}

	return attempts
}

// preview lists the attempts, up to the given number, with the bounds and the middle of the
// delay after each.
func (p Policy) preview(
	most int, window func(attempt int, previous time.Duration) (low, high time.Duration), middle func(attempt int) time.Duration,
) []PreviewAttempt {
	attempts := []PreviewAttempt{{Number: 1, Expected: true}}
	var previous, previous429, previousAfter time.Duration // the longest delays so far, for decorrelated jitter

	for number := 2; number <= min(most, MostAttempts); number++ {
		last := attempts[len(attempts)-1]
		low, high := window(number-1, previous)
		_, high429 := window(number-1, previous429)
		_, highAfter := window(number-1, previousAfter)
		highAfter = max(highAfter, p.MaxRetryAfter)

		earliest, possible := p.nextStart(last.Earliest, low)
		if !possible {
			break
		}
		if high > low {
			// Another random number may give a longer delay, which Next then moves to just
			// before the give-up time. That can be a fraction of a second earlier than this one.
			earliest = min(earliest, max(last.Earliest, p.GiveUpAfter-shortestLead))
		}
		nominal, expected := p.nextStart(last.Nominal, middle(number-1))
		if !expected || !last.Expected {
			nominal, expected = p.GiveUpAfter, false
		}

		attempts = append(attempts, PreviewAttempt{
			Number:                number,
			Earliest:              earliest,
			Nominal:               nominal,
			Latest:                min(last.Latest+high, p.GiveUpAfter),
			LatestAfterRetryAfter: min(last.LatestAfterRetryAfter+highAfter, p.GiveUpAfter),
			LatestAfter429:        min(last.LatestAfter429+2*high429, p.GiveUpAfter),
			Expected:              expected,
		})
		previous, previous429, previousAfter = high, 2*high429, highAfter
	}

	return attempts
}

// nextStart returns when the next attempt starts after one that started at begin, by the rule of
// Next; false if the delivery is given up.
func (p Policy) nextStart(begin, delay time.Duration) (time.Duration, bool) {
	delay, _, reason := p.fitBeforeGiveUp(delay, 0, p.GiveUpAfter-begin, 0)

	return begin + delay, reason == ""
}
