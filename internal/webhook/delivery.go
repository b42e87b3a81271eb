package webhook

import (
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// Reasons of an end that no attempt brought about; the others are retry's.
const (
	ReasonEndpointDeleted = "endpoint_deleted"
	ReasonRetention       = "retention"
	ReasonCancelled       = "cancelled"  // cancelled without a reason given
	ReasonDiscarded       = "discarded"  // discarded without a reason given
	ReasonTerminated      = "terminated" // somebody terminated its workflow
	ReasonHeldExpired     = "held_expired"
	ReasonDeferredExpired = "deferred_expired" // its turn did not come before its give-up time
)

// Reasons of a hold. While a delivery is deferred, its reason is the gate's.
const (
	ReasonBacklog  = "backlog" // more waits for the endpoint than fits into the next minutes
	ReasonPaused   = "endpoint_paused"
	ReasonDisabled = "endpoint_disabled"
	ReasonInternal = string(retry.ReasonInternal) // a fault of our own keeps the endpoint from being sent to; also of an end at the give-up time
)

// Progress is what the owner of a delivery carries from step to step, and what
// its record says: where it stands and how far it has come. Run and Seq order the
// steps; a step with a smaller pair is never applied over a greater one.
type Progress struct {
	Run         int           `json:"run"`           // 1, and one more for each replay
	Seq         int           `json:"seq,omitempty"` // steps recorded in this run
	State       State         `json:"state"`
	Reason      string        `json:"reason,omitempty"`       // of the end, or of a wait that is not its own retry's
	Attempts    int           `json:"attempts,omitempty"`     // over all runs; the next one's number is one more
	RunAttempts int           `json:"run_attempts,omitempty"` // in this run: what max_attempts bounds
	Ambiguous   int           `json:"ambiguous,omitempty"`    // consecutive ambiguous outcomes
	Delay       time.Duration `json:"delay,omitempty"`        // the last computed delay (decorrelated jitter needs it)
	DueAt       time.Time     `json:"due_at,omitzero"`        // of the next attempt; zero when there is none or at once
	GiveUpAt    time.Time     `json:"give_up_at,omitzero"`    // fixed at acceptance or replay
}

// After reports whether p is a later step than q.
func (p Progress) After(q Progress) bool {
	return p.Run > q.Run || p.Run == q.Run && p.Seq > q.Seq
}

// Deferred reports whether the delivery has been told by the gate to come back at DueAt.
func (p Progress) Deferred() bool {
	return p.Reason != "" && !p.DueAt.IsZero() && (p.State == StatePending || p.State == StateRetrying)
}

// PendingCommand is a command as it is stored with a delivery until a step says
// that it was seen.
type PendingCommand struct {
	ID      int64     `json:"id"` // grows by one with each command of the delivery
	Command Command   `json:"command"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"` // reschedule: when
}

// Step is one change of a delivery's record, made by its owner. Everything in it
// is written in one transaction, or, where the record is already further, nothing.
type Step struct {
	Ref
	Progress

	WorkflowID  string
	Owner       string   // the process that writes it; "" is no process that holds a claim
	LastError   string   // our own failure, "" for none
	CommandDone int64    // commands up to this id have been seen
	Attempt     *Attempt // the attempt that this step records, if any
	// KeepOutbox keeps the outbox row: no workflow has been started for the delivery yet.
	KeepOutbox bool `json:"-"`
}

// Claim asks for the right to send one attempt.
type Claim struct {
	Ref
	Progress // of the claimant: a record that is further refuses

	WorkflowID string
	Owner      string        // the process
	For        time.Duration // how long the right lasts
	KeepOutbox bool          // as in Step
}

// Standing is what the record says of a delivery.
type Standing struct {
	Progress

	WorkflowID string         // of the workflow that goes on with the delivery
	Command    PendingCommand // zero: none
	// OwnedUntil is when another process's right to send ends; zero when nobody
	// else has it. A recorded step is told it when it was refused for that: an end
	// that no attempt brought about waits for the attempt that is under way.
	OwnedUntil time.Time
}

// LastOutcome is the newest attempt in short.
type LastOutcome struct {
	Decision   retry.Decision
	Reason     string
	Status     int // 0: none
	Latency    time.Duration
	At         time.Time
	RetryAfter time.Duration // 0: none
}

// Delivery is one event × one endpoint, as it is read.
type Delivery struct {
	Ref
	Progress

	LastOutcome *LastOutcome // nil before the first
	LastError   string
	CreatedAt   time.Time
	CompletedAt time.Time // zero while open
	WorkflowID  string
}

// Attempt is one HTTP request of a delivery.
type Attempt struct {
	Number    int
	Run       int
	StartedAt time.Time
	Latency   time.Duration
	Outcome   retry.Outcome
	Error     string // class and cause, never a URL; "" when an answer came

	Delay       time.Duration // until the next attempt; 0 when there is none
	DelaySource string        // backoff, retry_after, deadline or ambiguous; "" when there is none
	Nominal     time.Duration // what Delay was before jitter

	RequestHeaders  map[string]string
	ResponseHeaders map[string][]string
	ResponseBody    []byte // ≤ 16 KiB
	Truncated       bool
}

// Begun is what a claim found: the right to send or not, and what sending needs.
type Begun struct {
	Granted  bool
	Standing Standing
	Payload  []byte // nil when retention has removed it
	SHA256   []byte
	EventAt  time.Time // when the event was created; zero without a payload
}

// Commanded is a delivery with a command that no step has answered yet.
type Commanded struct {
	Delivery Delivery
	Command  PendingCommand
	Told     int // how often it was signalled again; 0: it has just been asked
}
