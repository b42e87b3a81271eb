package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/everpost/everpost/internal/webhook"
)

// HeartbeatEvery is how often a Join says that it lives. The heartbeat timeout
// must be several times as long.
const HeartbeatEvery = 3 * time.Second

// joinLook is how often a Join looks whether another process has recorded the
// outcome it waits for.
const joinLook = time.Second

// Join waits for an attempt that Attempt left running: in this process; or in the
// record, which another process writes; or, when that process's right to send has
// run out without a word, by sending again under the same number.
//
// R11: when its worker is stopping it waits for a request of this process, which
// the process waits for anyway, but not for another's: that ends in an error, and
// whoever is there then joins.
func (a *Activities) Join(ctx context.Context, in AttemptInput) (AttemptResult, error) {
	stopping := activity.GetWorkerStopChannel(ctx)
	beat := time.NewTicker(HeartbeatEvery)
	defer beat.Stop()
	for {
		fl, err := a.flight(in)
		if err != nil {
			return AttemptResult{}, err
		}
		if err := await(ctx, fl.done, nil, beat.C); err != nil {
			return AttemptResult{}, err
		}
		if fl.err != nil || fl.result.BusyUntil.IsZero() {
			return fl.result, fl.err
		}
		again, stop := context.WithTimeout(ctx, min(fl.result.BusyUntil.Sub(a.Now()), joinLook))
		err = await(ctx, again.Done(), stopping, beat.C)
		stop()
		if err != nil {
			return AttemptResult{}, err
		}
	}
}

// RecordStep writes a step that no attempt led to: the end of a delivery, a new
// due time. The standing that it returns rules; where its OwnedUntil is set, another
// process is making an attempt, and the delivery is not to be ended before that.
//
// An error of the type ErrorGone says that there is no such delivery any more.
func (a *Activities) RecordStep(ctx context.Context, step webhook.Step) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, ownWork)
	defer cancel()
	step.Owner = a.Owner
	if standing, told, err := a.tellFirst(ctx, step); told {
		return standing, err
	}
	standing, err := a.Store.RecordStep(ctx, step)
	if err != nil {
		return webhook.DeliveryStatus{}, gone(a.ownFault(ctx, fmt.Sprintf("record %s as %s", step.DeliveryID, step.State), err))
	}
	a.forget(&step)
	a.ended(&step, standing)
	return standing, nil
}

// tellFirst records, before an end that no attempt led to, the attempt that this process makes
// just now, eagerly or for another workflow, or that could not be recorded when the
// record was out of reach: it may have delivered. told is false when there is none.
func (a *Activities) tellFirst(ctx context.Context, step webhook.Step) (standing webhook.DeliveryStatus, told bool, err error) {
	in := AttemptInput{Ref: step.Ref, Progress: step.Progress, CommandDone: step.CommandDone}
	in.Seq-- // it leads on from where the end does
	if step.Attempt != nil || step.State.Open() {
		return webhook.DeliveryStatus{}, false, nil
	}
	fl := a.flights.underWayOf(in)
	if fl == nil {
		if !a.flights.isUntold(in.key()) {
			return webhook.DeliveryStatus{}, false, nil
		}
		if fl, err = a.flight(in); err != nil {
			return webhook.DeliveryStatus{}, true, err
		}
	}
	limit := time.NewTimer(a.FastWait)
	defer limit.Stop()
	select {
	case <-fl.done:
		return webhook.DeliveryStatus{Progress: fl.result.Progress, Command: fl.result.Command, WorkflowID: fl.result.WorkflowID}, true, fl.err
	case <-limit.C: // the receiver is slow
		goesOn := in.Progress
		goesOn.State = webhook.StatePending // it is open, whatever it is
		return webhook.DeliveryStatus{Progress: goesOn, OwnedUntil: a.Now().Add(busyPause)}, true, nil
	case <-ctx.Done():
		return webhook.DeliveryStatus{}, true, fmt.Errorf("record %s: %w", step.DeliveryID, context.Cause(ctx))
	}
}

// Reopening asks for the next run of a dead letter.
type Reopening struct {
	webhook.Ref

	Reason string `json:"reason,omitempty"`
}

// Reopen opens the next run of a dead letter, unless somebody has. The standing
// that it returns rules. Errors are RecordStep's.
func (a *Activities) Reopen(ctx context.Context, in Reopening) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, ownWork)
	defer cancel()
	standing, err := a.Store.Reopen(ctx, in.Ref, in.Reason)
	if err != nil {
		return webhook.DeliveryStatus{}, gone(a.ownFault(ctx, fmt.Sprintf("reopen %s", in.DeliveryID), err))
	}
	return standing, nil
}

// KeepFor is how long dead letters are kept.
func (a *Activities) KeepFor(context.Context) (time.Duration, error) { return a.KeepDeadLetters, nil }

// errWorkerStopping ends a Join whose worker is stopping.
var errWorkerStopping = errors.New("join: this worker is stopping; another one goes on waiting")

// await waits for done and says meanwhile that the activity lives. It does not wait
// on when stopping is closed; a nil one never is.
func await(ctx context.Context, done, stopping <-chan struct{}, beat <-chan time.Time) error {
	for {
		select {
		case <-stopping:
			return errWorkerStopping
		case <-done:
			if ctx.Err() == nil {
				return nil
			}
			return fmt.Errorf("join: %w", context.Cause(ctx))
		case <-beat:
			activity.RecordHeartbeat(ctx)
		case <-ctx.Done():
			return fmt.Errorf("join: %w", context.Cause(ctx))
		}
	}
}
