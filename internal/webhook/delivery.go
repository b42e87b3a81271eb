package webhook

import (
	"cmp"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// Reasons of an end without a final attempt. Package retry declares the reasons of attempts.
const (
	ReasonEndpointDeleted = string(retry.ReasonEndpointDeleted)
	ReasonRetention       = string(retry.ReasonRetention)
	ReasonCancelled       = "cancelled"                    // no reason was given
	ReasonDiscarded       = "discarded"                    // no reason was given
	ReasonUnknown         = "unknown_delivery"             // a workflow names a delivery that is not stored: it ends, and nothing is written
	ReasonTerminated      = string(retry.ReasonTerminated) // the workflow was terminated from outside
	ReasonHeldExpired     = string(retry.ReasonHeldExpired)
	ReasonDeferredExpired = string(retry.ReasonDeferredExpired) // admission did not permit an attempt before the give-up time
)

// Reasons of a hold. A deferred delivery has the reason of admission instead.
const (
	ReasonBacklog  = "backlog" // the endpoint has more waiting deliveries than it can receive soon
	ReasonPaused   = "endpoint_paused"
	ReasonDisabled = "endpoint_disabled"
	ReasonInternal = string(retry.ReasonInternal) // an internal fault prevents requests to the endpoint; also the reason of an end at the give-up time
)

// Progress is the state of a delivery, as its workflow holds it and as the store holds it.
// Run and Seq order the steps: a step with a smaller pair never replaces one with a greater
// pair.
type Progress struct {
	Run         int           `json:"run"`           // 1 for the first run; each replay adds one
	Seq         int           `json:"seq,omitempty"` // steps recorded in this run
	State       State         `json:"state"`
	Reason      string        `json:"reason,omitempty"`       // of the end, or of a wait that is not a retry delay
	Attempts    int           `json:"attempts,omitempty"`     // over all runs
	RunAttempts int           `json:"run_attempts,omitempty"` // in this run; max_attempts limits it
	Ambiguous   int           `json:"ambiguous,omitempty"`    // consecutive ambiguous outcomes
	Delay       time.Duration `json:"delay,omitempty"`        // the last computed delay, needed for decorrelated jitter
	DueAt       time.Time     `json:"due_at,omitzero"`        // of the next attempt; zero: none, or immediately
	// GiveUpAt is set when the event is accepted or the delivery is replayed. It moves by the time for which the clock has stood still.
	GiveUpAt time.Time `json:"give_up_at,omitzero"`

	// HeldAt is since when the clock that runs towards GiveUpAt stands still: while a person or Everpost itself holds the delivery. Zero: it
	// runs. The next step lets it run again.
	HeldAt time.Time `json:"held_at,omitzero"`
	// HeldFor is for how long it has stood still in this run, without the time since HeldAt.
	HeldFor time.Duration `json:"held_for,omitempty"`
	// HeldUntil is when a held delivery is given up unless it is released before. Zero: not held, or held by a process that did not know it;
	// then it is GiveUpAt.
	HeldUntil time.Time `json:"held_until,omitzero"`
}

// StopsClock reports whether the clock of a delivery stands still while it is held for the reason: a person or Everpost keeps it from being
// sent. It runs while the delivery waits behind others.
func StopsClock(reason string) bool {
	return reason == ReasonPaused || reason == ReasonDisabled || reason == ReasonInternal
}

// ClockRunning returns p with its clock running from now on.
func (p Progress) ClockRunning(now time.Time) Progress {
	if p.HeldAt.IsZero() {
		return p
	}
	stood := max(0, now.Sub(p.HeldAt)).Truncate(time.Microsecond)
	p.GiveUpAt, p.HeldFor, p.HeldAt = p.GiveUpAt.Add(stood), p.HeldFor+stood, time.Time{}
	return p
}

// Holding returns p held from now on, for a reason. maxHeld bounds the time for which the clock stands still in a run.
func (p Progress) Holding(reason string, now time.Time, maxHeld time.Duration) Progress {
	p = p.ClockRunning(now)
	p.State, p.Reason, p.DueAt, p.HeldUntil = StateHeld, reason, time.Time{}, p.GiveUpAt
	if StopsClock(reason) {
		p.HeldAt = now.UTC().Truncate(time.Microsecond)
		p.HeldUntil = p.HeldAt.Add(max(0, maxHeld-p.HeldFor))
	}
	return p
}

// Expires is when the delivery is given up if nothing changes: a held one at the end of its hold, any other at GiveUpAt.
func (p Progress) Expires() time.Time {
	if p.State == StateHeld && !p.HeldUntil.IsZero() {
		return p.HeldUntil
	}
	return p.GiveUpAt
}

// Expired reports whether the time of the delivery has passed: no attempt begins any more.
func (p Progress) Expired(now time.Time) bool {
	return now.After(p.ClockRunning(now).GiveUpAt) || p.State == StateHeld && now.After(p.Expires())
}

// BeganAt is when the run began, under a policy that gives up after so long. After a change of the policy it is off by as much.
func (p Progress) BeganAt(giveUpAfter time.Duration) time.Time {
	return p.GiveUpAt.Add(-p.HeldFor - giveUpAfter)
}

// After reports whether p is a later step than q.
func (p Progress) After(q Progress) bool {
	return p.Run > q.Run || p.Run == q.Run && p.Seq > q.Seq
}

// Deferred reports whether admission deferred the next attempt to DueAt.
func (p Progress) Deferred() bool {
	return p.Reason != "" && !p.DueAt.IsZero() && (p.State == StatePending || p.State == StateRetrying)
}

// WaitingUntil returns p with another time of the next attempt. A held delivery then waits for that
// time and no longer for a release, so its state is again the one that it had before the hold, and its clock runs.
func (p Progress) WaitingUntil(now, at time.Time) Progress {
	p.DueAt = at
	if p.State != StateHeld {
		return p
	}
	p = p.ClockRunning(now)
	p.State, p.Reason, p.HeldUntil = StatePending, "", time.Time{}
	if p.RunAttempts > 0 {
		p.State = StateRetrying
	}
	return p
}

// PendingCommand is a command that is stored with a delivery until a step acknowledges it.
type PendingCommand struct {
	ID      int64     `json:"id"` // increases by one with each command of the delivery
	Command Command   `json:"command"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"` // for reschedule: the new time
	// Earlier is the workflow that keeps the dead letter, for replay when it has just been stored; "" if there is none.
	Earlier string `json:"-"`
}

// Step is one change of a delivery in the store. It is applied in one transaction. If the
// stored progress is later, nothing is written.
type Step struct {
	Ref
	Progress

	WorkflowID  string
	Claimant    string   // the writing process; "" if the process holds no claim
	LastError   string   // an internal failure; "" for none
	CommandDone int64    // the highest command id that is acknowledged
	Attempt     *Attempt // the attempt of this step; nil for none
	// KeepOutbox keeps the outbox row, because no workflow has been started for the delivery yet.
	KeepOutbox bool `json:"-"`
	// Known: the delivery has been found in the store, by a claim or a fresh token. The store does not look for it again.
	Known bool `json:"-"`
	// Unsent: the writing process has claimed the attempt and sent nothing. The step ends the claim.
	Unsent bool `json:"-"`
	// Overrides: the attempt was delivered, and takes the place of the same attempt of another process, which was not.
	Overrides bool `json:"-"`
}

// SetDeadLettered makes the delivery a dead letter, which the given workflow keeps: its own by default. Every delivery that
// is given up comes here. The reason is one of retry's or of this package's.
func (s *Step) SetDeadLettered(reason, keptIn string) {
	s.State, s.Reason, s.DueAt = StateDeadLettered, reason, time.Time{}
	s.WorkflowID = cmp.Or(keptIn, s.Ref.WorkflowID(s.Run))
}

// Claim requests the exclusive right to send one attempt.
type Claim struct {
	Ref
	Progress // of the claimant; the claim is refused if the stored progress is later

	WorkflowID string
	Claimant   string        // the claiming process
	For        time.Duration // how long the claim is valid
	KeepOutbox bool          // see Step.KeepOutbox
}

// DeliveryStatus is the status of a delivery in the store.
type DeliveryStatus struct {
	Progress

	WorkflowID string         // the workflow that drives the delivery; "" while it is held
	Command    PendingCommand // zero for none
	// ClaimedUntil is when another process's claim ends; zero if there is none. A step that
	// ends or holds the delivery without an attempt is refused until then, and only then its
	// result has this time.
	ClaimedUntil time.Time `json:"OwnedUntil"` //nolint:tagliatelle // the name in recorded histories
	// Applied says that this write has changed the delivery. A repeated write changes nothing.
	Applied bool `json:"-"`
}

// LastOutcome summarises the newest attempt.
type LastOutcome struct {
	Decision   retry.Decision `json:"decision"`
	Reason     string         `json:"reason"`
	Status     int            `json:"status,omitempty"` // 0 for none
	Latency    time.Duration  `json:"latency,omitempty"`
	At         time.Time      `json:"at,omitzero"`           // of the answer, or of what ended it
	RetryAfter time.Duration  `json:"retry_after,omitempty"` // 0 for none
}

// LastOutcomeOf is the summary of an attempt.
func LastOutcomeOf(a *Attempt) *LastOutcome {
	return &LastOutcome{
		Decision: a.Outcome.Decision, Reason: string(a.Outcome.Reason), Status: a.Outcome.Status, Latency: a.Latency,
		At: a.StartedAt.Add(a.Latency), RetryAfter: a.Outcome.RetryAfter,
	}
}

// String is the response in few words: "503, Retry-After 30s". It is "" for nil.
func (o *LastOutcome) String() string {
	if o == nil {
		return ""
	}
	text := o.Reason
	if o.Status != 0 {
		text = strconv.Itoa(o.Status)
	}
	if o.RetryAfter > 0 {
		text += ", Retry-After " + retry.FormatDuration(o.RetryAfter.Round(time.Second))
	}
	return text
}

// Delivery is one event for one endpoint, as the store returns it.
type Delivery struct {
	Ref
	Progress

	LastOutcome *LastOutcome // nil before the first attempt
	LastError   string
	CreatedAt   time.Time
	CompletedAt time.Time // zero while the delivery is open
	// ClaimedUntil is when the claim of the process that makes an attempt ends; zero without a claim.
	ClaimedUntil time.Time
	WorkflowID   string
}

// Attempt is one HTTP request of a delivery.
type Attempt struct {
	Number    int
	Run       int
	StartedAt time.Time
	Latency   time.Duration
	Times     Times
	Outcome   retry.Outcome
	Error     string // class and cause, never the endpoint's URL; "" when a response was received that is no redirect

	// WaitedFor is what it waited for beyond its retry delay, the last such reason if there were several: a Reason of a wait;
	// "" if it did not wait.
	WaitedFor string
	// Late is how long after its due time it began, without what it waited for: Everpost itself, PostgreSQL or Temporal did
	// not keep up, or were away. It is 0 below a second for the first attempt and six for others, and if no due time is known.
	Late time.Duration

	Delay       time.Duration // until the next attempt; 0 for none
	DelaySource string        // backoff, retry_after, deadline or ambiguous; "" for none
	Nominal     time.Duration // Delay before jitter

	RequestHeaders  map[string]string
	ResponseHeaders map[string][]string
	ResponseBody    []byte // at most 16 KiB
	Truncated       bool
}

// Times is where the time of an attempt went. All are zero when nothing is known, and before 1 µs.
// What is missing to the latency went to a token, or to the sender itself.
type Times struct {
	Names      time.Duration `json:"names_ns,omitempty"`      // looking up the host name; 0 for an address
	Connecting time.Duration `json:"connecting_ns,omitempty"` // to an address, through the egress proxy if there is one; 0 over a kept connection
	TLS        time.Duration `json:"tls_ns,omitempty"`        // the handshake
	Waiting    time.Duration `json:"waiting_ns,omitempty"`    // from the request's first byte to the end of the answer, or of the wait for it
}

// Sum is the sum of the four.
func (t Times) Sum() time.Duration { return t.Names + t.Connecting + t.TLS + t.Waiting }

// RedirectError begins the Error of an attempt that was answered with a redirect; scheme, host and path of the target follow.
const RedirectError = "redirect: "

// DeliveryAttempt is an attempt with its delivery.
type DeliveryAttempt struct {
	Attempt

	DeliveryID DeliveryID
}

// ClaimResult is the result of a claim, with the data that the request needs.
type ClaimResult struct {
	Granted bool
	Status  DeliveryStatus
	Payload []byte // nil if it was removed
	SHA256  []byte
	EventAt time.Time         // creation time of the event; zero without a payload
	Headers map[string]string // of the event's requests; nil for none
	// Sequence is the delivery's place in its line; zero if it is not numbered.
	Sequence Sequence
}

// CommandedDelivery is a delivery with a pending command.
type CommandedDelivery struct {
	Delivery  Delivery
	Command   PendingCommand
	Signalled int  // how often the signal was repeated; 0: not yet
	Waiting   bool // the outbox has the delivery: its start finds the command
}
