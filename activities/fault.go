package activities

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// recordFaultEvery: an internal fault with a shared workflow's delivery is recorded the first
	// time and every tenth time in a row.
	recordFaultEvery = 10
	// outagePause is how long after an outage of the store was noticed the store is not queried
	// by an attempt that has failed before. Other attempts of this process query it.
	outagePause = time.Second
)

// Faults remembers the endpoints to which nothing can be sent because of an internal fault.
type Faults interface {
	// Faulted notes a fault, in words.
	Faulted(id webhook.EndpointID, fault string)
	// FaultOf returns what is known of an endpoint until it is checked again. It must be quick.
	FaultOf(id webhook.EndpointID) (fault string, known bool)
}

// noFaults remembers nothing: every attempt finds out for itself.
type noFaults struct{}

func (noFaults) Faulted(webhook.EndpointID, string)                 {}
func (noFaults) FaultOf(webhook.EndpointID) (fault string, ok bool) { return "", false }

// scope is what an internal fault affects.
type scope uint8

const (
	scopeDelivery scope = iota
	scopeEndpoint       // all its deliveries: its secret can not be opened, for example
	scopeStore          // all deliveries: the store is out of reach
)

// internalError is an internal fault as workflows and a delivery's last_error show it.
type internalError struct {
	error

	text  string // without the delivery's name
	scope scope
}

// Unwrap implements the interface of errors.As.
func (e *internalError) Unwrap() error { return e.error }

// describeFault returns what a fault affects, and the fault in words that do not name the
// delivery.
func describeFault(err error) (scope, string) {
	if internal, ok := errors.AsType[*internalError](err); ok {
		return internal.scope, internal.text
	}
	if errors.Is(err, errTooMany) {
		return scopeDelivery, errTooMany.Error()
	}
	return scopeDelivery, err.Error()
}

// unknownFault stands for an error that was not written for people.
const unknownFault = "an internal fault; its cause is in the log"

// internalFault makes an error for the workflow and the delivery's last_error: it has the text of
// a webhook.Error, which is written for people; other errors have a fixed text. The cause, which
// may name hosts and users, is only logged.
func (a *Activities) internalFault(ctx context.Context, op string, err error) error {
	a.log.WarnContext(ctx, "internal fault", "doing", op, "error", err)
	shown := &webhook.Error{Code: webhook.CodeInternal, Message: unknownFault}
	if domain, ok := errors.AsType[*webhook.Error](err); ok {
		shown.Code, shown.Message = domain.Code, domain.Message
	}
	internal := &internalError{error: fmt.Errorf("%s: %w", op, shown), text: shown.Message}
	switch {
	case errors.Is(err, webhook.ErrNotOpened):
		internal.scope = scopeEndpoint
	case shown.Code == webhook.CodeUnavailable:
		internal.scope = scopeStore
		a.outage.begin(a.now(), internal)
	}
	return internal
}

// outage is what this process knows of an outage of the store.
type outage struct{ known atomic.Pointer[outageError] }

type outageError struct {
	until time.Time
	err   error
}

func (o *outage) begin(now time.Time, err error) {
	o.known.Store(&outageError{now.Add(outagePause), err})
}

func (o *outage) end() {
	if o.known.Load() != nil {
		o.known.Store(nil)
	}
}

// lastError returns the error of a query that was made just now; nil if the store is to be asked.
func (o *outage) lastError(now time.Time) error {
	if known := o.known.Load(); known != nil && now.Before(known.until) {
		return known.err
	}
	return nil
}

// recordFault records an internal fault that affects one delivery of a shared workflow, so that a
// person who looks at it sees why it waits. The store's status becomes part of the result; the
// fault does not if the delivery has ended or goes on elsewhere. A held delivery that was released
// is no longer held then: otherwise it would be released again while it waits here.
func (a *Activities) recordFault(ctx context.Context, in AttemptInput, result *MemberResult) {
	step := webhook.Step{Ref: in.Ref, Progress: in.Progress, WorkflowID: in.Shared, CommandDone: in.CommandDone, LastError: result.Fault}
	step.Seq++
	if step.DueAt.IsZero() { // without a due time the reconciler would not find it before its give-up time
		step.Progress = step.WaitingUntil(a.now().Add(time.Second).UTC().Truncate(time.Microsecond))
	}
	status, err := a.store.RecordStep(ctx, step)
	if err != nil {
		return // it is recorded with a later fault
	}
	result.AttemptResult = resultOf(&in, status)
	if !status.State.Open() || status.Run != in.Run || status.WorkflowID != in.Shared {
		result.Fault = ""
	}
}

// CheckEndpoint finds out whether everything that a request to an endpoint needs is there. Its error is in
// words for people. It is nil if the endpoint is gone: its deliveries find that out.
func (a *Activities) CheckEndpoint(ctx context.Context, id webhook.EndpointID) error {
	target, err := a.targets.Target(ctx, id)
	switch {
	case webhook.CodeOf(err) == webhook.CodeNotFound:
		return nil
	case err != nil:
		_, text := describeFault(a.internalFault(ctx, fmt.Sprintf("check endpoint %s", id), err))
		return errors.New(text)
	}
	_, _, err = signed(message{}, target, nil, a.now(), "")
	return err
}
