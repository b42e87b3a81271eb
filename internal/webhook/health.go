package webhook

import (
	"slices"
	"time"
)

// CircuitState is the state of an endpoint's circuit breaker, by its name in the API.
type CircuitState string

// The states of a circuit.
const (
	CircuitClosed   CircuitState = "closed"    // requests go
	CircuitHalfOpen CircuitState = "half_open" // one goes, and decides
	CircuitOpen     CircuitState = "open"      // none goes
)

// ClosedCircuit is what follows when a person closes an endpoint's circuit.
type ClosedCircuit struct {
	Endpoint Endpoint
	At       time.Time      // by the record's clock
	Probe    Delivery       // the oldest that waits
	Command  PendingCommand // asks it to be tried now; zero: none waits
}

// severity orders the states, the worst last.
func (c CircuitState) severity() int {
	return slices.Index([]CircuitState{CircuitClosed, CircuitHalfOpen, CircuitOpen}, c)
}

// Reasons for which an endpoint's deliveries do not go at once, as the gate names them.
const (
	ReasonInFlight      = "in_flight"       // all places are taken, or the receiver is too slow for more
	ReasonHost          = "host_in_flight"  // all places of its host are taken, or its share of them
	ReasonRate          = "rate"            // the endpoint's rate, or the slope after its recovery
	ReasonCircuitOpen   = "circuit_open"    // the receiver is given a rest
	ReasonCapacity      = "capacity"        // half of the worker waits for slow receivers
	ReasonRetryAfter    = "retry_after"     // it answered 429 with Retry-After
	ReasonRateLimitHint = "rate_limit_hint" // it said that nothing remains of its rate limit
)

// SlowLatency is the smoothed latency above which a receiver is called slow.
const SlowLatency = time.Second

// Seen is how the processes that send see an endpoint. Its JSON form is what they
// share, also with processes of another release: fields may be added, none changes
// its meaning.
type Seen struct {
	Circuit   CircuitState `json:"circuit"`
	Since     time.Time    `json:"since,omitzero"` // of the circuit's trouble or recovery; zero when it was never open
	Why       string       `json:"why,omitempty"`  // it is not closed: "14 of 20 requests failed, the last with http_503"
	NextProbe time.Time    `json:"next_probe,omitzero"`
	ProbeOver time.Time    `json:"probe_over,omitzero"` // a probe is under way: when it is likely to be over

	BarredUntil time.Time `json:"barred_until,omitzero"` // what the receiver asked for; zero when nothing
	BarredFor   string    `json:"barred_for,omitempty"`
	WaitsFor    string    `json:"waits_for,omitempty"` // what whoever came now would wait for; "" when they would go

	Latency    time.Duration `json:"latency_ns,omitempty"` // smoothed; 0 when nothing is known
	Rate       float64       `json:"rate"`                 // requests per second that may go now
	Recovering bool          `json:"recovering,omitempty"` // the rate rises after a trouble
	Timeout    time.Duration `json:"timeout_ns,omitempty"` // of a request that goes now, when it follows the answers; 0 when not

	InFlight int `json:"in_flight,omitempty"`

	// Attempts of the last 15 minutes, and in a row.
	Delivered     int `json:"delivered,omitempty"`
	Failed        int `json:"failed,omitempty"`
	First         int `json:"first,omitempty"`
	Retries       int `json:"retries,omitempty"`
	SuccessStreak int `json:"success_streak,omitempty"`
	FailureStreak int `json:"failure_streak,omitempty"`
}

// Attempts are those of the last 15 minutes.
func (s *Seen) Attempts() int { return s.Delivered + s.Failed }

// SuccessRate is the share of attempts that delivered; false when there was none.
func (s *Seen) SuccessRate() (float64, bool) {
	if s.Attempts() == 0 {
		return 0, false
	}
	return float64(s.Delivered) / float64(s.Attempts()), true
}

// RetryRatio is retries ÷ first attempts, of which at least one is assumed.
func (s *Seen) RetryRatio() float64 { return float64(s.Retries) / float64(max(s.First, 1)) }

