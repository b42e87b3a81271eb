package webhook

import (
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/filter"
)

// Limits of an event. api/openapi.yaml documents them.
const (
	DefaultMaxPayload  = 256 << 10 // bytes, unless the installation has another limit
	LargestMaxPayload  = 4 << 20   // bytes that an installation may choose
	MaxTypeLength      = 128
	MaxExternalID      = 255
	MaxIdempotencyKey  = 255
	MaxTargetEndpoints = 1000 // endpoint_ids of one event
	MaxBatchEvents     = 100
)

// ReasonNoMatch is stored with an event that matches no endpoint.
const ReasonNoMatch = "no_matching_endpoint"

// NewEvent is an event as the API accepts it.
type NewEvent struct {
	TenantID    string
	Type        string
	Payload     []byte            // any JSON value, byte for byte
	ExternalID  string            // the caller's id, unique within the tenant; "" for none
	DeliverAt   time.Time         // zero: immediately
	EndpointIDs []EndpointID      // nil: every endpoint that subscribes to the type and whose filter matches
	Headers     map[string]string // of each of its requests, after the endpoint's own; nil for none
	Tags        []string          // nil for none
	Version     int               // of its type in the catalogue; 0: the newest
	OrderingKey string            // which events belong together; "" for none

	IdempotencyKey string            // unique within the tenant; "" for none
	BodySHA256     [sha256.Size]byte // of the request body; a repeated request must have the same
}

// Filtered is what the filters of endpoints see of the event.
func (e *NewEvent) Filtered() *filter.Event {
	return filter.NewEvent(filter.Fields{
		Type: e.Type, ExternalID: e.ExternalID, OrderingKey: e.OrderingKey, Tags: e.Tags, Payload: e.Payload,
	})
}

// NewBatch is a list of events that is stored in one transaction. Their external ids differ.
type NewBatch struct {
	TenantID string
	// Events has 1 to MaxBatchEvents entries. Their TenantID and IdempotencyKey are ignored.
	// The BodySHA256 of each is the hash of its own bytes within the request body.
	Events []NewEvent

	IdempotencyKey string            // of the whole batch; "" for none
	BodySHA256     [sha256.Size]byte // of the whole body
}

// Event is a stored event.
type Event struct {
	ID          EventID
	TenantID    string
	Type        string
	ExternalID  string
	CreatedAt   time.Time
	DeliverAt   time.Time // zero: immediately
	PayloadSize int       // bytes
	EndpointIDs []EndpointID
	Reason      string // why there is no delivery; "" if there is one
	Removed     PayloadRemoval
	Tags        []string          // nil for none, and after an erasure
	Headers     map[string]string // only where one event is read; nil for none, and after the payload's removal
	HeaderSize  int               // of the headers as they are stored, in bytes; 0 for none
	Version     int               // of its type, which the sender named; 0: none
	OrderingKey string            // "" for none, and after an erasure
	Sequences   []Sequence        // those of EndpointIDs, only where one event is read; nil if none of its deliveries is numbered
	SchemaError *string           // the first mismatch with the schema of its type; nil if there was none, or it was not checked
}

// SequenceOf is the place of the event's delivery to an endpoint in its line; zero if that is not numbered.
func (e *Event) SequenceOf(id EndpointID) Sequence {
	if at := slices.Index(e.EndpointIDs, id); at >= 0 && at < len(e.Sequences) {
		return e.Sequences[at]
	}
	return Sequence{}
}

// Accepted is a stored event with its deliveries.
type Accepted struct {
	Event      Event
	Deliveries []Start
	Payload    []byte            // as stored; nil if Repeated
	SHA256     [sha256.Size]byte // of the payload, computed on arrival
	Headers    map[string]string // of the event's requests; nil if Repeated
	Repeated   bool              // an earlier request stored the event; nothing new was stored
	Verdicts   []FilterVerdict   // of the filters that were asked; nil if Repeated
}

// FilterVerdict is what an endpoint's filter said of an event.
type FilterVerdict struct {
	EndpointID EndpointID
	Matched    bool
}

// ForwardResult is what became of a delivery that was forwarded to another process.
type ForwardResult uint8

// The results of forwarding.
const (
	ForwardAccepted   ForwardResult = iota // the other process starts it
	ForwardRefused                         // no other process starts it: this one does
	ForwardUnanswered                      // the other process may start it; if it does not, the relay does
)

