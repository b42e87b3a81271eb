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

// ReplaySource is the kind of deliveries or events that a replay sends again.
type ReplaySource uint8

// The sources.
const (
	ReplayDeadLetters ReplaySource = 1 // dead letters
	ReplayEvents      ReplaySource = 3 // past events, to one endpoint
)

// String is the source's name in the API.
func (s ReplaySource) String() string {
	switch s {
	case ReplayDeadLetters:
		return "dead_letters"
	case ReplayEvents:
		return "events"
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// ReplaySources returns all sources.
func ReplaySources() []ReplaySource {
	return []ReplaySource{ReplayDeadLetters, ReplayEvents}
}

// ParseReplaySource parses a source's name.
func ParseReplaySource(name string) (ReplaySource, bool) {
	at := slices.IndexFunc(ReplaySources(), func(s ReplaySource) bool { return s.String() == name })
	if at < 0 {
		return 0, false
	}
	return ReplaySources()[at], true
}

// MarshalText implements encoding.TextMarshaler.
func (s ReplaySource) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReplayState is the state of a replay.
type ReplayState uint8

// The states of a replay.
const (
	ReplayRunning   ReplayState = iota
	ReplayPaused                // by a command, or automatically because too many first attempts fail
	ReplayCompleted             // every delivery is released and has a first outcome
	ReplayCancelled             // by a command; released deliveries continue
	ReplayQueued                // waits until fewer replays run; it has no workflow
)

// ReplayStates returns all states, in the order in which a replay may have them.
func ReplayStates() []ReplayState {
	return []ReplayState{ReplayQueued, ReplayRunning, ReplayPaused, ReplayCompleted, ReplayCancelled}
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
	case ReplayQueued:
		return "queued"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Open reports whether the replay may still release deliveries.
func (s ReplayState) Open() bool { return s == ReplayQueued || s == ReplayRunning || s == ReplayPaused }

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

// ReplayAction is a command to a replay, other than a change of its rate.
type ReplayAction uint8

// The actions. ReplayKeep means that no action is requested.
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

// ReplayCommand is a command to a replay that is not acknowledged yet. Commands that arrive
// together are merged: the latest action, unless an earlier one was cancel, and the latest
// rate.
type ReplayCommand struct {
	ID     int64        `json:"id,omitempty"` // increases by one with each command
	Action ReplayAction `json:"action,omitempty"`
	Rate   int          `json:"rate,omitempty"` // per minute; 0: unchanged
}

// Pending reports whether a command waits for acknowledgement.
func (c ReplayCommand) Pending() bool { return c.Action != ReplayKeep || c.Rate != 0 }

// Stops reports whether the command forbids further releases.
func (c ReplayCommand) Stops() bool { return c.Action == ReplayPause || c.Action == ReplayCancel }

// ReplayFilter narrows what a replay sends again. A zero field does not narrow it.
type ReplayFilter struct {
	EndpointID   EndpointID
	EventType    string    // a filter as in an endpoint's event_types
	Reason       string    // of the dead letter
	Status       int       // of the dead letter's last outcome
	Since, Until time.Time // Since <= created_at of the delivery or event < Until

	EndedSince, EndedUntil time.Time // EndedSince <= when the dead letter was given up < EndedUntil

	// IncludeUnmatched adds events whose type the endpoint's filters do not match. Events
	// with endpoint_ids of other endpoints and operational events stay excluded.
	IncludeUnmatched bool
}

// ReplayCounts is the progress of a replay.
type ReplayCounts struct {
	// Total is the size of the set when the replay was created; nil if that was too large to
	// count, until the last one is released.
	Total    *int64 `json:"total,omitempty"`
	Released int64  `json:"released"`
	// Skipped counts what is not released: its endpoint was deleted; or, known when the
	// last one is released, it had been discarded or replayed before.
	Skipped   int64 `json:"skipped"`
	Delivered int64 `json:"delivered"` // by the first attempt after the release
	Failed    int64 `json:"failed"`    // the first attempt failed, or the delivery ended without one
}

// Waiting is the number of released deliveries without a first outcome.
func (c ReplayCounts) Waiting() int64 { return c.Released - c.Delivered - c.Failed }

// Replay is a set of deliveries that is sent again at a limited rate.
type Replay struct {
	ReplayCounts

	ID          ReplayID
	TenantID    string
	Source      ReplaySource
	Filter      ReplayFilter
	Asked       int // requested rate per minute
	Rate        int // current rate per minute
	Ramp        bool
	State       ReplayState
	StateReason string // why it is paused or cancelled
	Command     ReplayCommand
	Started     bool // its workflow has run
	CreatedAt   time.Time
	CompletedAt time.Time // zero while the replay is open
}

// WorkflowID is the id of the replay's workflow.
func (r Replay) WorkflowID() string { return "replay/" + r.ID.String() }

// ReplayBatch requests the release of the next deliveries of a replay.
type ReplayBatch struct {
	ID    ReplayID
	Seq   int64 // the stored Seq plus one, so that a repeated request has no further effect
	Limit int
	Now   time.Time
}

// ReplayStep is one change of a replay's state, made by its workflow.
type ReplayStep struct {
	ID          ReplayID    `json:"id"`
	Seq         int64       `json:"seq"`
	State       ReplayState `json:"state"`
	Reason      string      `json:"reason,omitempty"`
	Asked       int         `json:"asked"`
	Rate        int         `json:"rate"`
	CommandDone int64       `json:"command_done,omitempty"` // the highest command id that is acknowledged
}

// ReplayStatus is the status of a replay in the store. It overrides what the workflow knows.
type ReplayStatus struct {
	ReplayCounts

	Seq     int64         `json:"seq"` // of the last step or batch
	State   ReplayState   `json:"state"`
	Reason  string        `json:"reason,omitempty"`
	Asked   int           `json:"asked"`
	Rate    int           `json:"rate"`
	Ceiling int           `json:"ceiling"` // the largest rate that the endpoint allows, per minute
	Ramp    bool          `json:"ramp,omitempty"`
	Command ReplayCommand `json:"command,omitzero"`
	// Exhausted: the last delivery of the set has been released.
	Exhausted bool `json:"exhausted,omitempty"`
	// Behind: nothing was released, because other deliveries wait longer than usual for their start.
	Behind bool `json:"behind,omitempty"`
	// CheckAt is when the next first outcome is expected; zero if none is pending.
	CheckAt time.Time `json:"check_at,omitzero"`
}
