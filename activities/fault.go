package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/everpost/everpost/internal/webhook"
)

// outagePause is how long after an outage of the store was noticed the store is not queried
// by an attempt that has failed before. Other attempts of this process query it.
const outagePause = time.Second

var (
	errTooMany  = errors.New("too many attempts are running")
	errStopping = errors.New("this process is stopping")
	errStalled  = errors.New("this process stood still for too long to use its permit")
)

// ErrorGone is the type of the error that the replay, or the deletion of the tenant, does not exist any more. It
// is not retryable.
const ErrorGone = "gone"

// gone gives an error of the code CodeNotFound the type ErrorGone.
func gone(err error) error {
	if webhook.CodeOf(err) != webhook.CodeNotFound {
		return err
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), ErrorGone, nil)
}

// IsGone reports an error of the type ErrorGone.
func IsGone(err error) bool {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && app.Type() == ErrorGone
}

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

// reporter reports internal faults: it logs the cause, and makes the error that workflows and people see. A process has one.
type reporter struct {
	log    *slog.Logger
	now    func() time.Time
	outage outage // of the store
}

// internalFault makes an error for the workflow and the delivery's last_error: it has the text of
// a webhook.Error, which is written for people; other errors have a fixed text. The cause, which
// may name hosts and users, is only logged.
func (r *reporter) internalFault(ctx context.Context, op string, err error) error {
	r.log.WarnContext(ctx, "internal fault", "doing", op, "error", err)
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
		r.outage.begin(r.now(), internal)
	}
	return internal
}

// panicked logs a panic and makes it an error. The value of a panic may be anything, even a
// payload: unless the runtime made it, it is not logged.
func (r *reporter) panicked(doing string, value any) error {
	text := fmt.Sprintf("a value of type %T", value)
	if runtimeError, ok := value.(runtime.Error); ok {
		text = runtimeError.Error()
	}
	r.log.Error("an activity panicked", "doing", doing, "panic", text, "stack", string(debug.Stack()))
	return fmt.Errorf("%s: panic: %s", doing, text)
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
