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

// OperationalPrefix is the prefix of the types of operational events: events about Everpost
// itself. Callers can not post such events, and only filters with this prefix match them.
const OperationalPrefix = "everpost."

// The types of operational events.
const (
	NoticeDisabled      = OperationalPrefix + "endpoint.disabled"
	NoticePaused        = OperationalPrefix + "endpoint.paused"
	NoticeResumed       = OperationalPrefix + "endpoint.resumed"
	NoticeRecovered     = OperationalPrefix + "endpoint.recovered"
	NoticeCircuitOpened = OperationalPrefix + "endpoint.circuit_opened"
	NoticeRetryStorm    = OperationalPrefix + "endpoint.retry_storm"
	NoticeDeadLettered  = OperationalPrefix + "delivery.dead_lettered"
	NoticeReplayed      = OperationalPrefix + "replay.completed"
)

// IsOperational reports whether an event type, or a filter, is for operational events.
func IsOperational(eventType string) bool { return strings.HasPrefix(eventType, OperationalPrefix) }

// ReservedType reports whether callers can not post events of a type: it begins with
// OperationalPrefix in any case. A receiver that ignores case would take such an event for
// an operational one.
func ReservedType(eventType string) bool {
	return len(eventType) >= len(OperationalPrefix) && strings.EqualFold(eventType[:len(OperationalPrefix)], OperationalPrefix)
}

// OperationalOnly reports whether all filters of the endpoint are for operational events.
// Changes of such an endpoint create no operational events: they could cause each other.
func (e *Endpoint) OperationalOnly() bool {
	return len(e.EventTypes) > 0 && !slices.ContainsFunc(e.EventTypes, func(filter string) bool { return !IsOperational(filter) })
}

// Notice is the content of an operational event, before the event is stored. One of
// Endpoint, Delivery and Replay is set.
type Notice struct {
	Type     string
	TenantID string // the tenant of the endpoint, delivery or replay
	Contact  string // of the tenant; "" if unknown
	Endpoint *Endpoint
	Delivery *NoticeDelivery
	Replay   *Replay
	At       time.Time
	Summary  string // text for people, without a URL
	// Key makes the event unique: a second notice with the same key is dropped. "" is always unique.
	Key string
}

// NoticeDelivery is the delivery that a notice is about.
type NoticeDelivery struct {
	ID         DeliveryID `json:"id"`
	EventID    EventID    `json:"event_id"`
	EventType  string     `json:"event_type"`
	EndpointID EndpointID `json:"endpoint_id"`
	Reason     string     `json:"reason"`
	Attempts   int        `json:"attempts"`
}

// noticePayload is the JSON form of a notice. docs/operational-events.md describes it.
type noticePayload struct {
	TenantID string          `json:"tenant_id"`
	Contact  *string         `json:"tenant_contact"`
	Endpoint *noticeEndpoint `json:"endpoint,omitempty"`
	Delivery *NoticeDelivery `json:"delivery,omitempty"`
	Replay   *noticeReplay   `json:"replay,omitempty"`
	At       string          `json:"at"`
	Summary  string          `json:"summary"`
}

type noticeEndpoint struct {
	ID          EndpointID    `json:"id"`
	URL         string        `json:"url"`
	Description string        `json:"description"`
	State       EndpointState `json:"state"`
	StateReason *string       `json:"state_reason"`
}

type noticeReplay struct {
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

// Payload returns the notice as JSON. It contains no secret: no query and no credentials of
// the URL, no header of the endpoint.
func (n *Notice) Payload() ([]byte, error) {
	p := noticePayload{
		TenantID: n.TenantID, Contact: orNull(n.Contact), Delivery: n.Delivery, At: n.At.UTC().Format(microseconds), Summary: n.Summary,
	}
	if e := n.Endpoint; e != nil {
		p.Endpoint = &noticeEndpoint{
			ID: e.ID, URL: PlainURL(e.URL), Description: e.Description, State: e.State, StateReason: orNull(e.StateReason),
		}
	}
	if r := n.Replay; r != nil {
		p.Replay = &noticeReplay{
			ID: r.ID, Source: r.Source, EndpointID: orNull(r.Filter.EndpointID), Total: r.Total, Released: r.Released,
			Skipped: r.Skipped, Delivered: r.Delivered, Failed: r.Failed,
		}
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // for readability
	if err := encoder.Encode(p); err != nil {
		return nil, fmt.Errorf("encode %s: %w", n.Type, err)
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
