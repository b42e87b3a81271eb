package retry

import (
	"math"
	"time"
)

// Nominal returns the delay after the given attempt (counted from 1) without jitter, but at
// least MinDelay. For decorrelated jitter it is the middle of the window, computed from the
// middles of the windows before it.
//
// It uses multiplications only, which every processor rounds alike, so that a workflow can be
// replayed on another machine.
func (p Policy) Nominal(attempt int) time.Duration {
	p = p.bounded()
	if p.Jitter == JitterDecorrelated {
		return max(p.decorrelatedNominal(attempt), p.MinDelay)
	}

	return max(p.strategyDelay(attempt), p.MinDelay)
}

// Window returns the bounds of the delay after the given attempt. previous is the delay
// before that attempt (0 before the first); only decorrelated jitter uses it. A 429 can
// double the delay beyond latest.
func (p Policy) Window(attempt int, previous time.Duration) (earliest, latest time.Duration) {
	p = p.bounded()
	low, high := p.window(attempt, previous)
	if p.Jitter == JitterDecorrelated {
		high = max(min(high, p.Cap), p.MinDelay)
		low = min(low, high)
	}

	return low, high
}

// Delay returns the delay after the given attempt with jitter: u in [0,1) selects a point of
// the window. Values of u outside are clamped, NaN is 0.
func (p Policy) Delay(attempt int, previous time.Duration, u float64) time.Duration {
	p = p.bounded()
	low, high := p.window(attempt, previous)
	delay := draw(low, high, u)
	if p.Jitter == JitterDecorrelated {
		delay = max(min(delay, p.Cap), p.MinDelay)
	}

	return delay
}

// window returns the half-open interval from which the jitter draws. p must be bounded.
//
// MinDelay and Cap limit the interval instead of the drawn number, so that delays do not
// accumulate at the bound, which would defeat the jitter. Decorrelated jitter is the
// exception: its definition applies the cap to the drawn number.
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

// ambiguousNominal returns the minimum delay after the n-th consecutive ambiguous outcome
// (counted from 1) without jitter, 0 if there is none.
func (p Policy) ambiguousNominal(n int) time.Duration {
	n = max(n, 1)
	if n > len(p.AmbiguousDelays) {
		return 0
	}

	return clampDelay(p.AmbiguousDelays[n-1])
}

// ambiguousWindow returns the half-open interval from which this delay is drawn.
func (p Policy) ambiguousWindow(n int) (low, high time.Duration) {
	d := p.ambiguousNominal(n)

	return d - d/10, d + d/10
}

// strategyDelay returns the delay of the strategy alone. p must be bounded.
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

// grow returns base × factor^n, at most limit. It computes the power by squaring, so that
// attempt 10,000 takes 14 steps. The power may be infinite, which is above any limit.
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

// decorrelatedNominal follows the middle of U[Base, 3 × previous). Each step adds at least
// half, so the cap is reached after about fifty steps.
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

// draw returns a number from [low, high), or low if the interval is empty.
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
