package retry

import "time"

// PreviewAttempt says when an attempt of a run may start, counted from the first one,
// which is taken to be at the run's very beginning, where the give-up time is counted
// from; with receivers that answer at once and ask for no delay of their own.
type PreviewAttempt struct {
	Number int

	Earliest time.Duration // no attempt of this number starts sooner
	Nominal  time.Duration // without jitter; GiveUpAfter when not Expected
	Latest   time.Duration // no attempt of this number starts later

	// LatestAfter429 is Latest when every answer was a 429 without Retry-After, each
	// of which doubles the delay.
	LatestAfter429 time.Duration

	// Expected is false for an attempt that only takes place when the jitter has made
	// the delays before it shorter than nominal: else the give-up time comes first.
	Expected bool
}

// Preview lists the attempts that a policy leads to when none succeeds and no outcome is
// ambiguous, as many as MaxAttempts and GiveUpAfter allow.
func Preview(policy Policy) []PreviewAttempt {
	policy = policy.orDefault()
	return policy.preview(policy.MaxAttempts, policy.Window, policy.Nominal)
}

// PreviewAmbiguous is Preview for a receiver all of whose outcomes are ambiguous:
// AmbiguousDelays bounds the attempts too, and none of them is a 429.
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

// preview lists at most so many attempts, with the bounds and the middle of the delay
// after each.
func (p Policy) preview(
	most int, window func(attempt int, previous time.Duration) (low, high time.Duration), middle func(attempt int) time.Duration,
) []PreviewAttempt {
	attempts := []PreviewAttempt{{Number: 1, Expected: true}}
	var previous, previous429 time.Duration // the longest delays so far, for decorrelated jitter

	for number := 2; number <= min(most, MostAttempts); number++ {
		last := attempts[len(attempts)-1]
		low, high := window(number-1, previous)
		_, high429 := window(number-1, previous429)

		earliest, possible := p.follow(last.Earliest, low)
		if !possible {
			break
		}
		if high > low {
			// Another draw may be too long and so be moved to just before the give-up
			// time, which can be sooner than this one by a part of a second.
			earliest = min(earliest, max(last.Earliest, p.GiveUpAfter-lastAttemptLead))
		}
		nominal, expected := p.follow(last.Nominal, middle(number-1))
		if !expected || !last.Expected {
			nominal, expected = p.GiveUpAfter, false
		}

		attempts = append(attempts, PreviewAttempt{
			Number:         number,
			Earliest:       earliest,
			Nominal:        nominal,
			Latest:         min(last.Latest+high, p.GiveUpAfter),
			LatestAfter429: min(last.LatestAfter429+2*high429, p.GiveUpAfter),
			Expected:       expected,
		})
		previous, previous429 = high, 2*high429
	}

	return attempts
}

// follow returns when the next attempt starts after one that started at begin, by the
// same rule as Next; false if it is given up instead.
func (p Policy) follow(begin, delay time.Duration) (time.Duration, bool) {
	delay, _, reason := place(delay, 0, p.GiveUpAfter-begin)

	return begin + delay, reason == ""
}
