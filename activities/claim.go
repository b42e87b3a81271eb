package activities

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// claimSlack is added to the request's timeout in its claim: the time to record the outcome.
	claimSlack = 5 * time.Second
	// admissionTime is added to that of a claim before admission: the time in Acquire, and for its room.
	admissionTime = time.Second
)

// takeRight takes the right to send with the payload: a fresh token, or a claim, which it makes.
func (a *Activities) takeRight(ctx context.Context, att *attempt) outcome {
	in, f := &att.in, &att.facts
	if in.FirstTask && in.Run == 1 && in.Seq == 0 && in.Attempts == 0 {
		if f.content = a.takeFresh(ctx, in); f.content != nil {
			in.known = true
			att.payload.fit(len(f.content.Payload))
			return att.decide(a.now())
		}
	}
	if in.Faults > 0 { // many deliveries may wait for the same outage to end
		if err := a.outage.lastError(a.now()); err != nil {
			return outcome{fault: err}
		}
	}
	span := f.target.Timeout
	if att.permit == nil {
		span += admissionTime
	}
	claimed, err := a.store.Claim(ctx, a.claim(in, span))
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		f.unstored = true
		return att.decide(a.now())
	}
	if err != nil {
		return outcome{fault: a.internalFault(ctx, fmt.Sprintf("claim attempt %d of %s", in.Attempts+1, in.DeliveryID), err)}
	}
	failpoint.Hit("claim-after")
	a.outage.end()
	a.executions.markClaimed(att.exec)
	att.payload.fit(len(claimed.Payload))
	f.claim, f.content = &claimed, a.claimedContent(ctx, in, &claimed)
	out := att.decide(a.now())
	if out.goesOn() {
		in.adopt(&claimed)
	}
	return out
}

// claimedContent is the payload that a claim has read; nil if it was removed, or is not the one that was stored.
func (a *Activities) claimedContent(ctx context.Context, in *AttemptInput, claimed *webhook.ClaimResult) *webhook.Content {
	switch {
	case claimed.Payload == nil:
		return nil
	case !intact(claimed.Payload, claimed.SHA256):
		a.log.ErrorContext(ctx, "a stored payload does not match its SHA-256 and was not sent", "delivery", in.DeliveryID, "event", in.EventID)
		return nil
	}
	return &webhook.Content{Payload: claimed.Payload, CreatedAt: claimed.EventAt}
}

// takeFresh takes the delivery's fresh token; nil if there is none.
func (a *Activities) takeFresh(ctx context.Context, in *AttemptInput) *webhook.Content {
	content, ok := a.fresh.Take(in.Ref)
	if !ok {
		return nil
	}
	if intact(content.Payload, content.SHA256[:]) {
		return &content
	}
	// The bytes changed in this process's memory. The stored payload may be intact; it is
	// checked too.
	a.log.ErrorContext(ctx, "a payload has changed in memory since it arrived and was not sent", "delivery", in.DeliveryID, "event", in.EventID)
	return nil
}

// intact reports whether there is a payload and it has its SHA-256.
func intact(payload, sum []byte) bool {
	got := sha256.Sum256(payload)
	return payload != nil && bytes.Equal(got[:], sum)
}

// unhandled is the status's command, unless the workflow has handled it.
func (in *AttemptInput) unhandled(status *webhook.DeliveryStatus) webhook.PendingCommand {
	if status.Command.Command == webhook.CommandNone || status.Command.ID <= in.CommandDone {
		return webhook.PendingCommand{}
	}
	return status.Command
}

func (a *Activities) claim(in *AttemptInput, timeout time.Duration) webhook.Claim {
	return webhook.Claim{
		Ref: in.Ref, Progress: in.Progress, WorkflowID: in.workflowID(), Claimant: a.claimant, For: timeout + claimSlack,
	}
}

// writeClaim claims a running attempt. keepOutbox says that its workflow is not started yet.
func (a *Activities) writeClaim(ctx context.Context, exec *execution, in AttemptInput, keepOutbox bool) error {
	ctx, cancel := context.WithTimeout(ctx, a.fastWait)
	defer cancel()
	timeout := webhook.MaxTimeout
	select {
	case <-exec.admitted:
		timeout = exec.timeout
	default: // it may get its permit at any moment
	}
	claim := a.claim(&in, timeout)
	claim.KeepOutbox = keepOutbox
	_, err := a.store.Claim(ctx, claim)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return nil // removed meanwhile: no other process finds it either
	}
	return err
}

// keepClaiming repeats the claim while the attempt runs: when the store is in reach again, a Join
// in another process must find the claim before it sends.
func (a *Activities) keepClaiming(exec *execution, in AttemptInput) {
	for a.writeClaim(a.base, exec, in, exec.isEager()) != nil {
		pause := time.NewTimer(a.fastWait / 2)
		select {
		case <-exec.done:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}
