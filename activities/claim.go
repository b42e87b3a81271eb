package activities

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// claimSlack is added to the request's timeout in its claim: the time to record the outcome.
const claimSlack = 5 * time.Second

// payloadWithRightToSend returns the payload when it has the right to send: by a fresh token, or by
// a claim, which it makes. Nil means that nothing is to be sent: the result and the error are the
// attempt's.
func (a *Activities) payloadWithRightToSend(
	ctx context.Context, exec *execution, in *AttemptInput, target *webhook.Target,
) (*webhook.Content, AttemptResult, error) {
	if in.FirstTask && in.Run == 1 && in.Seq == 0 && in.Attempts == 0 {
		if content := a.takeFresh(ctx, in); content != nil {
			in.known = true
			exec.payload.fit(len(content.Payload))
			return content, AttemptResult{}, nil
		}
	}
	if in.Faults > 0 { // many deliveries may wait for the same outage to end
		if err := a.outage.lastError(a.now()); err != nil {
			return nil, AttemptResult{}, err
		}
	}
	claimed, err := a.store.Claim(ctx, a.claim(*in, target.Timeout))
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return nil, a.unknown(ctx, in), nil
	}
	if err != nil {
		return nil, AttemptResult{}, a.internalFault(ctx, fmt.Sprintf("claim attempt %d of %s", in.Attempts+1, in.DeliveryID), err)
	}
	failpoint.Hit("claim-after")
	exec.payload.fit(len(claimed.Payload))
	a.outage.end()
	a.executions.markClaimed(exec)
	status := claimed.Status
	result := AttemptResult{Progress: in.Progress, Command: in.unhandled(status), WorkflowID: status.WorkflowID}
	switch {
	case status.After(in.Progress), !status.State.Open():
		result.Progress, result.Found, exec.settled = status.Progress, true, true
		return nil, result, nil
	case in.After(status.Progress) && status.Run > 0:
		// The store has lost steps: it was restored from an older copy. It is authoritative
		// all the same, and the delivery goes on from there.
		result.Progress = status.Progress
		return nil, result, nil
	case !claimed.Granted:
		return nil, a.busy(result, status.ClaimedUntil), nil
	case result.Command.Command == webhook.CommandCancel:
		return nil, result, nil // the workflow ends the delivery
	}
	in.known = true
	in.Progress = status.Progress // the same step, with the attempts of earlier runs
	if claimed.Payload == nil {
		result, err := a.record(ctx, exec, *in, in.giveUpStep(string(retry.ReasonPayloadRemoved)))
		return nil, result, err
	}
	if !intact(claimed.Payload, claimed.SHA256) {
		a.log.ErrorContext(ctx, "a stored payload does not match its SHA-256 and was not sent", "delivery", in.DeliveryID, "event", in.EventID)
		result, err := a.record(ctx, exec, *in, in.giveUpStep(string(retry.ReasonPayloadCorrupt)))
		return nil, result, err
	}
	return &webhook.Content{Payload: claimed.Payload, CreatedAt: claimed.EventAt}, AttemptResult{}, nil
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
func (in *AttemptInput) unhandled(status webhook.DeliveryStatus) webhook.PendingCommand {
	if status.Command.Command == webhook.CommandNone || status.Command.ID <= in.CommandDone {
		return webhook.PendingCommand{}
	}
	return status.Command
}

func (a *Activities) claim(in AttemptInput, timeout time.Duration) webhook.Claim {
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
	claim := a.claim(in, timeout)
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
	for a.writeClaim(a.base, exec, in, exec.eager) != nil {
		pause := time.NewTimer(a.fastWait / 2)
		select {
		case <-exec.done:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}
