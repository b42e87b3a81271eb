package retry

import (
	"math"
	"slices"
	"time"
)

// Bounds of a policy's settings. They exclude overflow in every computation.
const (
	ShortestDelay      = time.Millisecond    // of Base, Cap and each step; MinDelay may also be 0
	LongestDelay       = 30 * 24 * time.Hour // of Base, Cap, MinDelay and each step
	ShortestGiveUp     = time.Second
	LongestGiveUp      = 30 * 24 * time.Hour
	LongestRetryAfter  = 30 * 24 * time.Hour // of MaxRetryAfter
	LargestFactor      = 100                 // the smallest is 1
	MostAttempts       = 1000                // keeps a workflow's history far below Temporal's limits
	MostSteps          = 100                 // of Schedule
	MostStatuses       = 100                 // of RetryStatuses and of PermanentStatuses
	MostAmbiguous      = 20                  // of AmbiguousDelays
	DefaultJitterRatio = 0.2                 // for proportional jitter without a given ratio
)

// Strategy is how the delay grows from attempt to attempt.
type Strategy uint8

// The strategies. The formula is the delay after the n-th attempt, n counting from 1.
const (
	StrategyFixed       Strategy = iota + 1 // Base
	StrategyLinear                          // n × Base, at most Cap
	StrategyExponential                     // Base × Factor^(n−1), at most Cap
	StrategySchedule                        // the n-th entry of Schedule; the last one repeats
)

// String returns the name used in JSON, "" for no strategy.
func (s Strategy) String() string {
	switch s {
	case StrategyFixed:
		return "fixed"
	case StrategyLinear:
		return "linear"
	case StrategyExponential:
		return "exponential"
	case StrategySchedule:
		return "schedule"
	default:
		return ""
	}
}

// Jitter is how a delay is randomised, so that deliveries which failed together are not
// retried together. The names full, equal and decorrelated are those of Marc Brooker,
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
type Jitter uint8

// The jitters, for the strategy's delay d.
const (
	JitterNone         Jitter = iota // d
	JitterFull                       // U[0, d)
	JitterEqual                      // d/2 + U[0, d/2)
	JitterDecorrelated               // min(Cap, U[Base, 3 × the previous delay)); independent of d
	JitterProportional               // d × U[1−JitterRatio, 1+JitterRatio)
)

// String returns the name used in JSON, "" for an unknown value.
func (j Jitter) String() string {
	switch j {
	case JitterNone:
		return "none"
	case JitterFull:
		return "full"
	case JitterEqual:
		return "equal"
	case JitterDecorrelated:
		return "decorrelated"
	case JitterProportional:
		return "proportional"
	default:
		return ""
	}
}

// Policy determines when a delivery is tried again and when it is given up. Create one with
// Default, Lookup or ParsePolicy; check a literal with Validate. The zero Policy behaves as
// Default.
//
// A setting that the strategy or the jitter does not use is zero.
type Policy struct {
	// Preset is the name of the preset that the policy is based on; "" for a policy given in
	// full. It has no effect.
	Preset string

	Strategy Strategy
	Base     time.Duration   // fixed, linear, exponential
	Factor   float64         // exponential
	Cap      time.Duration   // linear, exponential, and fixed with decorrelated jitter
	Schedule []time.Duration // schedule

	Jitter      Jitter
	JitterRatio float64       // proportional; above 0, at most 1
	MinDelay    time.Duration // minimum of every delay; 0 for none

	MaxAttempts int           // attempts of one run, including the first
	GiveUpAfter time.Duration // from the start of a run to the latest start of an attempt

	// MaxRetryAfter is how much of a Retry-After counts: a maintenance page that names a week, or a
	// mistaken unit, does not decide alone when the next attempt is made. 0 ignores the field.
	MaxRetryAfter time.Duration

	// AmbiguousDelays are the minimum delays after the first, second, … consecutive
	// ambiguous outcome, each with a jitter of ±10 %. After the last one the delivery is
	// given up. If empty, an ambiguous outcome is permanent.
	AmbiguousDelays []time.Duration

	RetryStatuses     []int // statuses that are retried, overriding classifyStatus
	PermanentStatuses []int // statuses that end the delivery, overriding classifyStatus
}

// IsZero reports whether p is the zero Policy, which stands for Default.
func (p Policy) IsZero() bool {
	return p.Equal(Policy{})
}

// Equal reports whether all settings are equal, including the preset's name.
func (p Policy) Equal(q Policy) bool {
	return p.Preset == q.Preset && p.Strategy == q.Strategy && p.Base == q.Base && p.Factor == q.Factor &&
		p.Cap == q.Cap && slices.Equal(p.Schedule, q.Schedule) && p.Jitter == q.Jitter &&
		p.JitterRatio == q.JitterRatio && p.MinDelay == q.MinDelay && p.MaxAttempts == q.MaxAttempts &&
		slices.Equal(p.AmbiguousDelays, q.AmbiguousDelays) && p.GiveUpAfter == q.GiveUpAfter &&
		p.MaxRetryAfter == q.MaxRetryAfter &&
		slices.Equal(p.RetryStatuses, q.RetryStatuses) && slices.Equal(p.PermanentStatuses, q.PermanentStatuses)
}

// Clone returns a deep copy.
func (p Policy) Clone() Policy {
	p.Schedule = slices.Clone(p.Schedule)
	p.AmbiguousDelays = slices.Clone(p.AmbiguousDelays)
	p.RetryStatuses = slices.Clone(p.RetryStatuses)
	p.PermanentStatuses = slices.Clone(p.PermanentStatuses)

	return p
}

// orDefault returns Default for the zero policy.
func (p Policy) orDefault() Policy {
	if p.IsZero() {
		return Default()
	}

	return p
}

func (p Policy) usesBase() bool {
	return p.Strategy == StrategyFixed || p.Strategy == StrategyLinear || p.Strategy == StrategyExponential
}

func (p Policy) usesCap() bool {
	return p.Strategy == StrategyLinear || p.Strategy == StrategyExponential ||
		p.Strategy == StrategyFixed && p.Jitter == JitterDecorrelated
}

func strategies() []Strategy {
	return []Strategy{StrategyFixed, StrategyLinear, StrategyExponential, StrategySchedule}
}

func jitters() []Jitter {
	return []Jitter{JitterNone, JitterFull, JitterEqual, JitterDecorrelated, JitterProportional}
}

// bounded returns p with every setting that Delay uses clamped to its bounds, so that a policy
// that was never validated cannot overflow or yield negative delays.
func (p Policy) bounded() Policy {
	p = p.orDefault()
	p.Base = clampDelay(p.Base)
	if p.Cap <= 0 {
		p.Cap = LongestDelay
	}
	p.Cap = clampDelay(p.Cap)
	p.MinDelay = clampDelay(p.MinDelay)
	if math.IsNaN(p.Factor) || p.Factor < 1 {
		p.Factor = 1
	}
	if math.IsNaN(p.JitterRatio) {
		p.JitterRatio = 0
	}
	p.JitterRatio = min(max(p.JitterRatio, 0), 1)

	return p
}

func clampDelay(d time.Duration) time.Duration {
	return min(max(d, 0), LongestDelay)
}
