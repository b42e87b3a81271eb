package client

import (
	"context"
	"net/http"
)

// RetryPolicy says when a delivery is tried again and when it is given up; docs/retries.md explains every field. Delays are durations. In an
// answer a setting that the policy does not use is absent. In a request an absent setting is that of Preset, or else of the preset "default":
// RetryPolicy{Preset: "fast"} is the preset alone.
type RetryPolicy struct {
	Preset            string   `json:"preset,omitzero"`
	Strategy          string   `json:"strategy,omitzero"` // "fixed", "linear", "exponential" or "schedule"
	Base              string   `json:"base,omitzero"`
	Factor            float64  `json:"factor,omitzero"`
	Cap               string   `json:"cap,omitzero"`
	Schedule          []string `json:"schedule,omitzero"`
	Jitter            string   `json:"jitter,omitzero"` // "none", "full", "equal", "decorrelated" or "proportional"
	JitterRatio       float64  `json:"jitter_ratio,omitzero"`
	MinDelay          string   `json:"min_delay,omitzero"`
	MaxAttempts       int      `json:"max_attempts,omitzero"`
	AmbiguousDelays   []string `json:"ambiguous_delays,omitzero"` // an empty list makes ambiguous outcomes permanent
	GiveUpAfter       string   `json:"give_up_after,omitzero"`
	MaxRetryAfter     string   `json:"max_retry_after,omitzero"`
	RetryStatuses     []int    `json:"retry_statuses,omitzero"`
	PermanentStatuses []int    `json:"permanent_statuses,omitzero"`
}

// Preset is a policy with a name, and the times of its attempts.
type Preset struct {
	Name        string      `json:"name"`
	RetryPolicy RetryPolicy `json:"retry_policy"`
	AttemptTables
}

// Preview is a policy in full, and the times of its attempts.
type Preview struct {
	RetryPolicy RetryPolicy `json:"retry_policy"`
	AttemptTables
}

// AttemptTables are the attempts of a policy for two receivers: one that always fails, and one whose outcomes are all ambiguous (404, or
// refused credentials).
type AttemptTables struct {
	Attempts    []PreviewAttempt   `json:"attempts"`
	IfAmbiguous []PreviewAmbiguous `json:"attempts_if_ambiguous"`
}

// PreviewAttempt is when an attempt starts: durations since the first one.
type PreviewAttempt struct {
	Number                int    `json:"number"`
	Earliest              string `json:"earliest"`
	Nominal               string `json:"nominal"`
	Latest                string `json:"latest"`
	LatestAfter429        string `json:"latest_after_429"`         // if every answer is a 429 without Retry-After
	LatestAfterRetryAfter string `json:"latest_after_retry_after"` // if every answer has the longest Retry-After that counts
	Expected              bool   `json:"expected"`                 // false if it takes place only when the jitter shortens the delays before it
}

// PreviewAmbiguous is PreviewAttempt for a receiver whose outcomes are all ambiguous.
type PreviewAmbiguous struct {
	Number   int    `json:"number"`
	Earliest string `json:"earliest"`
	Nominal  string `json:"nominal"`
	Latest   string `json:"latest"`
	Expected bool   `json:"expected"`
}

// RetryPolicies lists the presets.
func (c *Client) RetryPolicies(ctx context.Context) ([]Preset, error) {
	page, err := get[Page[Preset]](ctx, scope{c, []string{"retry-policies"}}, nil)
	return page.Data, err
}

// PreviewRetryPolicy shows a policy in full and its attempts. nil is the policy of an endpoint without one: the tenant's, for its own keys.
func (c *Client) PreviewRetryPolicy(ctx context.Context, policy *RetryPolicy) (Preview, error) {
	body := map[string]any{"retry_policy": policy}
	return send[Preview](ctx, scope{c, []string{"retry-policies", "preview"}}, http.MethodPost, body)
}
