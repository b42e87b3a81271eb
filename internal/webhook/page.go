package webhook

import "time"

// Page asks for one page of a list, newest first.
type Page struct {
	Limit int      // 1 to 250
	After [16]byte // only entries older than this id; zero: from the newest
}

// EventFilter narrows a list of events. Zero fields do not narrow.
type EventFilter struct {
	Type         string
	ExternalID   string
	Since, Until time.Time // created_at in [Since, Until)
}

// DeliveryFilter narrows a list of deliveries. Zero fields do not narrow.
type DeliveryFilter struct {
	States       []State // any of these
	EndpointID   EndpointID
	EventID      EventID
	EventType    string
	Reason       string    // of the delivery's end
	Status       int       // of the last outcome
	Since, Until time.Time // created_at in [Since, Until)
}