// Start is a stored delivery whose workflow is to be started, with the data that the start
// needs.
type Start struct {
	Ref

	Run        int
	CreatedAt  time.Time // of the database's clock
	ReceivedAt time.Time // since when this process has it, of its own clock: it began to store it, got it forwarded, or queued it; zero if it was read
	NotBefore  time.Time // deliver_at; zero: immediately
	GiveUpAt   time.Time
	Relayed    int       // how often the relay has taken it
	RelayAt    time.Time // relay_at of the outbox row before it was taken
	// AssignedTo is the workflow that the outbox row names: all starts with the same one share it. "" is for a new delivery that the
	// relay has not taken yet, and for one that waits for its deliver_at.
	AssignedTo string
	// Assigned says that AssignedTo was in the row before the relay took it, so that the workflow may have been started.
	Assigned bool

	// Earlier is the workflow that keeps the dead letter of the run before; "" if there is none.
	Earlier string

	// Resume is the progress of a delivery that is released from a hold; nil for a new run.
	Resume *Progress

	// OwnWorkflow: the delivery gets a workflow of its own, immediately. Its eager request was
	// slow or was not delivered.
	OwnWorkflow bool
	// Recorded: the store has an attempt or a claim and kept the outbox row. The row is
	// deleted when Temporal has acknowledged the start.
	Recorded bool

	// Sequence is its place in its line; zero if it is not numbered, and if the relay has found the delivery.
	Sequence Sequence

	// Trace is that of the request which posted the event; "" if the relay has found the delivery.
	Trace Trace
}

// Ref identifies a delivery by ids only, so that a workflow's history contains no content.
type Ref struct {
	DeliveryID DeliveryID `json:"delivery_id"`
	EventID    EventID    `json:"event_id"`
	EndpointID EndpointID `json:"endpoint_id"`
	TenantID   string     `json:"tenant_id"`
	EventType  string     `json:"event_type"`
}

// Fits reports whether the delivery's id is the one that is made of its event and its endpoint. What
// belongs to whom is only known to the store.
func (r Ref) Fits() bool { return r.DeliveryID == DeliveryIDOf(r.EventID, r.EndpointID) }

// MaxShownDeliveries bounds the deliveries that are read and shown with an event; the list of deliveries has all.
const MaxShownDeliveries = 1000

// typeSeparators are the characters that separate the parts of an event type. A wildcard
// follows one of them.
const typeSeparators = ".:/-_"

// ValidType reports whether t is an event type: a letter or digit, then letters, digits
// and separators, all ASCII, 128 bytes at most. Case is significant.
func ValidType(t string) bool {
	if t == "" || len(t) > MaxTypeLength || strings.IndexByte(typeSeparators, t[0]) >= 0 {
		return false
	}
	for _, c := range []byte(t) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte(typeSeparators, c) < 0 {
			return false
		}
	}
	return true
}

// ValidFilter reports whether f is a filter of event types: an event type, a prefix that
// ends with a separator followed by "*", or "*". Other spellings of OperationalPrefix in
// upper case are invalid: such events do not exist, and the filter would look like one for
// operational events.
func ValidFilter(f string) bool {
	if f == "*" {
		return true
	}
	prefix, wildcard := FilterPrefix(f)
	if !wildcard {
		prefix = f
	}
	return ValidType(prefix) && ReservedType(prefix) == IsOperational(prefix)
}

// FilterPrefix returns the prefix of a filter with a wildcard: "order." of "order.*". It
// returns false for other filters, including "*".
func FilterPrefix(filter string) (prefix string, wildcard bool) {
	prefix, wildcard = strings.CutSuffix(filter, "*")
	if !wildcard || prefix == "" || strings.IndexByte(typeSeparators, prefix[len(prefix)-1]) < 0 {
		return "", false
	}
	return prefix, true
}

// FilterMatches reports whether a filter matches an event type. "*" does not match
// operational events; they need a filter with OperationalPrefix.
//
// internal/postgres implements the same rule in SQL.
func FilterMatches(filter, eventType string) bool {
	if filter == "*" {
		return !IsOperational(eventType)
	}
	if prefix, ok := FilterPrefix(filter); ok {
		return strings.HasPrefix(eventType, prefix)
	}
	return filter == eventType
}

// MatchingFilters returns every filter that FilterMatches an event type. There are few of them, so whatever is
// indexed by its filters is found by an event type without looking at all of it.
func MatchingFilters(eventType string) []string {
	filters := []string{eventType}
	for i := range len(eventType) {
		if strings.IndexByte(typeSeparators, eventType[i]) >= 0 {
			filters = append(filters, eventType[:i+1]+"*")
		}
	}
	if !IsOperational(eventType) {
		filters = append(filters, "*")
	}
	return filters
}
