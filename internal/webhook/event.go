package webhook

import (
	"crypto/sha256"
	"strings"
	"time"
)

// Limits of an event (api/openapi.yaml says them to callers).
const (
	MaxPayloadBytes    = 256 << 10
	MaxTypeLength      = 128
	MaxExternalID      = 255
	MaxIdempotencyKey  = 255
	MaxTargetEndpoints = 1000 // endpoint_ids of one event
	MaxBatchEvents     = 100
)

// ReasonNoMatch is stored with an event that no endpoint asked for.
const ReasonNoMatch = "no_matching_endpoint"

// NewEvent is an event as the door takes it.
type NewEvent struct {
	TenantID    string
	Type        string
	Payload     []byte       // any JSON value, exactly as it was sent
	ExternalID  string       // the caller's own id, "" for none; unique within the tenant
	DeliverAt   time.Time    // zero: at once
	EndpointIDs []EndpointID // nil: every endpoint that asked for the type

	IdempotencyKey string            // "" for none; unique within the tenant
	BodySHA256     [sha256.Size]byte // of the request's body: what "the same request" means
}

// NewBatch is events that are stored together or not at all. No external id stands
// in it twice.
type NewBatch struct {
	TenantID string
	// Events are 1 to MaxBatchEvents. Their TenantID and IdempotencyKey are not looked
	// at; the BodySHA256 of each is that of its own bytes within the request's body.
	Events []NewEvent

	IdempotencyKey string            // "" for none; of the batch as a whole
	BodySHA256     [sha256.Size]byte // of the whole body
}

// Event is what happened, as it is stored.
type Event struct {
	ID          EventID
	TenantID    string
	Type        string
	ExternalID  string
	CreatedAt   time.Time
	DeliverAt   time.Time // zero: at once
	PayloadSize int       // bytes
	EndpointIDs []EndpointID
	Reason      string // why there is no delivery; "" when there is one
}

// Accepted is what the door answers: an event and its deliveries, stored.
type Accepted struct {
	Event      Event
	Deliveries []Start
	Payload    []byte            // as it was stored; nil for an earlier request's event
	SHA256     [sha256.Size]byte // of the payload, taken when it arrived
	Replayed   bool              // an earlier request's event: nothing new was stored
}

// Start is a delivery that was stored and not yet begun: all that a workflow
// needs to take it up.
type Start struct {
	Ref

	Run       int
	CreatedAt time.Time // by the database's clock
	Begun     time.Time // when this process began to store it, by its own clock; zero: it did not
	NotBefore time.Time // deliver_at; zero: at once
	GiveUpAt  time.Time
	Relayed   int       // how often the relay has taken it up
	RelayAt   time.Time // from when it might, the last time
	// Placed is the workflow into which the relay has put it before; "" is none.
	Placed string

	// Held is where a delivery stands that was held and is released; nil for one whose
	// run begins.
	Held *Progress

	// Own: the delivery gets a workflow of its own, at once. Its first request went out eagerly, and was
	// slow or not delivered.
	Own bool
	// Recorded: an attempt or a claim is in the store, which kept the outbox row. The row is deleted when
	// Temporal has answered the start.
	Recorded bool
}

// Ref names a delivery: ids only, no content, fit for a workflow's history.
type Ref struct {
	DeliveryID DeliveryID `json:"delivery_id"`
	EventID    EventID    `json:"event_id"`
	EndpointID EndpointID `json:"endpoint_id"`
	TenantID   string     `json:"tenant_id"`
	EventType  string     `json:"event_type"`
}

// OwnWorkflow begins the id of every workflow that carries a single delivery.
const OwnWorkflow = "delivery/"

// WorkflowID is the id of the delivery's own workflow.
func (r Ref) WorkflowID() string {
	return OwnWorkflow + r.EventID.String() + "/" + r.EndpointID.String()
}

// typeSeparators are the characters that divide an event type into parts. A wildcard
// stands after one of them.
const typeSeparators = ".:/-_"

// ValidType reports whether t is an event type: a letter or digit, then letters, digits
// and separators, 128 bytes at most. All are ASCII, and case matters.
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

// ValidFilter reports whether f may stand in an endpoint's event_types or filter a list:
// an event type, a prefix that ends with a separator followed by "*", or "*". What begins
// with OperationalPrefix in other capitals is refused: there are no such events, and it
// looks as if it asked for operational ones.
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

// FilterPrefix is what all event types begin with that a filter with a wildcard lets
// through: "order." of "order.*". It is false for other filters, "*" among them.
func FilterPrefix(filter string) (prefix string, wildcard bool) {
	prefix, wildcard = strings.CutSuffix(filter, "*")
	if !wildcard || prefix == "" || strings.IndexByte(typeSeparators, prefix[len(prefix)-1]) < 0 {
		return "", false
	}
	return prefix, true
}

// FilterMatches reports whether an event type passes one filter. Operational events
// have to be asked for by name: "*" does not let them through.
//
// The store says the same in SQL.
func FilterMatches(filter, eventType string) bool {
	if filter == "*" {
		return !IsOperational(eventType)
	}
	if prefix, ok := FilterPrefix(filter); ok {
		return strings.HasPrefix(eventType, prefix)
	}
	return filter == eventType
}
