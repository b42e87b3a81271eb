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

// Preview lists the attempts that a policy leads to when none succeeds, as many as
// MaxAttempts and GiveUpAfter allow.
func Preview(policy Policy) []PreviewAttempt {
	policy = policy.orDefault()
	attempts := []PreviewAttempt{{Number: 1, Expected: true}}
	var previous, previous429 time.Duration // the longest delays so far, for decorrelated jitter

	for number := 2; number <= min(policy.MaxAttempts, MostAttempts); number++ {
		last := attempts[len(attempts)-1]
		low, high := policy.Window(number-1, previous)
		_, high429 := policy.Window(number-1, previous429)

		earliest, possible := policy.follow(last.Earliest, low)
		if !possible {
			break
		}
		if high > low {
			// Another draw may be too long and so be moved to just before the give-up
			// time, which can be sooner than this one by a part of a second.
			earliest = min(earliest, max(last.Earliest, policy.GiveUpAfter-lastAttemptLead))
		}
		nominal, expected := policy.follow(last.Nominal, policy.Nominal(number-1))
		if !expected || !last.Expected {
			nominal, expected = policy.GiveUpAfter, false
		}

		attempts = append(attempts, PreviewAttempt{
			Number:         number,
			Earliest:       earliest,
			Nominal:        nominal,
			Latest:         min(last.Latest+high, policy.GiveUpAfter),
			LatestAfter429: min(last.LatestAfter429+2*high429, policy.GiveUpAfter),
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
