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

	validateStrategy(&bad, &p)
	validateJitter(&bad, &p)
	bad.between("max_attempts", p.MaxAttempts, 1, MostAttempts)
	validateAmbiguous(&bad, p.AmbiguousDelays)
	bad.within("give_up_after", p.GiveUpAfter, ShortestGiveUp, LongestGiveUp)
	bad.within("max_retry_after", p.MaxRetryAfter, 0, LongestRetryAfter)
	validateStatuses(&bad, "retry_statuses", p.RetryStatuses, nil)
	validateStatuses(&bad, "permanent_statuses", p.PermanentStatuses, p.RetryStatuses)

	return bad
}

func validateStrategy(bad *FieldErrors, p *Policy) {
	if p.Strategy.String() == "" {
		bad.add("strategy", "must be "+enumNames(strategies()))
		return
	}
	if p.usesBase() {
		validateBase(bad, p)
	}
	if p.Strategy == StrategyExponential {
		validateFactor(bad, p)
	}
	if p.usesCap() {
		validateCap(bad, p)
		if p.Cap < p.Base && !bad.has("base") {
			bad.addOnce("cap", "must not be below base, which is "+FormatDuration(p.Base))
		}
	}
	if p.Strategy == StrategySchedule {
		validateSchedule(bad, p)
	}
}

func validateBase(bad *FieldErrors, p *Policy) {
	bad.within("base", p.Base, ShortestDelay, LongestDelay)
}

func validateCap(bad *FieldErrors, p *Policy) {
	bad.within("cap", p.Cap, ShortestDelay, LongestDelay)
}

func validateFactor(bad *FieldErrors, p *Policy) {
	if !(p.Factor >= 1 && p.Factor <= LargestFactor) { // true for NaN
		bad.add("factor", "must be between 1 and 100")
	}
}

func validateRatio(bad *FieldErrors, p *Policy) {
	if !(p.JitterRatio > 0 && p.JitterRatio <= 1) { // true for NaN
		bad.add("jitter_ratio", "must be above 0 and at most 1")
	}
}

func validateSchedule(bad *FieldErrors, p *Policy) {
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

func validateJitter(bad *FieldErrors, p *Policy) {
	if p.Jitter.String() == "" {
		bad.add("jitter", "must be "+enumNames(jitters()))
	}
	if p.Jitter == JitterDecorrelated && p.Strategy == StrategySchedule {
		bad.add("jitter", "decorrelated grows from a base, which the schedule strategy does not have")
	}
	if p.Jitter == JitterProportional {
		validateRatio(bad, p)
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
