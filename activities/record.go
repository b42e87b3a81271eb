package activities

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// rebases bounds how often a step is moved behind one that was recorded meanwhile.
const rebases = 5

// record writes the step. Whatever the record then says is the result.
func (a *Activities) record(ctx context.Context, fl *flight, in AttemptInput, step webhook.Step) (AttemptResult, error) {
	if step.Attempt != nil {
		fl.unrecorded = &step // whatever happens from here on, it is not sent again by this process
	}
	step.Owner = a.Owner
	standing, err := a.Store.RecordStep(ctx, step)
	for moved := 0; err == nil && overtaken(step, standing); moved++ {
		if moved == rebases {
			return AttemptResult{}, fmt.Errorf("record %s: other steps come before it, time after time", in.DeliveryID)
		}
		step.Seq = standing.Seq + 1
		standing, err = a.Store.RecordStep(ctx, step)
	}
	if err != nil {
		return AttemptResult{}, a.ownFault(ctx, fmt.Sprintf("record %s", in.DeliveryID), err)
	}
	if held(step, standing) {
		return a.busy(resultOf(in, standing), standing.OwnedUntil), nil
	}
	a.away.over()
	fl.unrecorded, fl.settled = nil, true
	if a.Observer != nil && step.Attempt != nil {
		a.Observer.Attempted(in.Ref, step.Attempt, standing.Progress)
	}
	a.forget(&step)
	a.ended(&step, standing)
	result := resultOf(in, standing)
	if step.Attempt != nil {
		result.Told = told(step.Attempt.Outcome)
	}
	return result, nil
}

// ended tells that a step without an attempt brought its delivery to rest.
func (a *Activities) ended(step *webhook.Step, standing webhook.DeliveryStatus) {
	applied := standing.Run == step.Run && standing.Seq == step.Seq && standing.State == step.State
	if a.Ended != nil && step.Attempt == nil && !step.State.Open() && applied {
		a.Ended(step.Ref, standing.Progress)
	}
}

// resultOf is what the record says, as a result.
func resultOf(in AttemptInput, st webhook.DeliveryStatus) AttemptResult {
	return AttemptResult{Progress: st.Progress, Command: in.unanswered(st), WorkflowID: st.WorkflowID}
}

// overtaken reports that an attempt was made and the record does not count it,
// because its owner recorded a step that knew nothing of it: a fault of our own,
// while the request was under way or its outcome could not be recorded. The attempt
// goes behind that step; else it would be made again.
func overtaken(step webhook.Step, standing webhook.DeliveryStatus) bool {
	return step.Attempt != nil && standing.Run == step.Run && standing.State.Open() && standing.Attempts < step.Attempts
}

// held reports that the record has refused to end the delivery, because another
// process has the right to send: it may be delivering it just now.
func held(step webhook.Step, standing webhook.DeliveryStatus) bool {
	return step.Attempt == nil && !step.State.Open() && standing.State.Open() && !standing.OwnedUntil.IsZero()
}

// busy is the result while another process has the right to send. One that has run
// out by our clock, or ended between two statements, is asked for again, but not
// without a pause.
func (a *Activities) busy(result AttemptResult, until time.Time) AttemptResult {
	result.BusyUntil = until
	if soonest := a.Now().Add(busyPause); result.BusyUntil.Before(soonest) {
		result.BusyUntil = soonest
	}
	return result
}

// ErrorGone is the type of the error, never to be retried, that there is no such
// delivery any more.
const ErrorGone = "gone"

// gone gives an error of the code CodeNotFound the type ErrorGone.
func gone(err error) error {
	if webhook.CodeOf(err) != webhook.CodeNotFound {
		return err
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), ErrorGone, nil)
}

// told is an outcome in words, for summaries.
func told(o retry.Outcome) string {
	words := string(o.Reason)
	if o.Status != 0 {
		words = strconv.Itoa(o.Status)
	}
	if o.RetryAfter > 0 {
		words += ", Retry-After " + retry.FormatDuration(o.RetryAfter.Round(time.Second))
	}
	return words
}
