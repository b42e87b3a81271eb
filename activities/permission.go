package activities

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// permission gets the payload and with it the right to send. Nil means that nothing is
// to be sent: the result and the error are the attempt's.
func (a *Activities) permission(ctx context.Context, fl *flight, in *AttemptInput, target *webhook.Target) (*webhook.Content, AttemptResult, error) {
	if in.FirstTask && in.Run == 1 && in.Seq == 0 && in.Attempts == 0 {
		if content := a.fresh(ctx, in); content != nil {
			return content, AttemptResult{}, nil
		}
	}
	if in.Faults > 0 { // many wait for the same thing
		if err := a.away.still(a.Now()); err != nil {
			return nil, AttemptResult{}, err
		}
	}
	begun, err := a.Store.Claim(ctx, a.claim(*in, target.Timeout))
	if err != nil {
		return nil, AttemptResult{}, a.ownFault(ctx, fmt.Sprintf("begin attempt %d of %s", in.Attempts+1, in.DeliveryID), err)
	}
	a.away.over()
	a.flights.needsClaim(fl) // it has one now
	result := AttemptResult{Progress: in.Progress, Command: in.unanswered(begun.Status), WorkflowID: begun.Status.WorkflowID}
	switch {
	case begun.Status.After(in.Progress), !begun.Status.State.Open():
		result.Progress, fl.settled = begun.Status.Progress, true
		return nil, result, nil
	case in.After(begun.Status.Progress) && begun.Status.Run > 0:
		// The record has lost steps: it was restored from an older copy. It rules all
		// the same, and the delivery goes on from there.
		result.Progress = begun.Status.Progress
		return nil, result, nil
	case !begun.Granted:
		return nil, a.busy(result, begun.Status.OwnedUntil), nil
	case result.Command.Command == webhook.CommandCancel:
		return nil, result, nil // the workflow ends it
	}
	in.Progress = begun.Status.Progress // the same step; a run that a replay opened learns its attempts here
	if !intact(begun.Payload, begun.SHA256) {
		a.Logger.ErrorContext(ctx, "a stored payload does not match its SHA-256 and was not sent", "delivery", in.DeliveryID, "event", in.EventID)
		result, err := a.record(ctx, fl, *in, in.end(webhook.StateDeadLettered, string(retry.ReasonPayloadCorrupt)))
		return nil, result, err
	}
	return &webhook.Content{Payload: begun.Payload, CreatedAt: begun.EventAt}, AttemptResult{}, nil
}

// fresh is the payload of a delivery that nobody has begun, once; else nil.
func (a *Activities) fresh(ctx context.Context, in *AttemptInput) *webhook.Content {
	content, ok := a.Fresh.Take(in.DeliveryID)
	if !ok {
		return nil
	}
	if intact(content.Payload, content.SHA256[:]) {
		return &content
	}
	// The bytes were changed in this process's memory. Those in the record may be right,
	// and are compared, too.
	a.Logger.ErrorContext(ctx, "a payload has changed in memory since it arrived and was not sent", "delivery", in.DeliveryID, "event", in.EventID)
	return nil
}

// intact reports whether there is a payload and it has its SHA-256.
func intact(payload, sum []byte) bool {
	got := sha256.Sum256(payload)
	return payload != nil && bytes.Equal(got[:], sum)
}

// unanswered is the standing's command unless the workflow knows it.
func (in *AttemptInput) unanswered(st webhook.DeliveryStatus) webhook.PendingCommand {
	if st.Command.Command == webhook.CommandNone || st.Command.ID <= in.CommandDone {
		return webhook.PendingCommand{}
	}
	return st.Command
}
