package webhook

import (
	"slices"
	"time"
)

// CircuitState is the state of an endpoint's circuit breaker, by its name in the API.
type CircuitState string

// The states of a circuit.
const (
	CircuitClosed   CircuitState = "closed"    // requests are sent
	CircuitHalfOpen CircuitState = "half_open" // one request is sent as a probe
	CircuitOpen     CircuitState = "open"      // no request is sent
)

// CircuitChange is a change of an endpoint's circuit in one process.
type CircuitChange struct {
	EndpointID EndpointID
	TakenOver  bool // it was open in another process, which has handed it over
	From, To   CircuitState
	At         time.Time
	Why        string // it is not closed: "14 of 20 requests failed, the last with http_503"
}

// ClosedCircuit is the result of closing an endpoint's circuit through the API.
type ClosedCircuit struct {
	Endpoint Endpoint
	At       time.Time      // of the database's clock
	Delivery Delivery       // the oldest that waits; it becomes the probe
	Command  PendingCommand // asks for an immediate attempt of it; zero if no delivery waits
}

// severity orders the states from the best to the worst.
func (c CircuitState) severity() int {
	return slices.Index([]CircuitState{CircuitClosed, CircuitHalfOpen, CircuitOpen}, c)
}

// Reasons for which admission defers an endpoint's deliveries.
const (
	ReasonInFlight      = "in_flight"       // the endpoint's permits, or those left for a slow receiver, are all in use
	ReasonHost          = "host_in_flight"  // the permits of the host, or the endpoint's share of them, are all in use
	ReasonRate          = "rate"            // the endpoint's rate limit, or the ramp-up after a recovery
	ReasonCircuitOpen   = "circuit_open"    // the circuit breaker is open
	ReasonCapacity      = "capacity"        // slow receivers occupy half of the worker, or payloads that are being sent its memory for them
	ReasonNoOwner       = "no_owner"        // no process admits requests to the endpoint at present: its owner has just ended, or cannot be reached
	ReasonRetryAfter    = "retry_after"     // the receiver answered 429 with Retry-After
	ReasonRateLimitHint = "rate_limit_hint" // a response's header says that no request is left of the rate limit
)

// SlowLatency is the smoothed latency above which a receiver counts as slow.
const SlowLatency = time.Second

// Observation is the health of an endpoint as one sending process observes it, or as several do
// (Aggregate). Processes of different releases share its JSON form: add fields, but never
// change the meaning of one.
type Observation struct {
	Circuit   CircuitState `json:"circuit"`
	Since     time.Time    `json:"since,omitzero"` // of the opening, or of the recovery; zero if the circuit was never open
	Why       string       `json:"why,omitempty"`  // why it is not closed: "14 of 20 requests failed, the last with http_503"
	NextProbe time.Time    `json:"next_probe,omitzero"`
	ProbeOver time.Time    `json:"probe_over,omitzero"` // the expected end of the probe under way

	BlockedUntil time.Time `json:"barred_until,omitzero"` // until when the receiver asked for a pause; zero for none
	BlockReason  string    `json:"barred_for,omitempty"`
	DeferReason  string    `json:"waits_for,omitempty"` // why admission would defer the next attempt; "" if it would not

	Latency    time.Duration `json:"latency_ns,omitempty"` // smoothed; 0 if unknown
	Rate       float64       `json:"rate"`                 // requests per second that are allowed now
	Recovering bool          `json:"recovering,omitempty"` // the rate ramps up after a recovery
	Timeout    time.Duration `json:"timeout_ns,omitempty"` // of the next request, with an automatic timeout; else 0

	InFlight int `json:"in_flight,omitempty"`

	// Attempts of the last 15 minutes; the streaks are consecutive attempts.
	Delivered     int `json:"delivered,omitempty"`
	Failed        int `json:"failed,omitempty"`
	First         int `json:"first,omitempty"`
	Retries       int `json:"retries,omitempty"`
	SuccessStreak int `json:"success_streak,omitempty"`
	FailureStreak int `json:"failure_streak,omitempty"`

	// Of the streak of failures: when it began, when its last attempt ended, that attempt's reason and Attempt.Error. Zero
	// without a streak.
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastFailedAt time.Time `json:"last_failed_at,omitzero"`
	LastFailure  string    `json:"last_failure,omitempty"`
	LastError    string    `json:"last_error,omitempty"`
	LastTimes    Times     `json:"last_times,omitzero"`
	// LastSuccess is when the last attempt was delivered; zero if that is not known.
	LastSuccess time.Time `json:"last_success,omitzero"`

	Strayed Strayed `json:"strayed,omitzero"` // zero: its redirects lead where they always led
}

