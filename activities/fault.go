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
	// noteEvery is how often a shared workflow's delivery tells the record of a fault of our
	// own that goes on: with the first of them, and after as many more.
	noteEvery = 10
	// recordPause is how long after the record was found out of reach an attempt that has met
	// a fault before does not ask it again: others of this process do.
	recordPause = time.Second
)

// Faults remembers the endpoints to which nothing can be sent because of a fault of our own.
type Faults interface {
	// Faulted notes one, with the fault in words.
	Faulted(id webhook.EndpointID, what string)
	// FaultOf is what is known of an endpoint until it is tried again; it must be quick.
	FaultOf(id webhook.EndpointID) (what string, known bool)
}

// noFaults remembers nothing: every attempt finds out for itself.
type noFaults struct{}

func (noFaults) Faulted(webhook.EndpointID, string)                {}
func (noFaults) FaultOf(webhook.EndpointID) (what string, ok bool) { return "", false }

// concern is what a fault of our own keeps from going on.
type concern uint8

const (
	concernsDelivery concern = iota
	concernsEndpoint         // all its deliveries: its secret cannot be opened, or the way to it is closed
	concernsRecord           // all deliveries: the record is out of reach
)

// ownError is a fault of our own, as workflows and the delivery's last_error show it.
type ownError struct {
	error

	what    string // without the delivery's name
	concern concern
}

// Unwrap returns what errors.As looks for.
func (e *ownError) Unwrap() error { return e.error }

// concernOf is what a fault keeps from going on, and the fault in words that say nothing of
// the delivery.
func concernOf(err error) (concern, string) {
	if own, ok := errors.AsType[*ownError](err); ok {
		return own.concern, own.what
	}
	if errors.Is(err, errTooMany) {
		return concernsDelivery, errTooMany.Error()
	}
	return concernsDelivery, err.Error()
}

// unknownFault stands for an error that was not written for people.
const unknownFault = "a fault of our own; its cause is in the log"

// ownFault is an error as the workflow and the delivery's last_error show it: of an
// Error of the domain only what is written for people, of any other a fixed text.
// The cause, which may name hosts and users, is for the log.
func (a *Activities) ownFault(ctx context.Context, op string, err error) error {
	a.Logger.WarnContext(ctx, "a fault of our own", "doing", op, "error", err)
	shown := &webhook.Error{Code: webhook.CodeInternal, Message: unknownFault}
	if domain, ok := errors.AsType[*webhook.Error](err); ok {
		shown.Code, shown.Message = domain.Code, domain.Message
	}
	own := &ownError{error: fmt.Errorf("%s: %w", op, shown), what: shown.Message}
	switch {
	case errors.Is(err, webhook.ErrNotOpened):
		own.concern = concernsEndpoint
	case shown.Code == webhook.CodeUnavailable:
		own.concern = concernsRecord
		a.away.is(a.Now(), own)
	}
	return own
}

// outage is what this process knows of the record's being out of reach.
type outage struct{ known atomic.Pointer[outageSeen] }

type outageSeen struct {
	until time.Time
	err   error
}

func (o *outage) is(now time.Time, err error) {
	o.known.Store(&outageSeen{now.Add(recordPause), err})
}

func (o *outage) over() {
	if o.known.Load() != nil {
		o.known.Store(nil)
	}
}

// still is the fault of an attempt that was just made; nil when the record is to be asked.
func (o *outage) still(now time.Time) error {
	if seen := o.known.Load(); seen != nil && now.Before(seen.until) {
		return seen.err
	}
	return nil
}

// faulted says what becomes of a delivery whose attempt met a fault of our own. Past its
// give-up time it is given up. Where the fault concerns all of the endpoint's deliveries, it
// is held until the endpoint can be sent to again, as many others may be: so each costs a row,
// and one look at the endpoint serves all. Any other is repeated by the workflow.
func (a *Activities) faulted(fl *flight, in AttemptInput, fault error) (AttemptResult, error) {
	concern, what := concernOf(fault)
	if concern == concernsEndpoint {
		a.Faults.Faulted(in.EndpointID, what)
	}
	expired := a.Now().After(in.GiveUpAt)
	// An answer that is not recorded yet comes first, whatever is to be said beside it.
	if fl.unrecorded != nil || !expired && concern != concernsEndpoint || errors.Is(fault, errStopping) || a.base.Err() != nil {
		return AttemptResult{}, fault
	}
	ctx, cancel := context.WithTimeout(a.base, ownWork)
	defer cancel()
	result, err := a.holdFor(ctx, fl, in, what)
	if err != nil {
		return AttemptResult{}, fault
	}
	if a.Observer != nil {
		a.Observer.Faulted(fault)
	}
	return result, nil
}

// holdFor records that a fault of our own keeps the endpoint from being sent to; past its
// give-up time the delivery is given up.
func (a *Activities) holdFor(ctx context.Context, fl *flight, in AttemptInput, what string) (AttemptResult, error) {
	step := in.held(webhook.ReasonInternal)
	if a.Now().After(in.GiveUpAt) {
		step = in.end(webhook.StateDeadLettered, webhook.ReasonInternal)
	}
	step.LastError = what
	return a.record(ctx, fl, in, step)
}

// knownFault is why nothing is sent now, if that is known without trying. What was released
// tries: it was released to find out, or because there is hope.
func (a *Activities) knownFault(in AttemptInput) (what string, known bool) {
	if in.State == webhook.StateHeld || in.NotBefore.After(a.Now()) {
		return "", false
	}
	return a.Faults.FaultOf(in.EndpointID)
}

// note tells the record of a fault that a shared workflow's delivery has met, where that is in
// reach and the fault is none that all have. What the record says then is part of the result,
// and more than the fault if the delivery rests or goes on elsewhere. A held delivery that was
// started is not held any more: else it would be released again while it waits here.
func (a *Activities) note(ctx context.Context, in AttemptInput, left *Left) {
	step := webhook.Step{Ref: in.Ref, Progress: in.Progress, WorkflowID: in.Shared, CommandDone: in.CommandDone, LastError: left.Fault}
	step.Seq++
	if step.DueAt.IsZero() { // else nothing would look for it until it is given up
		step.WaitUntil(a.Now().Add(time.Second).UTC().Truncate(time.Microsecond))
	}
	standing, err := a.Store.RecordStep(ctx, step)
	if err != nil {
		return // it is shown with the next one
	}
	left.AttemptResult = resultOf(in, standing)
	if !standing.State.Open() || standing.Run != in.Run || standing.WorkflowID != in.Shared {
		left.Fault = ""
	}
}

// Probe finds out whether all that a request to an endpoint needs is there. Its error is in
// words for people. That the endpoint is gone is none: its deliveries find that out.
func (a *Activities) Probe(ctx context.Context, id webhook.EndpointID) error {
	target, err := a.Targets.Target(ctx, id)
	switch {
	case webhook.CodeOf(err) == webhook.CodeNotFound:
		return nil
	case err != nil:
		_, what := concernOf(a.ownFault(ctx, fmt.Sprintf("try endpoint %s again", id), err))
		return errors.New(what)
	}
	_, _, err = signed(message{}, target, nil, a.Now())
	return err
}
