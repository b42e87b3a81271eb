package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// OperationalPrefix begins the types of operational events: those about Everpost itself.
// Clients may not post such events, and only a filter that begins with it matches them.
const OperationalPrefix = "everpost."

// MaxOperational bounds the endpoints of a tenant that get an operational event: the oldest.
const MaxOperational = 1000

// The types of operational events.
const (
	EventEndpointDisabled  = OperationalPrefix + "endpoint.disabled"
	EventEndpointPaused    = OperationalPrefix + "endpoint.paused"
	EventEndpointResumed   = OperationalPrefix + "endpoint.resumed"
	EventEndpointRecovered = OperationalPrefix + "endpoint.recovered"
	EventCircuitOpened     = OperationalPrefix + "endpoint.circuit_opened"
	EventBacklogExpiring   = OperationalPrefix + "endpoint.backlog_expiring"
	EventRetryStorm        = OperationalPrefix + "endpoint.retry_storm"
	EventDeadLettered      = OperationalPrefix + "delivery.dead_lettered"
	EventReplayCompleted   = OperationalPrefix + "replay.completed"
)

// IsOperational reports whether an event type, or a filter, is for operational events.
func IsOperational(eventType string) bool { return strings.HasPrefix(eventType, OperationalPrefix) }

// ReservedType reports whether clients may not post events of a type: it begins with
// OperationalPrefix, in any case. Receivers that ignore case would take such an event for
// an operational one.
func ReservedType(eventType string) bool {
	return len(eventType) >= len(OperationalPrefix) && strings.EqualFold(eventType[:len(OperationalPrefix)], OperationalPrefix)
}

// OperationalOnly reports whether the endpoint subscribes to operational events and nothing else:
// its failures are failures of those.
func (e *Endpoint) OperationalOnly() bool {
	return len(e.EventTypes) > 0 && !slices.ContainsFunc(e.EventTypes, func(filter string) bool { return !IsOperational(filter) })
}

// OperationalEvent is an operational event before it is stored. One of Endpoint, Delivery
// and Replay is set.
type OperationalEvent struct {
	Type     string
	TenantID string // the tenant of the endpoint, delivery or replay
	Contact  string // of the tenant; "" if unknown
	Endpoint *Endpoint
	Delivery *OperationalEventDelivery
	Replay   *Replay
	At       time.Time
	Summary  string // in words, with no URL
	// Key identifies the event: of events with the same key one is stored. "" is always a new event.
	Key string
}

// OperationalEventDelivery is what an operational event says of a delivery.
type OperationalEventDelivery struct {
	ID         DeliveryID `json:"id"`
	EventID    EventID    `json:"event_id"`
	EventType  string     `json:"event_type"`
	EndpointID EndpointID `json:"endpoint_id"`
	Reason     string     `json:"reason"`
	Attempts   int        `json:"attempts"`
}

// operationalPayload is the JSON of an operational event. docs/operational-events.md describes it.
type operationalPayload struct {
	TenantID string                    `json:"tenant_id"`
	Contact  *string                   `json:"tenant_contact"`
	Endpoint *payloadEndpoint          `json:"endpoint,omitempty"`
	Delivery *OperationalEventDelivery `json:"delivery,omitempty"`
	Replay   *payloadReplay            `json:"replay,omitempty"`
	At       string                    `json:"at"`
	Summary  string                    `json:"summary"`
}

type payloadEndpoint struct {
	ID          EndpointID    `json:"id"`
	URL         string        `json:"url"`
	Description string        `json:"description"`
	State       EndpointState `json:"state"`
	StateReason *string       `json:"state_reason"`
}

type payloadReplay struct {
	ID         ReplayID     `json:"id"`
	Source     ReplaySource `json:"source"`
	EndpointID *EndpointID  `json:"endpoint_id"`
	Total      *int64       `json:"total"`
	Released   int64        `json:"released"`
	Skipped    int64        `json:"skipped"`
	Delivered  int64        `json:"delivered"`
	Failed     int64        `json:"failed"`
}

// microseconds is the layout of times in the API (RFC 3339).
const microseconds = "2006-01-02T15:04:05.000000Z"

// Payload is the event as JSON. It holds no secret: of the URL no query and no
// credentials, of the endpoint no header.
func (e *OperationalEvent) Payload() ([]byte, error) {
	p := operationalPayload{
		TenantID: e.TenantID, Contact: orNull(e.Contact), Delivery: e.Delivery, At: e.At.UTC().Format(microseconds), Summary: e.Summary,
	}
	if endpoint := e.Endpoint; endpoint != nil {
		p.Endpoint = &payloadEndpoint{
			ID: endpoint.ID, URL: PlainURL(endpoint.URL), Description: endpoint.Description, State: endpoint.State,
			StateReason: orNull(endpoint.StateReason),
		}
	}
	if r := e.Replay; r != nil {
		p.Replay = &payloadReplay{
			ID: r.ID, Source: r.Source, EndpointID: orNull(r.Filter.EndpointID), Total: r.Total, Released: r.Released,
			Skipped: r.Skipped, Delivered: r.Delivered, Failed: r.Failed,
		}
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // for readability
	if err := encoder.Encode(p); err != nil {
		return nil, fmt.Errorf("encode %s: %w", e.Type, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// orNull returns nil for a zero value.
func orNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// PlainURL returns a URL without the parts that may be secret: credentials, query and
// fragment. It returns "" for an invalid URL.
func PlainURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}
