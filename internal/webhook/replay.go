package webhook

import (
	"fmt"
	"slices"
	"time"
)

// Rates of a replay, in deliveries per minute.
const (
	DefaultReplayRate = 100
	MaxReplayRate     = 60_000
)

// ReplaySource says what a replay sends again.
type ReplaySource uint8

// The sources.
const (
	ReplayDeadLetters ReplaySource = iota + 1 // dead letters
	ReplayHeld                                // deliveries that are held
	ReplayEvents                              // past events, to one endpoint
)

// String is the source's name in the API.
func (s ReplaySource) String() string {
	switch s {
	case ReplayDeadLetters:
		return "dead_letters"
	case ReplayHeld:
		return "held"
	case ReplayEvents:
		return "events"
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// ReplaySources are all sources.
func ReplaySources() []ReplaySource {
	return []ReplaySource{ReplayDeadLetters, ReplayHeld, ReplayEvents}
}

// ParseReplaySource reads a source's name.
func ParseReplaySource(name string) (ReplaySource, bool) {
	at := slices.IndexFunc(ReplaySources(), func(s ReplaySource) bool { return s.String() == name })
	if at < 0 {
		return 0, false
	}
	return ReplaySources()[at], true
}

// MarshalText implements encoding.TextMarshaler.
func (s ReplaySource) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReplayState is where a replay stands.
type ReplayState uint8

// The states of a replay.
const (
	ReplayRunning   ReplayState = iota
	ReplayPaused                // by a person, or by itself because too many first attempts fail
	ReplayCompleted             // all are released, and each has its first outcome
	ReplayCancelled             // by a person; what was released goes on
)

// ReplayStates are all states in order.
func ReplayStates() []ReplayState {
	return []ReplayState{ReplayRunning, ReplayPaused, ReplayCompleted, ReplayCancelled}
}

// String is the state's name in the API.
func (s ReplayState) String() string {
	switch s {
	case ReplayRunning:
		return "running"
	case ReplayPaused:
		return "paused"
	case ReplayCompleted:
		return "completed"
	case ReplayCancelled:
		return "cancelled"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Open reports whether the replay may still release something.
func (s ReplayState) Open() bool { return s == ReplayRunning || s == ReplayPaused }

// MarshalText implements encoding.TextMarshaler.
func (s ReplayState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *ReplayState) UnmarshalText(text []byte) error {
	for _, known := range ReplayStates() {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("unknown state %q", text)
}

// ReplayAction is what a person may ask of a replay, beside another rate.
type ReplayAction uint8

// The actions. ReplayKeep is "nothing asked".
const (
	ReplayKeep ReplayAction = iota
	ReplayPause
	ReplayResume
	ReplayCancel
)

// String is the action's name in the API.
func (a ReplayAction) String() string {
	switch a {
	case ReplayKeep:
		return ""
	case ReplayPause:
		return "pause"
	case ReplayResume:
		return "resume"
	case ReplayCancel:
		return "cancel"
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// MarshalText implements encoding.TextMarshaler.
func (a ReplayAction) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *ReplayAction) UnmarshalText(text []byte) error {
	for _, known := range []ReplayAction{ReplayKeep, ReplayPause, ReplayResume, ReplayCancel} {
		if known.String() == string(text) {
			*a = known
			return nil
		}
	}
	return fmt.Errorf("unknown action %q", text)
}

// ReplayCommand is what was asked of a replay and is not answered yet. Several that
// come together are one: the latest action, unless that was cancel, and the latest
// rate.
type ReplayCommand struct {
	ID     int64        `json:"id,omitempty"` // grows by one with everything that is asked
	Action ReplayAction `json:"action,omitempty"`
	Rate   int          `json:"rate,omitempty"` // per minute; 0: as it is
}

// Pending reports whether there is anything to be answered.
func (c ReplayCommand) Pending() bool { return c.Action != ReplayKeep || c.Rate != 0 }

// Stops reports whether nothing may be released until the command is answered.
func (c ReplayCommand) Stops() bool { return c.Action == ReplayPause || c.Action == ReplayCancel }

// ReplayFilter narrows what a replay sends again. Zero fields do not narrow.
type ReplayFilter struct {
	EndpointID   EndpointID
	EventType    string    // a filter as in an endpoint's event_types
	Reason       string    // of a dead letter
	Status       int       // of a dead letter's last outcome
	Since, Until time.Time // created_at of the delivery or event in [Since, Until)

	// IncludeUnmatched widens a replay of events: also types that the endpoint did not ask
	// for, but neither what named other endpoints nor operational events.
	IncludeUnmatched bool
}

// ReplayCounts is how far a replay has come.
type ReplayCounts struct {
	// Total is how many there were when the replay was made; nil when they were too
	// many to be counted, until the last one is released.
	Total    *int64 `json:"total,omitempty"`
	Released int64  `json:"released"`
	// Skipped is what is not released: its endpoint was deleted; or, known when the
	// last one is released, it had been discarded or replayed by then.
	Skipped   int64 `json:"skipped"`
	Delivered int64 `json:"delivered"` // by the first attempt after the release
	Failed    int64 `json:"failed"`    // its first attempt failed, or it ended without one
}

// Waiting is how many were released and have no first outcome yet.
func (c ReplayCounts) Waiting() int64 { return c.Released - c.Delivered - c.Failed }

// Replay is a set of deliveries that is being sent again, paced.
type Replay struct {
	ReplayCounts

	ID          ReplayID
	TenantID    string
	Source      ReplaySource
	Filter      ReplayFilter
	Asked       int // rate per minute that a person asked for
	Rate        int // rate per minute that is in force
	Ramp        bool
	State       ReplayState
	StateReason string // why it is paused or cancelled
	Command     ReplayCommand
	Started     bool // its workflow has been at work
	CreatedAt   time.Time
	CompletedAt time.Time // zero while open
}

// WorkflowID is the id of the replay's workflow.
func (r Replay) WorkflowID() string { return "replay/" + r.ID.String() }

// ReplayBatch asks for the next of a replay's set to be released.
type ReplayBatch struct {
	ID    ReplayID
	Seq   int64 // one more than the record's: done once, however often it is asked
	Limit int
	Now   time.Time
}

// ReplayStep is one change of where a replay stands, made by its workflow.
type ReplayStep struct {
	ID          ReplayID    `json:"id"`
	Seq         int64       `json:"seq"`
	State       ReplayState `json:"state"`
	Reason      string      `json:"reason,omitempty"`
	Asked       int         `json:"asked"`
	Rate        int         `json:"rate"`
	CommandDone int64       `json:"command_done,omitempty"` // commands up to this id have been seen
}

// ReplayStanding is what the record says of a replay. It rules.
type ReplayStanding struct {
	ReplayCounts

	Seq     int64         `json:"seq"` // of the last step or batch
	State   ReplayState   `json:"state"`
	Reason  string        `json:"reason,omitempty"`
	Asked   int           `json:"asked"`
	Rate    int           `json:"rate"`
	Ceiling int           `json:"ceiling"` // no rate is above it: what the endpoint takes per minute
	Ramp    bool          `json:"ramp,omitempty"`
	Command ReplayCommand `json:"command,omitzero"`
	// Exhausted: the last one of the set has been released.
	Exhausted bool `json:"exhausted,omitempty"`
	// Behind: nothing was released, because deliveries wait longer than usual for their start.
	Behind bool `json:"behind,omitempty"`
	// LookAt is when the next first outcome may be there; zero when none is awaited.
	LookAt time.Time `json:"look_at,omitzero"`
}
