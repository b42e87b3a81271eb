package retry

import (
	"math"
	"slices"
	"time"
)

// Bounds of a policy's settings. They are wide enough for any use that makes sense
// and keep every computation far from overflow.
const (
	ShortestDelay      = time.Millisecond    // of Base, Cap and each step; MinDelay may also be 0
	LongestDelay       = 30 * 24 * time.Hour // of Base, Cap, MinDelay and each step
	ShortestGiveUp     = time.Second
	LongestGiveUp      = 30 * 24 * time.Hour
	LargestFactor      = 100  // the smallest is 1
	MostAttempts       = 1000 // a workflow's history stays far below Temporal's limits
	MostSteps          = 100  // of Schedule
	MostStatuses       = 100  // of RetryStatuses and of PermanentStatuses
	MostAmbiguous      = 20   // of AmbiguousDelays
	DefaultJitterRatio = 0.2  // for proportional jitter when no ratio was given
)

// Strategy says how the delay grows from attempt to attempt.
type Strategy uint8

// The strategies. The delay is the one after the n-th attempt, n counting from 1.
const (
	StrategyFixed       Strategy = iota + 1 // Base
	StrategyLinear                          // n × Base, at most Cap
	StrategyExponential                     // Base × Factor^(n−1), at most Cap
	StrategySchedule                        // the n-th of Schedule; the last repeats
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

// Jitter says how a delay is spread, so that deliveries which failed together do not
// come back together. The names full, equal and decorrelated are those of Marc
// Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
type Jitter uint8

// The jitters, over the strategy's delay d.
const (
	JitterNone         Jitter = iota // d
	JitterFull                       // U[0, d)
	JitterEqual                      // d/2 + U[0, d/2)
	JitterDecorrelated               // min(Cap, U[Base, 3 × the previous delay)); d does not count
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

// Policy says when a delivery is tried again and when it is given up. Make one with
// Default, Lookup or ParsePolicy; a literal should be checked with Validate. The zero
// Policy behaves as Default.
//
// A setting that the strategy or the jitter does not use is zero.
type Policy struct {
	// Preset is the name of the preset it was made from, also when some settings were
	// overridden; empty for a policy given in full. Information only.
	Preset string

	Strategy Strategy
	Base     time.Duration   // fixed, linear, exponential
	Factor   float64         // exponential
	Cap      time.Duration   // linear, exponential, and fixed with decorrelated jitter
	Schedule []time.Duration // schedule

	Jitter      Jitter
	JitterRatio float64       // proportional; above 0, at most 1
	MinDelay    time.Duration // no delay is shorter; 0 for none

	MaxAttempts int           // attempts of one run, the first included
	GiveUpAfter time.Duration // no attempt of a run starts later than this

	// AmbiguousDelays are the least delays after the first, second, … ambiguous outcome in
	// a row, each spread by a tenth either way. When they are used up the delivery is
	// given up; empty, an ambiguous outcome is permanent.
	AmbiguousDelays []time.Duration

	RetryStatuses     []int // statuses retried whatever the table says
	PermanentStatuses []int // statuses that end the delivery whatever the table says
}

// IsZero says whether p is the zero Policy, which stands for Default.
func (p Policy) IsZero() bool {
	return p.Equal(Policy{})
}

// Equal says whether both are the same in every setting, the preset's name included.
func (p Policy) Equal(q Policy) bool {
	return p.Preset == q.Preset && p.Strategy == q.Strategy && p.Base == q.Base && p.Factor == q.Factor &&
		p.Cap == q.Cap && slices.Equal(p.Schedule, q.Schedule) && p.Jitter == q.Jitter &&
		p.JitterRatio == q.JitterRatio && p.MinDelay == q.MinDelay && p.MaxAttempts == q.MaxAttempts &&
		slices.Equal(p.AmbiguousDelays, q.AmbiguousDelays) && p.GiveUpAfter == q.GiveUpAfter &&
		slices.Equal(p.RetryStatuses, q.RetryStatuses) && slices.Equal(p.PermanentStatuses, q.PermanentStatuses)
}

// Clone returns a copy that shares no list with p.
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

// bounded returns p with every setting that Delay uses forced into its bounds, so
// that even a policy that was never validated cannot overflow or go backwards.
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
