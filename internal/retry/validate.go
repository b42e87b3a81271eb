package retry

import (
	"slices"
	"time"
)

// Validate returns every setting that is out of bounds as FieldErrors, or nil. Fields have
// their JSON names.
func (p Policy) Validate() error {
	refused := p.refused()

	return refused.orNil()
}

// refused is Validate with the result as a list.
func (p Policy) refused() FieldErrors {
	p = p.orDefault()
	var bad FieldErrors

	p.validateStrategy(&bad)
	p.validateJitter(&bad)
	bad.between("max_attempts", p.MaxAttempts, 1, MostAttempts)
	validateAmbiguous(&bad, p.AmbiguousDelays)
	bad.within("give_up_after", p.GiveUpAfter, ShortestGiveUp, LongestGiveUp)
	bad.within("max_retry_after", p.MaxRetryAfter, 0, LongestRetryAfter)
	validateStatuses(&bad, "retry_statuses", p.RetryStatuses, nil)
	validateStatuses(&bad, "permanent_statuses", p.PermanentStatuses, p.RetryStatuses)

	return bad
}

func (p Policy) validateStrategy(bad *FieldErrors) {
	if p.Strategy.String() == "" {
		bad.add("strategy", "must be "+enumNames(strategies()))
		return
	}
	if p.usesBase() {
		p.validateBase(bad)
	}
	if p.Strategy == StrategyExponential {
		p.validateFactor(bad)
	}
	if p.usesCap() {
		p.validateCap(bad)
		if p.Cap < p.Base && !bad.has("base") {
			bad.addOnce("cap", "must not be below base, which is "+FormatDuration(p.Base))
		}
	}
	if p.Strategy == StrategySchedule {
		p.validateSchedule(bad)
	}
}

func (p Policy) validateBase(bad *FieldErrors) {
	bad.within("base", p.Base, ShortestDelay, LongestDelay)
}

func (p Policy) validateCap(bad *FieldErrors) {
	bad.within("cap", p.Cap, ShortestDelay, LongestDelay)
}

func (p Policy) validateFactor(bad *FieldErrors) {
	if !(p.Factor >= 1 && p.Factor <= LargestFactor) { // true for NaN
		bad.add("factor", "must be between 1 and 100")
	}
}

func (p Policy) validateRatio(bad *FieldErrors) {
	if !(p.JitterRatio > 0 && p.JitterRatio <= 1) { // true for NaN
		bad.add("jitter_ratio", "must be above 0 and at most 1")
	}
}

func (p Policy) validateSchedule(bad *FieldErrors) {
	switch {
	case len(p.Schedule) == 0:
		bad.add("schedule", "must have at least one step")
	case len(p.Schedule) > MostSteps:
		bad.add("schedule", "must have at most 100 steps")
	default:
		for i, step := range p.Schedule {
			bad.within(indexed("schedule", i), step, ShortestDelay, LongestDelay)
		}
	}
}

// validateAmbiguous accepts an empty list: ambiguous outcomes are then permanent.
func validateAmbiguous(bad *FieldErrors, delays []time.Duration) {
	if len(delays) > MostAmbiguous {
		bad.add("ambiguous_delays", "must have at most 20 entries")
		return
	}
	for i, delay := range delays {
		bad.within(indexed("ambiguous_delays", i), delay, ShortestDelay, LongestDelay)
	}
}

func (p Policy) validateJitter(bad *FieldErrors) {
	if p.Jitter.String() == "" {
		bad.add("jitter", "must be "+enumNames(jitters()))
	}
	if p.Jitter == JitterDecorrelated && p.Strategy == StrategySchedule {
		bad.add("jitter", "decorrelated grows from a base, which the schedule strategy does not have")
	}
	if p.Jitter == JitterProportional {
		p.validateRatio(bad)
	}
	if p.MinDelay < 0 || p.MinDelay > LongestDelay {
		bad.add("min_delay", "must be between 0s and 720h")
	} else if longest := p.longestNominal(); p.MinDelay > longest && longest > 0 {
		bad.add("min_delay", "must not be above the longest delay, "+FormatDuration(longest))
	}
}

// longestNominal returns the longest delay of the strategy.
func (p Policy) longestNominal() time.Duration {
	switch {
	case p.usesCap():
		return p.Cap
	case p.Strategy == StrategySchedule && len(p.Schedule) > 0:
		return slices.Max(p.Schedule)
	default:
		return p.Base
	}
}

// validateStatuses checks one list; taken has the statuses of the other list.
func validateStatuses(bad *FieldErrors, field string, statuses, taken []int) {
	if len(statuses) > MostStatuses {
		bad.add(field, "must have at most 100 entries")
		return
	}
	for i, status := range statuses {
		switch {
		case !overridable(status):
			bad.add(indexed(field, i), "must be a status from 100 to 999 other than 2xx and 3xx")
		case slices.Contains(statuses[:i], status):
			bad.add(indexed(field, i), "is given more than once")
		case slices.Contains(taken, status):
			bad.add(indexed(field, i), "is in retry_statuses as well")
		}
	}
}
