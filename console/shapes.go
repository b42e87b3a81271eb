package console

import (
	"encoding/json"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// What the pages read of the API's JSON. A time that is null is zero.

// explanation describes a situation; its first sentence is the summary beside it.
type explanation struct {
	Cause    string   `json:"cause"`
	Next     string   `json:"next"`
	Remedy   string   `json:"remedy"`
	Operator string   `json:"operator"`
	Actions  []action `json:"actions"`
}

type delivery struct {
	ID            string       `json:"id"`
	EventID       string       `json:"event_id"`
	EndpointID    string       `json:"endpoint_id"`
	EventType     string       `json:"event_type"`
	State         string       `json:"state"`
	Reason        string       `json:"reason"`
	Summary       string       `json:"summary"`
	Run           int          `json:"run"`
	Attempts      int          `json:"attempts"`
	LastOutcome   *outcome     `json:"last_outcome"`
	NextAttemptAt time.Time    `json:"next_attempt_at"`
	GiveUpAt      time.Time    `json:"give_up_at"`
	CreatedAt     time.Time    `json:"created_at"`
	CompletedAt   time.Time    `json:"completed_at"`
	WorkflowID    string       `json:"workflow_id"`
	WorkflowURL   string       `json:"workflow_url"`
	Explanation   *explanation `json:"explanation"`
}

type outcome struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Open reports whether the delivery has not ended.
func (d delivery) Open() bool {
	return d.State == "pending" || d.State == "retrying" || d.State == "held"
}

// attemptTimes is where the time of an attempt went.
type attemptTimes struct {
	NamesMS   int64 `json:"names_ms"`
	ConnectMS int64 `json:"connect_ms"`
	TLSMS     int64 `json:"tls_ms"`
	WaitMS    int64 `json:"wait_ms"`
}

type attempt struct {
	Number            int               `json:"number"`
	Run               int               `json:"run"`
	StartedAt         time.Time         `json:"started_at"`
	LatencyMS         int64             `json:"latency_ms"`
	Times             *attemptTimes     `json:"times"`
	WaitedFor         string            `json:"waited_for"`
	LateMS            int64             `json:"late_ms"`
	Status            int               `json:"status"`
	Decision          string            `json:"decision"`
	Reason            string            `json:"reason"`
	Error             string            `json:"error"`
	DelayMS           *int64            `json:"delay_ms"`
	DelaySource       string            `json:"delay_source"`
	RequestHeaders    map[string]string `json:"request_headers"`
	ResponseHeaders   map[string]string `json:"response_headers"`
	ResponseBody      string            `json:"response_body"`
	ResponseTruncated bool              `json:"response_truncated"`
}

type event struct {
	ID          string         `json:"id"`
	ExternalID  string         `json:"external_id"`
	Type        string         `json:"type"`
	CreatedAt   time.Time      `json:"created_at"`
	DeliverAt   time.Time      `json:"deliver_at"`
	PayloadSize int            `json:"payload_size"`
	Summary     string         `json:"summary"`
	Matched     int            `json:"matched"`
	Deliveries  []deliveryStub `json:"deliveries"`
	Explanation *explanation   `json:"explanation"`
	Removed     *removal       `json:"payload_removed"`
}

type removal struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

type deliveryStub struct {
	ID         string `json:"id"`
	EndpointID string `json:"endpoint_id"`
	State      string `json:"state"`
	Summary    string `json:"summary"`
}

// condition is an endpoint in a list.
type condition struct {
	EndpointID  string   `json:"endpoint_id"`
	URL         string   `json:"url"`
	Description string   `json:"description"`
	EventTypes  []string `json:"event_types"`
	State       string   `json:"state"`
	Summary     string   `json:"summary"`
}

// certificate is an endpoint's client certificate.
type certificate struct {
	MaxTLS string `json:"max_tls"` // "" for any
}

type endpoint struct {
	ID             string            `json:"id"`
	URL            string            `json:"url"`
	EventTypes     []string          `json:"event_types"`
	State          string            `json:"state"`
	Signature      string            `json:"signature"`
	PublicKey      string            `json:"public_key"`
	PayloadFormat  string            `json:"payload_format"`
	Timeout        string            `json:"timeout"`
	MaxInFlight    int               `json:"max_in_flight"`
	RateLimit      float64           `json:"rate_limit_per_second"`
	RetryPolicy    json.RawMessage   `json:"retry_policy"`
	PolicySource   string            `json:"retry_policy_source"`
	CircuitBreaker breaker           `json:"circuit_breaker"`
	AutoDisable    json.RawMessage   `json:"auto_disable"`
	AutoReplay     bool              `json:"auto_replay"`
	Accepted       []int             `json:"success_statuses"`
	Headers        map[string]string `json:"headers"`
	Auth           *endpointAuth     `json:"auth"`
	Certificate    *certificate      `json:"client_certificate"`
	Description    string            `json:"description"`
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      string            `json:"updated_at"`
	Secret         string            `json:"secret"` // of a new endpoint
}

type endpointAuth struct {
	Type string `json:"type"`
}

type breaker struct {
	Enabled      bool    `json:"enabled"`
	Window       string  `json:"window"`
	MinRequests  int     `json:"min_requests"`
	FailureRatio float64 `json:"failure_ratio"`
	Cooldown     string  `json:"cooldown"`
}

// parsed is the breaker with its durations, which the API writes.
func (b breaker) parsed() webhook.CircuitBreaker {
	window, _ := time.ParseDuration(b.Window)
	cooldown, _ := time.ParseDuration(b.Cooldown)
	return webhook.CircuitBreaker{Enabled: b.Enabled, Window: window, MinRequests: b.MinRequests, FailureRatio: b.FailureRatio, Cooldown: cooldown}
}

type health struct {
	Summary       string       `json:"summary"`
	Circuit       circuit      `json:"circuit"`
	RatePerSecond float64      `json:"rate_per_second"`
	Timeout       string       `json:"timeout"`
	LatencyMS     *int64       `json:"latency_ms"`
	SuccessRate   *float64     `json:"success_rate"`
	RetryRatio    *float64     `json:"retry_ratio"`
	InFlight      int          `json:"in_flight"`
	Waiting       int          `json:"waiting"`
	Retrying      int          `json:"retrying"`
	Deferred      int          `json:"deferred"`
	Scheduled     int          `json:"scheduled"`
	Held          int          `json:"held"`
	OldestWaiting time.Time    `json:"oldest_waiting_at"`
	Explanation   *explanation `json:"explanation"`
}

// MoreWaiting and MoreHeld report whether there are more than the API counts.
func (h health) MoreWaiting() bool { return h.Waiting >= webhook.MaxCounted }
func (h health) MoreHeld() bool    { return h.Held >= webhook.MaxCounted }

type circuit struct {
	State string    `json:"state"`
	Since time.Time `json:"since"`
}

// statistics are counts per minute or hour; buckets without any are left out.
type statistics struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Step   string    `json:"step"`
	Totals bucket    `json:"totals"`
	Data   []bucket  `json:"data"`
}

type bucket struct {
	At             time.Time        `json:"at"`
	Attempts       map[string]int64 `json:"attempts"` // by outcome class
	FirstAttempts  int64            `json:"first_attempts"`
	FirstDelivered int64            `json:"first_delivered"`
	Ended          map[string]int64 `json:"ended"` // by state
	LatencyMS      quantiles        `json:"latency_ms"`
}

type quantiles struct {
	P50 *int64 `json:"p50"`
	P95 *int64 `json:"p95"`
}

// attemptsMade is the number of all attempts of a bucket.
func (b bucket) attemptsMade() (n int64) {
	for _, of := range b.Attempts {
		n += of
	}
	return n
}
