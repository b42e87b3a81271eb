package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// claimSlack is added to the request's timeout in its claim: the time to record the outcome.
const claimSlack = 5 * time.Second

// claim returns the claim of an attempt whose request may take up to the timeout.
func (p *process) claim(in *AttemptInput, timeout time.Duration) webhook.Claim {
	return webhook.Claim{
		Ref: in.Ref, Progress: in.Progress, WorkflowID: in.workflowID(), Claimant: p.claimant, For: timeout + claimSlack,
	}
}

// writeClaim claims a running attempt. keepOutbox says that its workflow is not started yet.
func (p *process) writeClaim(ctx context.Context, exec *execution, in AttemptInput, keepOutbox bool) error {
	ctx, cancel := context.WithTimeout(ctx, p.fastWait)
	defer cancel()
	timeout := webhook.MaxTimeout
	select {
	case <-exec.admitted:
		timeout = exec.timeout
	default: // it may get its permit at any moment
	}
	claim := p.claim(&in, timeout)
	claim.KeepOutbox = keepOutbox
	_, err := p.store.Claim(ctx, claim)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return nil // removed meanwhile: no other process finds it either
	}
	return err
}

// keepClaiming repeats the claim while the attempt runs: when the store is in reach again, a look
// from another process must find the claim before it sends.
func (p *process) keepClaiming(exec *execution, in AttemptInput) {
	for p.writeClaim(p.base, exec, in, exec.isEager()) != nil {
		pause := time.NewTimer(p.fastWait / 2)
		select {
		case <-exec.done:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}