// Strayed is where redirects lead that count as delivered (Endpoint.SuccessStatuses), if that has changed, or looks like a log-in:
// the receiver may not accept events any more.
type Strayed struct {
	To     string    `json:"to"`               // scheme, host and path
	Before string    `json:"before,omitempty"` // the host before; "" if it is the same
	At     time.Time `json:"at"`               // of the first such answer
}

// failingStreak is how many failures in a row make an endpoint one that fails, however many were delivered before.
const failingStreak = 3

// Failing reports whether the receiver fails at present: at least three attempts in a row, or the last one and no fewer
// of the last 15 minutes' than were delivered, or the last one, however long ago, if none is known that was delivered. One failure among many
// successes is none of the endpoint.
func (s *Observation) Failing() bool {
	switch {
	case s.FailureStreak == 0:
		return false
	case s.FailureStreak >= failingStreak:
		return true
	case s.Attempts() > 0:
		return s.Failed >= s.Delivered
	}
	return s.LastSuccess.IsZero()
}

// Attempts is the number of attempts of the last 15 minutes.
func (s *Observation) Attempts() int { return s.Delivered + s.Failed }

// SuccessRate is the share of delivered attempts; false without attempts.
func (s *Observation) SuccessRate() (float64, bool) {
	if s.Attempts() == 0 {
		return 0, false
	}
	return float64(s.Delivered) / float64(s.Attempts()), true
}

// RetryRatio is retries ÷ first attempts; the divisor is at least 1.
func (s *Observation) RetryRatio() float64 { return float64(s.Retries) / float64(max(s.First, 1)) }

// Recall replaces the attempts of the last 15 minutes by those that are stored, if these are more:
// a process that has just started has counted none, and a healthy endpoint is not shared.
func (s *Observation) Recall(stored *Counts) {
	total := int(stored.Total())
	if total <= s.Attempts() {
		return
	}
	s.Delivered, s.First = int(stored.Attempts[ClassDelivered]), int(stored.FirstAttempts)
	s.Failed, s.Retries = total-s.Delivered, total-s.First
}

