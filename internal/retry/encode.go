package retry

import (
	"encoding/json"
	"fmt"
)

// policyJSON is the shape of a policy in the HTTP API and in the database. Settings
// that the strategy or the jitter does not use are left out.
type policyJSON struct {
	Preset            string   `json:"preset,omitempty"`
	Strategy          string   `json:"strategy"`
	Base              string   `json:"base,omitempty"`
	Factor            float64  `json:"factor,omitempty"`
	Cap               string   `json:"cap,omitempty"`
	Schedule          []string `json:"schedule,omitempty"`
	Jitter            string   `json:"jitter"`
	JitterRatio       float64  `json:"jitter_ratio,omitempty"`
	MinDelay          string   `json:"min_delay,omitempty"`
	MaxAttempts       int      `json:"max_attempts"`
	AmbiguousAttempts int      `json:"ambiguous_attempts"`
	GiveUpAfter       string   `json:"give_up_after"`
	RetryStatuses     []int    `json:"retry_statuses,omitempty"`
	PermanentStatuses []int    `json:"permanent_statuses,omitempty"`
}

// MarshalJSON returns the policy as an object that ParsePolicy reads back to an equal
// one. The zero Policy is written as Default. It is an error only for a factor or
// ratio that JSON cannot express, which Validate refuses.
func (p Policy) MarshalJSON() ([]byte, error) {
	p = p.orDefault()
	shape := policyJSON{
		Preset:            p.Preset,
		Strategy:          p.Strategy.String(),
		Jitter:            p.Jitter.String(),
		MaxAttempts:       p.MaxAttempts,
		AmbiguousAttempts: p.AmbiguousAttempts,
		GiveUpAfter:       FormatDuration(p.GiveUpAfter),
		RetryStatuses:     p.RetryStatuses,
		PermanentStatuses: p.PermanentStatuses,
	}
	if p.usesBase() {
		shape.Base = FormatDuration(p.Base)
	}
	if p.usesCap() {
		shape.Cap = FormatDuration(p.Cap)
	}
	if p.Strategy == StrategyExponential {
		shape.Factor = p.Factor
	}
	if p.Strategy == StrategySchedule {
		for _, step := range p.Schedule {
			shape.Schedule = append(shape.Schedule, FormatDuration(step))
		}
	}
	if p.Jitter == JitterProportional {
		shape.JitterRatio = p.JitterRatio
	}
	// Left out it would be the preset's when it is read back.
	if preset, found := Lookup(p.Preset); p.MinDelay != 0 || found && preset.MinDelay != 0 {
		shape.MinDelay = FormatDuration(p.MinDelay)
	}

	text, err := json.Marshal(shape)
	if err != nil {
		return nil, fmt.Errorf("encode policy: %w", err)
	}

	return text, nil
}

// UnmarshalJSON is ParsePolicy.
func (p *Policy) UnmarshalJSON(raw []byte) error {
	policy, err := ParsePolicy(raw)
	if err != nil {
		return err
	}
	*p = policy

	return nil
}
