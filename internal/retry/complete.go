package retry

import "slices"

// complete makes a complete policy: the given fields, else the preset's, else Default's. A
// setting that the policy does not use is zero.
func (d *document) complete() Policy {
	p := d.start
	read := d.read
	choose(d, "strategy", &p.Strategy, read.Strategy)
	choose(d, "jitter", &p.Jitter, read.Jitter)
	choose(d, "min_delay", &p.MinDelay, read.MinDelay)
	choose(d, "max_attempts", &p.MaxAttempts, read.MaxAttempts)
	choose(d, "give_up_after", &p.GiveUpAfter, read.GiveUpAfter)
	if d.given["schedule"] {
		p.Schedule = read.Schedule
	}
	if d.given["ambiguous_delays"] {
		p.AmbiguousDelays = read.AmbiguousDelays
	}
	d.completeStatuses(&p)

	// A schedule preset has no base; Default has every setting that a preset can lack.
	fallback := Default()
	fallback.JitterRatio = DefaultJitterRatio
	settle(d, "base", p.usesBase(), &p.Base, read.Base, fallback.Base)
	settle(d, "factor", p.Strategy == StrategyExponential, &p.Factor, read.Factor, fallback.Factor)
	settle(d, "cap", p.usesCap(), &p.Cap, read.Cap, fallback.Cap)
	settle(d, "jitter_ratio", p.Jitter == JitterProportional, &p.JitterRatio, read.JitterRatio, fallback.JitterRatio)
	if p.Strategy != StrategySchedule {
		p.Schedule = nil
	}
	if !d.given["preset"] && !p.Equal(Default()) {
		p.Preset = ""
	}

	return p
}

// completeStatuses replaces the status lists that were given. A status in one of them is
// removed from the preset's other list.
func (d *document) completeStatuses(p *Policy) {
	retried, permanent := d.given["retry_statuses"], d.given["permanent_statuses"]
	if retried {
		p.RetryStatuses = d.read.RetryStatuses
	}
	if permanent {
		p.PermanentStatuses = d.read.PermanentStatuses
	}
	switch {
	case permanent && !retried:
		p.RetryStatuses = without(p.RetryStatuses, p.PermanentStatuses)
	case retried && !permanent:
		p.PermanentStatuses = without(p.PermanentStatuses, p.RetryStatuses)
	}
}

// without returns the statuses that are not among others.
func without(statuses, others []int) []int {
	return slices.DeleteFunc(slices.Clone(statuses), func(status int) bool { return slices.Contains(others, status) })
}

// choose sets *into to value if the field was given.
func choose[T any](d *document, field string, into *T, value T) {
	if d.given[field] {
		*into = value
	}
}

// settle sets *into to the given value, the preset's or the fallback, in this order of
// preference, or to zero if the setting is not used.
func settle[T comparable](d *document, field string, used bool, into *T, value, fallback T) {
	var zero T
	switch {
	case !used:
		*into = zero
	case d.given[field]:
		*into = value
	case *into == zero:
		*into = fallback
	}
}

// validate adds the errors of Validate, except for fields that could not be read, and an
// error for each given setting that would have no effect.
func (d *document) validate(p Policy) {
	d.validateUnused(p)
	d.validateUnusedBounds(p)
	if d.bad.has("preset") || d.bad.has("strategy") || d.bad.has("jitter") {
		// The other checks depend on the strategy and the jitter.
		return
	}
	for _, one := range p.refused() {
		if one.Field == "cap" && !d.given["cap"] && d.given["base"] {
			one = FieldError{Field: "base", Message: "must not be above cap, which is " + FormatDuration(p.Cap)}
		}
		if !d.bad.has(one.Field) || one.Field == "" {
			d.bad = append(d.bad, one)
		}
	}
}

// validateUnused refuses a given setting that p does not use, unless the object itself names the strategy or jitter.
func (d *document) validateUnused(p Policy) {
	unused := []struct {
		field, chooser, chosen string
		used                   bool
	}{
		{"base", "strategy", p.Strategy.String(), p.usesBase()},
		{"factor", "strategy", p.Strategy.String(), p.Strategy == StrategyExponential},
		{"cap", "strategy", p.Strategy.String(), p.usesCap()},
		{"schedule", "strategy", p.Strategy.String(), p.Strategy == StrategySchedule},
		{"jitter_ratio", "jitter", p.Jitter.String(), p.Jitter == JitterProportional},
	}
	for _, one := range unused {
		if d.given[one.field] && !one.used && !d.given[one.chooser] {
			d.bad.addOnce(one.field, "is not used with "+one.chooser+" "+one.chosen+"; name the "+one.chooser+" too")
		}
	}
}

// validateUnusedBounds checks the bounds of given settings that p does not use. Validate
// ignores those.
func (d *document) validateUnusedBounds(p Policy) {
	if d.given["base"] && !p.usesBase() && !d.bad.has("base") {
		d.bad.within("base", d.read.Base, ShortestDelay, LongestDelay)
	}
	if d.given["cap"] && !p.usesCap() && !d.bad.has("cap") {
		d.bad.within("cap", d.read.Cap, ShortestDelay, LongestDelay)
	}
	if d.given["factor"] && p.Strategy != StrategyExponential && !d.bad.has("factor") && !validFactor(d.read.Factor) {
		d.bad.add("factor", factorMessage)
	}
	if d.given["jitter_ratio"] && p.Jitter != JitterProportional && !d.bad.has("jitter_ratio") &&
		!validRatio(d.read.JitterRatio) {
		d.bad.add("jitter_ratio", ratioMessage)
	}
	if d.given["schedule"] && p.Strategy != StrategySchedule && !d.bad.has("schedule") {
		validateSchedule(&d.bad, d.read.Schedule)
	}
}
