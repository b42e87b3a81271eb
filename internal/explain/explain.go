// Package explain describes the situation of a delivery, an event or an endpoint in words: what happened, why,
// what happens next and what a person can do. It is the only place where such texts are made. It is
// pure: everything it says follows from its arguments.
package explain

import (
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Code names a situation. docs/explanations.md has a section for each.
type Code string

// The situations of an open delivery.
const (
	Starting        Code = "starting"
	EngineAway      Code = "engine_away"
	Scheduled       Code = "scheduled"
	InProgress      Code = "in_progress"
	RetryResponse   Code = "retry_response"
	RetryAfter      Code = "retry_after"
	RetryNotFound   Code = "retry_not_found"
	RetryTimeout    Code = "retry_timeout"
	RetryConnection Code = "retry_connection"
	RetryDNS        Code = "retry_dns"
	RetryTLS        Code = "retry_tls"
	RetryToken      Code = "retry_token"
	RetryUnknown    Code = "retry_unknown"
	WaitsInFlight   Code = "waits_in_flight"
	WaitsHost       Code = "waits_host"
	WaitsRate       Code = "waits_rate"
	WaitsRecovery   Code = "waits_recovery"
	WaitsFailing    Code = "waits_failing"
	WaitsCircuit    Code = "waits_circuit"
	WaitsReceiver   Code = "waits_receiver"
	WaitsCapacity   Code = "waits_capacity"
	WaitsOwner      Code = "waits_owner"
	HeldPaused      Code = "held_paused"
	HeldDisabled    Code = "held_disabled"
	HeldBacklog     Code = "held_backlog"
	Releasing       Code = "releasing"
	InternalFault   Code = "internal_fault"
	Cancelling      Code = "cancelling"
)

// The situations of a delivery that has ended.
const (
	Delivered    Code = "delivered"
	Refused      Code = "refused"
	Exhausted    Code = "exhausted"
	Expired      Code = "expired"
	FailedInside Code = "failed_internally"
	Terminated   Code = "terminated"
	Cancelled    Code = "cancelled"
	Discarded    Code = "discarded"
)

// NoMatch is the situation of an event that matched no endpoint.
const NoMatch Code = "no_matching_endpoint"

// The situations of an endpoint.
const (
	EndpointOK    Code = "endpoint_ok"
	EndpointIdle  Code = "endpoint_idle"
	EndpointFails Code = "endpoint_failing"
	EndpointBusy  Code = "endpoint_busy"
	EndpointSlow  Code = "endpoint_slow"
	EndpointRate  Code = "endpoint_at_rate_limit"
	EndpointRests Code = "endpoint_pause_requested"
	EndpointOpen  Code = "endpoint_circuit_open"
	EndpointProbe Code = "endpoint_circuit_half_open"
	EndpointRises Code = "endpoint_recovering"
	EndpointStray Code = "endpoint_redirect_changed"
	EndpointPause Code = "endpoint_paused"
	EndpointOff   Code = "endpoint_disabled"
)

// Codes returns all codes, in the order of docs/explanations.md.
func Codes() []Code {
	return []Code{
		Starting, EngineAway, Scheduled, InProgress, RetryResponse, RetryAfter, RetryNotFound, RetryTimeout, RetryConnection, RetryDNS,
		RetryTLS, RetryToken, RetryUnknown, WaitsInFlight, WaitsHost, WaitsRate, WaitsRecovery, WaitsFailing, WaitsCircuit, WaitsReceiver,
		WaitsCapacity, WaitsOwner, HeldPaused, HeldDisabled, HeldBacklog, Releasing, InternalFault, Cancelling,
		Delivered, Refused, Exhausted, Expired, FailedInside, Terminated, Cancelled, Discarded, NoMatch,
		EndpointOK, EndpointIdle, EndpointFails, EndpointBusy, EndpointSlow, EndpointRate, EndpointRests, EndpointOpen, EndpointProbe,
		EndpointRises, EndpointStray, EndpointPause, EndpointOff,
	}
}

// Explanation describes a situation. Each text is one or more sentences, or "" if there is
// nothing to say; Summary is one sentence and never "". Brief is none.
type Explanation struct {
	Code    Code
	Brief   string // the deepest cause in a few words, for the head of a page; "" if nothing is wrong
	Summary string // what happened, why, and what happens next
	Cause   string // why, in detail
	Next    string // what happens without intervention
	Remedy  string // what a person can do, without commands: Actions has them
	// Operator is what only the operator of the installation can do.
	Operator string
	// Actions are what the remedy names, in the order in which they are done.
	Actions []Action
	// Workflow is in which workflow a delivery is, or was.
	Workflow string
	Until    time.Time // when the situation changes by itself at the latest; zero if no time is known
}

// Situation is what is known of a delivery. What is not known is zero, and nothing is said of it.
type Situation struct {
	// Now is when the explanation is read. Zero: it is kept and read at any time, so that it has no
	// relative times, and each time in it has its date. Observed is then nil, because it soon changes.
	Now      time.Time
	Delivery webhook.Delivery

	Endpoint        *webhook.Endpoint // nil: not known, or deleted
	EndpointDeleted bool
	Observed        *webhook.Observation // of the endpoint, by the sending processes; nil: not known
	Stale           bool                 // the process that admits the requests did not answer: Observed is what it shared last

	// SentAt is when the attempt under way began, if this process makes it; zero if not known.
	SentAt time.Time
	// Error is the error of the last attempt: webhook.Attempt.Error.
	Error string
	// Times is where the time of the last attempt went; zero if not known.
	Times webhook.Times
	// WaitedFor and Late are those of the last attempt: see webhook.Attempt.
	WaitedFor string
	Late      time.Duration
	// Ahead is the number of deliveries that go to the endpoint before a waiting or held one.
	Ahead *Ahead
	// ReleaseStopped says that a person has stopped the release of a held delivery.
	ReleaseStopped bool
	// EngineAway is since when Temporal has been unreachable; zero if it is not.
	EngineAway time.Time
	// Kept is how long a dead letter is kept; 0 if not known.
	Kept time.Duration
	// Removed says that the event's payload was removed; zero while it is kept, and if that is not known.
	Removed webhook.PayloadRemoval
	// WorkflowsKept is how long Temporal keeps a workflow that has ended; 0 if not known.
	WorkflowsKept time.Duration
}

// Ahead is a count of deliveries. More: there are more than N.
type Ahead struct {
	N    int
	More bool
}

// Delivery explains a delivery.
func Delivery(s Situation) Explanation {
	e := s.explain()
	s.addDelay(&e)
	if !s.Removed.IsZero() && !s.Delivery.State.Open() {
		e.Summary = strings.TrimSuffix(e.Summary, ".") + "; " + s.Removed.String() + "."
	}
	e.Workflow, e.Brief = workflow(&s), briefOf(&s, e.Code)
	return e
}

func (s *Situation) explain() Explanation {
	switch s.Delivery.State {
	case webhook.StateDelivered:
		return ended{s}.delivered()
	case webhook.StateDeadLettered:
		return ended{s}.deadLetter()
	case webhook.StateCancelled, webhook.StateDiscarded:
		return ended{s}.withdrawn()
	case webhook.StateHeld:
		return s.held()
	case webhook.StatePending, webhook.StateRetrying:
	}
	return s.open()
}
