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

// OperationalPrefix begins the types of operational events: those that tell of Everpost
// itself. Nobody else may post such events, and only a filter that begins with it, too,
// lets them through.
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

// IsOperational reports whether an event type, or a filter, is of operational events.
func IsOperational(eventType string) bool { return strings.HasPrefix(eventType, OperationalPrefix) }

// ReservedType reports whether nobody else may post events of a type: it begins with
// OperationalPrefix, in whatever case. Receivers that do not tell capitals apart would
// take such an event for an operational one.
func ReservedType(eventType string) bool {
	return len(eventType) >= len(OperationalPrefix) && strings.EqualFold(eventType[:len(OperationalPrefix)], OperationalPrefix)
}

// OperationalOnly reports whether the endpoint asked for operational events and nothing
// else: what befalls it is brought about by those.
func (e *Endpoint) OperationalOnly() bool {
	return len(e.EventTypes) > 0 && !slices.ContainsFunc(e.EventTypes, func(filter string) bool { return !IsOperational(filter) })
}

// Notice is an operational event before it is one: what it tells, and of whom. One of
// Endpoint, Delivery and Replay is set.
type Notice struct {
	Type     string
	TenantID string // whose endpoint, delivery or replay it is
	Contact  string // the tenant's; "" when unknown
	Endpoint *Endpoint
	Delivery *NoticeDelivery
	Replay   *Replay
	At       time.Time
	Summary  string // in words, with no URL
	// Key says what is told: it is told once, however often. "" is always something new.
	Key string
}

// NoticeDelivery is what a notice tells of a delivery.
type NoticeDelivery struct {
	ID         DeliveryID `json:"id"`
	EventID    EventID    `json:"event_id"`
	EventType  string     `json:"event_type"`
	EndpointID EndpointID `json:"endpoint_id"`
	Reason     string     `json:"reason"`
	Attempts   int        `json:"attempts"`
}

// noticePayload is the JSON of a notice. docs/operational-events.md describes it.
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

// microseconds is RFC 3339 as all of the API writes it.
const microseconds = "2006-01-02T15:04:05.000000Z"

// Payload is the notice as JSON. It holds no secret: of the URL no query and no
// credentials, of the endpoint no header.
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
	encoder.SetEscapeHTML(false) // people read it
	if err := encoder.Encode(p); err != nil {
		return nil, fmt.Errorf("encode %s: %w", n.Type, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// orNull is nil for a zero value.
func orNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// PlainURL is a URL without what may be secret in it: credentials, query and fragment.
// It is "" for what is no URL.
func PlainURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}
