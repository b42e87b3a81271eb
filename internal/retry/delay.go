package retry

import (
	"math"
	"time"
)

// Nominal returns the delay after the given attempt (counted from 1) before jitter,
// but not below MinDelay. For decorrelated jitter, which knows no delay before it, it
// is the middle of the window that the middles before it lead to.
//
// It is made of multiplications only, which every processor rounds alike, so that a
// workflow may be replayed on another one.
func (p Policy) Nominal(attempt int) time.Duration {
	p = p.bounded()
	if p.Jitter == JitterDecorrelated {
		return max(p.decorrelatedNominal(attempt), p.MinDelay)
	}

	return max(p.strategyDelay(attempt), p.MinDelay)
}

// Window returns the bounds of the delay after the given attempt: no delay is below
// earliest or above latest. previous is the delay before that attempt (0 before the
// first), which only decorrelated jitter looks at. A 429 doubles the delay beyond it.
func (p Policy) Window(attempt int, previous time.Duration) (earliest, latest time.Duration) {
	p = p.bounded()
	low, high := p.window(attempt, previous)
	if p.Jitter == JitterDecorrelated {
		high = max(min(high, p.Cap), p.MinDelay)
		low = min(low, high)
	}

	return low, high
}

// Delay returns the delay after the given attempt with jitter: u in [0,1) chooses
// from the window. Every number is accepted as u; what is outside counts as the
// nearest inside, NaN as 0.
func (p Policy) Delay(attempt int, previous time.Duration, u float64) time.Duration {
	p = p.bounded()
	low, high := p.window(attempt, previous)
	delay := draw(low, high, u)
	if p.Jitter == JitterDecorrelated {
		delay = max(min(delay, p.Cap), p.MinDelay)
	}

	return delay
}

// window returns the half-open interval that the jitter draws from, of a bounded p.
//
// MinDelay and Cap cut the interval short instead of being applied to the number
// drawn: so no crowd gathers at the bound, which is what jitter is there to prevent.
// Decorrelated jitter is the exception, being defined with a minimum outside.
func (p Policy) window(attempt int, previous time.Duration) (low, high time.Duration) {
	d := p.strategyDelay(attempt)

	switch p.Jitter {
	case JitterFull:
		low, high = 0, d
	case JitterEqual:
		low, high = d/2, d
	case JitterDecorrelated:
		low, high = p.Base, 3*min(max(previous, p.Base), p.Cap)
	case JitterProportional:
		spread := time.Duration(p.JitterRatio * float64(d))
		low, high = d-spread, d+spread
		if p.usesCap() {
			high = min(high, p.Cap)
		}
	case JitterNone:
		low, high = d, d
	default:
		low, high = d, d
	}

	low = max(low, p.MinDelay)

	return low, max(low, high)
}

// ambiguousNominal returns the least delay after the n-th ambiguous outcome in a row
// (counted from 1) before it is spread, 0 when there is none.
func (p Policy) ambiguousNominal(n int) time.Duration {
	n = max(n, 1)
	if n > len(p.AmbiguousDelays) {
		return 0
	}

	return clampDelay(p.AmbiguousDelays[n-1])
}

// ambiguousWindow returns the half-open interval that this delay is drawn from.
func (p Policy) ambiguousWindow(n int) (low, high time.Duration) {
	d := p.ambiguousNominal(n)

	return d - d/10, d + d/10
}

// strategyDelay returns the delay of the strategy alone, of a bounded p.
func (p Policy) strategyDelay(attempt int) time.Duration {
	attempt = max(attempt, 1)

	switch p.Strategy {
	case StrategyFixed:
		return p.Base
	case StrategyLinear:
		if p.Base > 0 && int64(attempt) > int64(p.Cap/p.Base) {
			return p.Cap
		}
		return min(time.Duration(attempt)*p.Base, p.Cap)
	case StrategyExponential:
		return grow(p.Base, p.Factor, attempt-1, p.Cap)
	case StrategySchedule:
		if len(p.Schedule) == 0 {
			return p.Base
		}
		return clampDelay(p.Schedule[min(attempt, len(p.Schedule))-1])
	default:
		return p.Base
	}
}

// grow returns base × factor^n, at most limit. The power is taken by squaring, so that
// attempt 10,000 costs 14 steps; it may become infinite, which is above any limit.
func grow(base time.Duration, factor float64, n int, limit time.Duration) time.Duration {
	if base <= 0 {
		return 0
	}
	power := 1.0
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			power *= factor
		}
		factor *= factor
	}
	delay := float64(base) * power
	if delay >= float64(limit) {
		return limit
	}

	return time.Duration(delay)
}

// decorrelatedNominal follows the middle of U[Base, 3 × previous). Each step adds at
// least half, so it is at the cap after some fifty.
func (p Policy) decorrelatedNominal(attempt int) time.Duration {
	delay := min(p.Base, p.Cap)
	for range attempt {
		next := min((p.Base+3*delay)/2, p.Cap)
		if next == delay {
			break
		}
		delay = next
	}

	return delay
}

// draw returns a number from [low, high), or low if that is empty.
func draw(low, high time.Duration, u float64) time.Duration {
	span := high - low
	if span <= 0 {
		return low
	}
	if math.IsNaN(u) || u < 0 {
		u = 0
	}
	if u >= 1 {
		return high - 1
	}

	return low + min(time.Duration(u*float64(span)), span-1)
}
