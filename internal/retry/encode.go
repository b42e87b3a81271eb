package retry

import (
	"encoding/json"
	"fmt"
	"time"
)

// Fields is the JSON form of a policy in the HTTP API and in the database. Settings that
// the strategy or the jitter does not use are omitted.
type Fields struct {
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
	AmbiguousDelays   []string `json:"ambiguous_delays"`
	GiveUpAfter       string   `json:"give_up_after"`
	MaxRetryAfter     string   `json:"max_retry_after"`
	RetryStatuses     []int    `json:"retry_statuses,omitzero"` // nil is omitted, an empty list is not
	PermanentStatuses []int    `json:"permanent_statuses,omitzero"`
}

// MarshalJSON encodes Fields. It fails only for a factor or ratio that JSON cannot express,
// which Validate refuses.
func (p Policy) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(p.Fields())
	if err != nil {
		return nil, fmt.Errorf("encode policy: %w", err)
	}

	return text, nil
}

// Fields returns the policy in the form that ParsePolicy parses to an equal policy; the zero
// Policy as Default.
func (p Policy) Fields() Fields {
	p = p.orDefault()
	shape := Fields{
		Preset:          p.Preset,
		Strategy:        p.Strategy.String(),
		Jitter:          p.Jitter.String(),
		MaxAttempts:     p.MaxAttempts,
		AmbiguousDelays: formatDurations(p.AmbiguousDelays),
		GiveUpAfter:     FormatDuration(p.GiveUpAfter),
		MaxRetryAfter:   FormatDuration(p.MaxRetryAfter),
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
		shape.Schedule = formatDurations(p.Schedule)
	}
	if p.Jitter == JitterProportional {
		shape.JitterRatio = p.JitterRatio
	}
	// ParsePolicy takes omitted lists from the preset.
	preset, _ := Lookup(p.Preset)
	if p.MinDelay != 0 || preset.MinDelay != 0 {
		shape.MinDelay = FormatDuration(p.MinDelay)
	}
	shape.RetryStatuses = shownStatuses(p.RetryStatuses, preset.RetryStatuses)
	shape.PermanentStatuses = shownStatuses(p.PermanentStatuses, preset.PermanentStatuses)

	return shape
}

// formatDurations never returns nil, because an empty list has a meaning of its own.
func formatDurations(durations []time.Duration) []string {
	texts := make([]string, 0, len(durations))
	for _, d := range durations {
		texts = append(texts, FormatDuration(d))
	}

	return texts
}

// shownStatuses returns nil (omitted) for an empty list, unless the preset's list has entries.
func shownStatuses(statuses, preset []int) []int {
	if len(statuses) == 0 && len(preset) > 0 {
		return []int{}
	}
	if len(statuses) == 0 {
		return nil
	}

	return statuses
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
