package client

// EndpointHealth is what the workers observe of an endpoint, and what waits for it.
type EndpointHealth struct {
	EndpointID    string        `json:"endpoint_id"`
	Summary       string        `json:"summary"` // for people: the condition, how many deliveries wait, and why
	Stale         bool          `json:"stale"`   // the worker that enforces the limits did not answer in time
	State         EndpointState `json:"state"`
	StateReason   *string       `json:"state_reason"`
	Circuit       Circuit       `json:"circuit"`
	NextProbeAt   Time          `json:"next_probe_at"`   // as in Circuit
	DeferredUntil Time          `json:"deferred_until"`  // until when nothing is sent, because the receiver asked for a pause
	DeferredFor   *string       `json:"deferred_for"`    // how it asked: "retry_after" or "rate_limit_hint"
	RatePerSecond float64       `json:"rate_per_second"` // that is admitted now; 0 while nothing is
	Timeout       *string       `json:"timeout"`         // of a first attempt that starts now; nil if it is "auto" and not known
	LatencyMS     *int64        `json:"latency_ms"`      // how long requests take, answered or not, smoothed; nil if it is not known
	SuccessRate   *float64      `json:"success_rate"`    // successful attempts ÷ all attempts in 15 minutes; nil without any
	RetryRatio    *float64      `json:"retry_ratio"`     // retries ÷ first attempts in 15 minutes; nil without any
	SuccessStreak int           `json:"success_streak"`  // successful attempts in a row
	FailureStreak int           `json:"failure_streak"`
	InFlight      int           `json:"in_flight"`
	Waiting       int           `json:"waiting"`   // for a retry or a turn, counted up to 10,000
	Retrying      int           `json:"retrying"`  // of them, those that wait for a retry
	Deferred      int           `json:"deferred"`  // of them, those that wait for a turn
	Scheduled     int           `json:"scheduled"` // for their DeliverAt
	Held          int           `json:"held"`      // counted up to 10,000
	More          bool          `json:"more"`      // more wait or are held than were counted
	NextAttemptAt Time          `json:"next_attempt_at"`
	OldestWaiting Time          `json:"oldest_waiting_at"` // when the oldest of those that wait or are held was accepted
	Explanation   Explanation   `json:"explanation"`
}

// CircuitState is the state of a circuit breaker.
type CircuitState string

// The states of circuits.
const (
	CircuitClosed   CircuitState = "closed"
	CircuitHalfOpen CircuitState = "half_open" // one request probes the endpoint
	CircuitOpen     CircuitState = "open"      // nothing is sent
)

// Circuit is the circuit breaker of an endpoint: the worst state in any worker.
type Circuit struct {
	State       CircuitState `json:"state"`
	Since       Time         `json:"since"` // since when it is not closed, or when it last closed; null if it was never open
	NextProbeAt Time         `json:"next_probe_at"`
	Why         *string      `json:"why"` // why it is not closed
}

// EndpointCondition describes an endpoint in a sentence, for lists.
type EndpointCondition struct {
	EndpointID  string        `json:"endpoint_id"`
	TenantID    string        `json:"tenant_id"`
	URL         string        `json:"url"`
	Description string        `json:"description"`
	EventTypes  []string      `json:"event_types"`
	State       EndpointState `json:"state"`
	Condition   string        `json:"condition"` // as in ShortCondition
	Cause       *string       `json:"cause"`     // for people: why, in a few words, as in ShortCondition
	Since       Time          `json:"since"`     // since when it is failing, paused or disabled, or its circuit open; null if that is not known
	Code        string        `json:"code"`      // of an Explanation
	Trouble     bool          `json:"trouble"`   // it needs attention
	Summary     string        `json:"summary"`   // for people
	CreatedAt   Time          `json:"created_at"`
}