// Aggregate aggregates what several processes observe: the worst circuit state, with the
// first failure and the next probe of the processes in that state; the latest end of a pause
// and the longest timeout; the mean latency, weighted by attempts; the sums of counters and
// rates; and the longest streaks. Without processes the circuit is closed and all else zero.
func Aggregate(all []Observation) Observation {
	sum := Observation{Circuit: CircuitClosed}
	var latency float64 // ns × weight
	weights := 0
	for i := range all {
		s := &all[i]
		sum.addCircuit(s)
		if s.BlockedUntil.After(sum.BlockedUntil) {
			sum.BlockedUntil, sum.BlockReason = s.BlockedUntil, s.BlockReason
		}
		if sum.DeferReason == "" {
			sum.DeferReason = s.DeferReason
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
		sum.addFailures(s)
		if s.Strayed.At.After(sum.Strayed.At) {
			sum.Strayed = s.Strayed
		}
	}
	if weights > 0 {
		sum.Latency = time.Duration(latency / float64(weights))
	}
	return sum
}

// addFailures merges another process's streak of failures: the longest, with the first and the last failure of all.
func (s *Observation) addFailures(o *Observation) {
	s.FailureStreak = max(s.FailureStreak, o.FailureStreak)
	if !o.FailingSince.IsZero() && (s.FailingSince.IsZero() || o.FailingSince.Before(s.FailingSince)) {
		s.FailingSince = o.FailingSince
	}
	if o.LastFailedAt.After(s.LastFailedAt) {
		s.LastFailedAt, s.LastFailure, s.LastError, s.LastTimes = o.LastFailedAt, o.LastFailure, o.LastError, o.LastTimes
	}
	if o.LastSuccess.After(s.LastSuccess) {
		s.LastSuccess = o.LastSuccess
	}
}

// addCircuit merges another process's circuit.
func (s *Observation) addCircuit(o *Observation) {
	if o.Circuit.severity() > s.Circuit.severity() {
		s.Circuit, s.Since, s.Why, s.NextProbe, s.ProbeOver = o.Circuit, o.Since, o.Why, o.NextProbe, o.ProbeOver
		s.DeferReason = o.DeferReason
		return
	}
	if o.Circuit != s.Circuit {
		return
	}
	if o.ProbeOver.After(s.ProbeOver) {
		s.ProbeOver = o.ProbeOver
	}
	if !o.Since.IsZero() && (s.Since.IsZero() || o.Since.Before(s.Since) != (o.Circuit == CircuitClosed)) {
		s.Since, s.Why = o.Since, o.Why // the first failure, or the last recovery
	}
	if !o.NextProbe.IsZero() && (s.NextProbe.IsZero() || o.NextProbe.Before(s.NextProbe)) {
		s.NextProbe = o.NextProbe
	}
}

// MaxCounted is the number up to which the store counts deliveries of an endpoint, and dead letters of a tenant.
const MaxCounted = 10_000

// MaxAhead is the number of an endpoint's deliveries up to which those before a waiting one are counted.
const MaxAhead = 1000

// Backlog counts the open deliveries of an endpoint, up to MaxCounted.
type Backlog struct {
	Retrying  int // waiting for a retry
	Deferred  int // deferred by admission
	Scheduled int // waiting for the event's deliver_at
	Held      int // waiting for release

	// The counts are incomplete: there are more than MaxCounted.
	MoreWaiting, MoreHeld bool

	NextAt time.Time // when the next waiting delivery is due; in the past if it is under way; zero for none
	Oldest time.Time // when the oldest counted delivery was accepted, without scheduled ones; zero for none
}

// Empty reports whether nothing waits for the endpoint.
func (b *Backlog) Empty() bool {
	return b.Waiting()+b.Scheduled+b.Held == 0 && !b.MoreWaiting && !b.MoreHeld
}

// Waiting is the number of deliveries that wait for a retry or for admission.
func (b *Backlog) Waiting() int { return b.Retrying + b.Deferred }

// MaxListed is the number up to which a list of endpoints counts the deliveries that wait for each.
const MaxListed = 100

// Waits is what a list of endpoints says of the deliveries of one.
type Waits struct {
	Waiting     int       // open deliveries, MaxListed at most
	More        bool      // there are more
	LastSuccess time.Time // the minute or hour of the last delivery, of the last days; zero for none
}

// Health is the health of an endpoint and its backlog.
type Health struct {
	Endpoint Endpoint
	Observed Observation
	Known    bool // a process has an observation; else Observed is zero
	Stale    bool // the process that admits the requests did not answer: Observed is what it shared last, if anything
	Backlog  Backlog
	// History counts the attempts of the last HistorySpan, as all processes have stored them.
	History Counts
	// Verdicts counts what the endpoint's filter said of the last VerdictsSeen events of its types, within MinutesKept and since the
	// endpoint was changed; zero without a filter.
	Verdicts Counts
	// LastFailure is the newest failed attempt of the deliveries that are open or dead letters; nil if
	// there is none.
	LastFailure *LastFailure
}

// VerdictsSeen is of how many events a filter has to match none before the health says so.
const VerdictsSeen = 1000

// MatchesNothing reports that the endpoint's filter kept out each of the last VerdictsSeen events.
func (h *Health) MatchesNothing() bool {
	return h.Endpoint.Filter != nil && h.Verdicts.FilterMatched == 0 && h.Verdicts.Filtered >= VerdictsSeen
}

// LastFailure is the last failed attempt to an endpoint, as it is stored.
type LastFailure struct {
	Reason string
	At     time.Time
	Error  string // Attempt.Error
	Times
}

// Timeout is the timeout of the next request; 0 if it is automatic and no process has
// reported one.
func (h *Health) Timeout() time.Duration {
	if h.Endpoint.AutoTimeout {
		return h.Observed.Timeout
	}
	return h.Endpoint.Timeout
}

// Rate is the number of requests per second that are allowed now.
func (h *Health) Rate() float64 {
	switch {
	case h.Endpoint.State != EndpointActive:
		return 0
	case !h.Known:
		return h.Endpoint.RateLimit
	}
	return h.Observed.Rate
}
