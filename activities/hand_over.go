package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// batchTime bounds an activity for many deliveries: less than the activity has, so that what was done counts. The next one does what is left.
	batchTime = 8 * time.Second
	// handOverWidth is how many workflows one HandOver starts at a time. The Starter limits the
	// total per process.
	handOverWidth = 4
)

// Starter starts the own workflow of a delivery that leaves a shared one. It is no error that the
// workflow exists already. ErrTooManyHandOvers: none of the tenant's can be started now.
type Starter interface {
	HandOver(ctx context.Context, h DeliveryState) error
}

// ErrTooManyHandOvers is the error of a start that would have to wait too long for others.
var ErrTooManyHandOvers = &webhook.Error{Code: webhook.CodeUnavailable, Message: "too many deliveries are being handed over at once"}

// DeliveryState is what a workflow knows of one of its deliveries.
type DeliveryState struct {
	webhook.Ref
	webhook.Progress

	// Command is to be handled; commands up to the id CommandDone have been.
	Command     webhook.PendingCommand `json:"command,omitzero"`
	CommandDone int64                  `json:"command_done,omitempty"`
	// Running: the request of the next attempt is under way. Join waits for it.
	Running bool `json:"running,omitempty"`
	// Unconfirmed: the store names another workflow than the one that is to continue the delivery, or keeps a command that
	// has been handled. See workflows.DeliveryState.
	Unconfirmed bool                 `json:"unconfirmed,omitempty"`
	LastOutcome *webhook.LastOutcome `json:"last_outcome,omitempty"` // of the last attempt that this or an earlier workflow made
	Faults      int                  `json:"faults,omitempty"`       // internal faults in a row
	LastError   string               `json:"last_error,omitempty"`   // the last of them
	// Unowned is how often in a row the attempt was deferred because its worker did not reach the owner of the endpoint's lane.
	Unowned int `json:"unowned,omitempty"`

	// Trace says where the spans of the delivery's workflows belong.
	Trace webhook.Trace `json:"trace,omitempty"`
}

// HandedOver is the result of HandOver.
type HandedOver struct {
	Remaining []int  `json:"remaining,omitempty"` // indexes of those that were not started
	Fault     string `json:"fault,omitempty"`     // why, in words
}

// HandOvers start workflows for deliveries that leave a shared one.
type HandOvers struct {
	*reporter

	starter Starter
}

// HandOver starts the own workflows of deliveries: as many as it can within batchTime. It never
// fails. The workflow calls it again for those that remain.
func (o *HandOvers) HandOver(ctx context.Context, all []DeliveryState) (HandedOver, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	var (
		started sync.WaitGroup
		slots   = make(chan struct{}, handOverWidth)
		faults  = make([]error, len(all))
		refused sync.Map // tenants of which no more can be handed over now
		result  HandedOver
	)
	for i := range all {
		slots <- struct{}{}
		started.Go(func() {
			defer func() { <-slots }()
			if _, full := refused.Load(all[i].TenantID); full {
				faults[i] = ErrTooManyHandOvers
			} else if faults[i] = context.Cause(ctx); faults[i] == nil {
				faults[i] = o.handOver(ctx, all[i])
			}
			if errors.Is(faults[i], ErrTooManyHandOvers) {
				refused.Store(all[i].TenantID, nil)
			}
		})
	}
	started.Wait()
	for i, fault := range faults {
		if fault != nil {
			result.Remaining = append(result.Remaining, i)
		}
	}
	if len(result.Remaining) > 0 {
		result.Fault = o.fault(ctx, faults[result.Remaining[0]])
	}
	return result, nil
}

// fault is a fault of a hand-over in words. That too many are under way is no internal fault.
func (o *HandOvers) fault(ctx context.Context, err error) string {
	const op = "hand over to workflows of their own"
	if errors.Is(err, ErrTooManyHandOvers) {
		return op + ": " + ErrTooManyHandOvers.Message
	}
	return o.internalFault(ctx, op, err).Error()
}

// handOver starts one workflow, and turns a panic into its error.
func (o *HandOvers) handOver(ctx context.Context, h DeliveryState) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = o.panicked("hand over "+h.DeliveryID.String(), p)
		}
	}()
	if !h.Fits() {
		return nil // there is no such delivery, so there is nothing to hand over
	}
	return o.starter.HandOver(ctx, h)
}