// Together is what several processes see: the worst circuit, and of those in that
// state the first trouble and the next probe; the longest pause that was asked for, and
// the longest timeout; the mean latency by attempts; sums of what is counted and of the rates; the longest
// streaks that one of them has seen. The zero Seen, with a closed circuit, for none.
func Together(all []Seen) Seen {
	sum := Seen{Circuit: CircuitClosed}
	var latency float64 // ns × weight
	weights := 0
	for i := range all {
		s := &all[i]
		sum.addCircuit(s)
		if s.BarredUntil.After(sum.BarredUntil) {
			sum.BarredUntil, sum.BarredFor = s.BarredUntil, s.BarredFor
		}
		if sum.WaitsFor == "" {
			sum.WaitsFor = s.WaitsFor
		}
		if s.Latency > 0 {
			weight := max(s.Attempts(), 1)
			latency += float64(s.Latency) * float64(weight)
			weights += weight
		}
		sum.Rate += s.Rate
		sum.Recovering = sum.Recovering || s.Recovering
		sum.Timeout = max(sum.Timeout, s.Timeout)
		sum.InFlight += s.InFlight
		sum.Delivered += s.Delivered
		sum.Failed += s.Failed
		sum.First += s.First
		sum.Retries += s.Retries
		sum.SuccessStreak = max(sum.SuccessStreak, s.SuccessStreak)
		sum.FailureStreak = max(sum.FailureStreak, s.FailureStreak)
	}
	if weights > 0 {
		sum.Latency = time.Duration(latency / float64(weights))
	}
	return sum
}

// addCircuit takes in another process's circuit.
func (s *Seen) addCircuit(o *Seen) {
	if o.Circuit.severity() > s.Circuit.severity() {
		s.Circuit, s.Since, s.Why, s.NextProbe, s.ProbeOver = o.Circuit, o.Since, o.Why, o.NextProbe, o.ProbeOver
		s.WaitsFor = o.WaitsFor
		return
	}
	if o.Circuit != s.Circuit {
		return
	}
	if o.ProbeOver.After(s.ProbeOver) {
		s.ProbeOver = o.ProbeOver
	}
	if !o.Since.IsZero() && (s.Since.IsZero() || o.Since.Before(s.Since) != (o.Circuit == CircuitClosed)) {
		s.Since, s.Why = o.Since, o.Why // the first trouble, the last recovery
	}
	if !o.NextProbe.IsZero() && (s.NextProbe.IsZero() || o.NextProbe.Before(s.NextProbe)) {
		s.NextProbe = o.NextProbe
	}
}

// MaxCounted is up to how many deliveries of an endpoint are counted.
const MaxCounted = 10_000

// Backlog is what the record holds for an endpoint, counted up to MaxCounted.
type Backlog struct {
	Retrying  int // wait for their retry
	Deferred  int // wait for their turn, which the gate gave them
	Scheduled int // wait for the event's deliver_at
	Held      int // wait to be released

	// There are more that wait, or that are held, than were counted.
	MoreWaiting, MoreHeld bool

	NextAt time.Time // of the next of those that wait, in the past when it is under way; zero for none
	Oldest time.Time // when the oldest of those counted was accepted, scheduled ones left out; zero for none
}

// Waiting are those that wait for a retry or their turn.
func (b *Backlog) Waiting() int { return b.Retrying + b.Deferred }

// Health is how an endpoint fares, and why deliveries to it wait.
type Health struct {
	Endpoint Endpoint
	Seen     Seen
	Known    bool // some process remembers the endpoint; else its Seen is zero
	Backlog  Backlog
}

// Timeout is how long a request that goes now may take; 0 when that follows the
// receiver's answers and no process has told of it.
func (h *Health) Timeout() time.Duration {
	if h.Endpoint.AutoTimeout {
		return h.Seen.Timeout
	}
	return h.Endpoint.Timeout
}

// Rate is how many requests per second may go now.
func (h *Health) Rate() float64 {
	switch {
	case h.Endpoint.State != EndpointActive:
		return 0
	case !h.Known:
		return h.Endpoint.RateLimit
	}
	return h.Seen.Rate
}
