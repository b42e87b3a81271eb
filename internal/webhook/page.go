package webhook

import (
	"bytes"
	"time"
)

// Page selects one page of a list, newest first.
type Page struct {
	Limit int      // 1 to 250
	After [16]byte // only entries older than this id; zero: the newest
}

// EventFilter narrows a list of events. A zero field does not narrow it.
type EventFilter struct {
	Type         string // a filter as in an endpoint's event_types
	ExternalID   string
	Tag          string    // that is one of the event's
	Since, Until time.Time // Since <= created_at < Until
}

// DeliveryFilter narrows a list of deliveries. A zero field does not narrow it.
type DeliveryFilter struct {
	States       []State // any of these
	EndpointID   EndpointID
	EventID      EventID
	EventType    string    // a filter as in an endpoint's event_types
	Reason       string    // of the delivery's end
	Status       int       // of the last outcome
	Since, Until time.Time // Since <= created_at < Until

	EndedSince, EndedUntil time.Time // EndedSince <= completed_at < EndedUntil: open deliveries have not ended
	ExternalID             string    // of the event
}

// AttemptFilter selects attempts: those to an endpoint, or of an event.
type AttemptFilter struct {
	EndpointID EndpointID
	EventID    EventID
}

// Cursor is a position in a list that is ordered by time. The zero value is the beginning.
type Cursor struct {
	At time.Time
	ID DeliveryID
}

// After reports whether c is a later position than d.
func (c Cursor) After(d Cursor) bool {
	return c.At.After(d.At) || c.At.Equal(d.At) && bytes.Compare(c.ID[:], d.ID[:]) > 0
}
