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
	choose(d, "max_retry_after", &p.MaxRetryAfter, read.MaxRetryAfter)
	choose(d, "schedule", &p.Schedule, read.Schedule)
	choose(d, "ambiguous_delays", &p.AmbiguousDelays, read.AmbiguousDelays)
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
	choose(d, "retry_statuses", &p.RetryStatuses, d.read.RetryStatuses)
	choose(d, "permanent_statuses", &p.PermanentStatuses, d.read.PermanentStatuses)
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

// validate adds the errors of Validate, except for fields that could not be read, and the errors of
// validateUnused.
func (d *document) validate(p Policy) {
	d.validateUnused(p)
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

// validateUnused checks the given settings that p does not use, which Validate ignores. It refuses
// one unless the object itself names the strategy or the jitter; then only its bounds are checked.
func (d *document) validateUnused(p Policy) {
	for _, one := range []struct {
		field, chooser, chosen string
		used                   bool
		checkBounds            func(*FieldErrors, *Policy)
	}{
		{"base", "strategy", p.Strategy.String(), p.usesBase(), validateBase},
		{"factor", "strategy", p.Strategy.String(), p.Strategy == StrategyExponential, validateFactor},
		{"cap", "strategy", p.Strategy.String(), p.usesCap(), validateCap},
		{"schedule", "strategy", p.Strategy.String(), p.Strategy == StrategySchedule, validateSchedule},
		{"jitter_ratio", "jitter", p.Jitter.String(), p.Jitter == JitterProportional, validateRatio},
	} {
		switch {
		case !d.given[one.field] || one.used || d.bad.has(one.field):
		case d.given[one.chooser]:
			one.checkBounds(&d.bad, &d.read)
		default:
			d.bad.add(one.field, "is not used with "+one.chooser+" "+one.chosen+"; name the "+one.chooser+" too")
		}
	}
}
