package activities

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

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
	standing, err := a.Record.Record(ctx, step)
	for moved := 0; err == nil && overtaken(step, standing); moved++ {
		if moved == rebases {
			return AttemptResult{}, fmt.Errorf("record %s: other steps come before it, time after time", in.DeliveryID)
		}
		step.Seq = standing.Seq + 1
		standing, err = a.Record.Record(ctx, step)
	}
	if err != nil {
		return AttemptResult{}, a.ownFault(ctx, fmt.Sprintf("record %s", in.DeliveryID), err)
	}
	fl.unrecorded, fl.settled = nil, true
	if a.Observer != nil && step.Attempt != nil {
		a.Observer.Attempted(step.Attempt, standing.State)
	}
	result := AttemptResult{Progress: standing.Progress, Command: in.unanswered(standing)}
	if step.Attempt != nil {
		result.Told = told(step.Attempt.Outcome)
	}
	return result, nil
}

// overtaken reports that an attempt was made and the record does not count it,
// because its owner recorded a step that knew nothing of it: a fault of our own,
// while the request was under way or its outcome could not be recorded. The attempt
// goes behind that step; else it would be made again.
func overtaken(step webhook.Step, standing webhook.Standing) bool {
	return step.Attempt != nil && standing.Run == step.Run && standing.State.Open() && standing.Attempts < step.Attempts
}

// ownFault is an error as the workflow and the delivery's last_error show it: of an
// Error of the domain only what is written for people. The cause, which may name
// hosts and users, is for the log.
func (a *Activities) ownFault(ctx context.Context, op string, err error) error {
	domain, ok := errors.AsType[*webhook.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", op, err)
	}
	a.Logger.WarnContext(ctx, "a fault of our own", "doing", op, "error", err)
	return fmt.Errorf("%s: %w", op, &webhook.Error{Code: domain.Code, Message: domain.Message})
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
