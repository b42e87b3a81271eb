package webhook

import "fmt"

// State is the state of a delivery.
type State uint8

// The states. docs/delivery-states.md has their transitions.
const (
	StatePending      State = iota // no attempt is stored in this run
	StateRetrying                  // an attempt failed; another one follows
	StateHeld                      // its endpoint is paused or disabled, or has too many waiting deliveries
	StateDelivered                 // the receiver answered 2xx
	StateDeadLettered              // no more attempts, until replay, discard or retention
	StateCancelled                 // by a command, or because its endpoint was deleted
	StateDiscarded                 // a discarded dead letter
	stateCount
)

// States returns all states in order.
func States() []State {
	all := make([]State, 0, stateCount)
	for s := range stateCount {
		all = append(all, s)
	}
	return all
}

// String is the state's name in the API.
func (s State) String() string {
	switch s {
	case StatePending:
		return "pending"
	case StateRetrying:
		return "retrying"
	case StateHeld:
		return "held"
	case StateDelivered:
		return "delivered"
	case StateDeadLettered:
		return "dead_lettered"
	case StateCancelled:
		return "cancelled"
	case StateDiscarded:
		return "discarded"
	case stateCount:
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// ParseState parses a state's name.
func ParseState(name string) (State, bool) {
	for _, s := range States() {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

// Open reports whether the delivery still has attempts to come without a command.
func (s State) Open() bool { return s == StatePending || s == StateRetrying || s == StateHeld }

// Final reports whether the state is the last one of a run. A dead letter can still be
// discarded.
func (s State) Final() bool {
	return s == StateDelivered || s == StateCancelled || s == StateDiscarded
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	parsed, ok := ParseState(string(text))
	if !ok {
		return fmt.Errorf("unknown state %q", text)
	}
	*s = parsed
	return nil
}

// Command is a command to a delivery.
type Command uint8

// The commands. CommandNone means that no command is pending.
const (
	CommandNone Command = iota
	CommandCancel
	CommandRetry
	CommandReschedule
	CommandReplay
	CommandDiscard
)

// String is the command's name in the API and in the store.
func (c Command) String() string {
	switch c {
	case CommandNone:
		return ""
	case CommandCancel:
		return "cancel"
	case CommandRetry:
		return "retry"
	case CommandReschedule:
		return "reschedule"
	case CommandReplay:
		return "replay"
	case CommandDiscard:
		return "discard"
	}
	return fmt.Sprintf("command(%d)", uint8(c))
}

// MarshalText implements encoding.TextMarshaler.
func (c Command) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Command) UnmarshalText(text []byte) error {
	for _, known := range []Command{CommandNone, CommandCancel, CommandRetry, CommandReschedule, CommandReplay, CommandDiscard} {
		if known.String() == string(text) {
			*c = known
			return nil
		}
	}
	return fmt.Errorf("unknown command %q", text)
}

// TakenIn reports whether a delivery in the state accepts the command. scheduled says that
// the delivery waits for its next attempt or for deliver_at. Retrying a held delivery also
// needs an active endpoint, which TakenIn does not check.
func (c Command) TakenIn(s State, scheduled bool) bool {
	switch c {
	case CommandCancel:
		return s.Open()
	case CommandRetry, CommandReschedule:
		return s == StateRetrying || s == StateHeld || s == StatePending && scheduled
	case CommandReplay:
		return s == StateDelivered || s == StateDeadLettered || s == StateCancelled || s == StateDiscarded
	case CommandDiscard:
		return s == StateDeadLettered
	case CommandNone:
	}
	return false
}
