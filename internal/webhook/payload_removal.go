package webhook

import "time"

// The reasons of a removal.
const (
	PayloadErased   = "erased"    // on request
	PayloadRetained = "retention" // the tenant's retention of payloads has passed
)

// MaxErasures is the number of events that one request can name to erase their payloads.
const MaxErasures = 100

// ReasonPayloadErased is the reason of a delivery that was cancelled because its payload was erased.
const ReasonPayloadErased = "payload_erased"

// PayloadRemoval says when and why an event's payload was removed. It is zero while the payload is kept.
type PayloadRemoval struct {
	At     time.Time
	Reason string
}

// IsZero reports whether the payload is kept.
func (r PayloadRemoval) IsZero() bool { return r.At.IsZero() }

// String says what happened to the payload: "its payload was erased on request at 2026-01-31 09:30:00 UTC".
func (r PayloadRemoval) String() string {
	how := "was removed"
	switch r.Reason {
	case PayloadErased:
		how = "was erased on request"
	case PayloadRetained:
		how = "was removed by retention"
	}
	return "its payload " + how + " at " + r.At.UTC().Format("2006-01-02 15:04:05 UTC")
}

// PayloadErasure names the events whose payloads are to be erased, by id or by external id.
type PayloadErasure struct {
	IDs         []EventID
	ExternalIDs []string
	// Cancel cancels deliveries that are open. Without it they are a CodeConflict.
	Cancel bool
}

// ErasedPayload is one event of an erasure.
type ErasedPayload struct {
	ExternalID string
	EventID    EventID // zero: no event has the external id
	Removed    PayloadRemoval
}
