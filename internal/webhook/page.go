package webhook

import (
	"bytes"
	"time"
)

// Page asks for one page of a list, newest first.
type Page struct {
	Limit int      // 1 to 250
	After [16]byte // only entries older than this id; zero: from the newest
}

// EventFilter narrows a list of events. Zero fields do not narrow.
type EventFilter struct {
	Type         string // a filter as in an endpoint's event_types
	ExternalID   string
	Since, Until time.Time // created_at in [Since, Until)
}

// DeliveryFilter narrows a list of deliveries. Zero fields do not narrow.
type DeliveryFilter struct {
	States       []State // any of these
	EndpointID   EndpointID
	EventID      EventID
	EventType    string    // a filter as in an endpoint's event_types
	Reason       string    // of the delivery's end
	Status       int       // of the last outcome
	Since, Until time.Time // created_at in [Since, Until)
}

// Cursor is a place in what is read in the order of a time. The zero one is the beginning.
type Cursor struct {
	At time.Time
	ID DeliveryID
}

// After reports whether c is a later place than d.
func (c Cursor) After(d Cursor) bool {
	return c.At.After(d.At) || c.At.Equal(d.At) && bytes.Compare(c.ID[:], d.ID[:]) > 0
}
