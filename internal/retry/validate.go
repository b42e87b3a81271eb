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
		bad.within("base", p.Base, ShortestDelay, LongestDelay)
	}
	if p.Strategy == StrategyExponential && !validFactor(p.Factor) {
		bad.add("factor", factorMessage)
	}
	if p.usesCap() {
		bad.within("cap", p.Cap, ShortestDelay, LongestDelay)
		if p.Cap < p.Base && !bad.has("base") {
			bad.addOnce("cap", "must not be below base, which is "+FormatDuration(p.Base))
		}
	}
	if p.Strategy == StrategySchedule {
		validateSchedule(bad, p.Schedule)
	}
}

const (
	factorMessage = "must be between 1 and 100"
	ratioMessage  = "must be above 0 and at most 1"
)

// validFactor and validRatio are false for NaN, for which every comparison is false.
func validFactor(factor float64) bool { return factor >= 1 && factor <= LargestFactor }
func validRatio(ratio float64) bool   { return ratio > 0 && ratio <= 1 }

func validateSchedule(bad *FieldErrors, schedule []time.Duration) {
	switch {
	case len(schedule) == 0:
		bad.add("schedule", "must have at least one step")
	case len(schedule) > MostSteps:
		bad.add("schedule", "must have at most 100 steps")
	default:
		for i, step := range schedule {
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
	if p.Jitter == JitterProportional && !validRatio(p.JitterRatio) {
		bad.add("jitter_ratio", ratioMessage)
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
