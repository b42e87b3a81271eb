package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// load waits until the attempt is due, if it was asked for a little early, and finds out all that decides whether admission is asked.
func (att *attempt) load(ctx context.Context) outcome {
	in, f := &att.in, &att.facts
	f.unstored = !in.Fits()
	if !f.unstored && !att.waitUntilDue(ctx) {
		return outcome{fault: errStopping}
	}
	if in.Running && !f.unstored { // by another process, perhaps: admission knows nothing of it, the other process has the permit
		status, err := att.store.ClaimStatus(ctx, in.Ref, att.claimant)
		switch {
		case err == nil:
			f.status = &status
			att.outage.end()
		case webhook.CodeOf(err) != webhook.CodeNotFound:
			return outcome{fault: att.internalFault(ctx, fmt.Sprintf("look for attempt %d of %s", in.Attempts+1, in.DeliveryID), err)}
		}
	}
	f.fault, _ = att.faults.FaultOf(in.EndpointID)
	if out := att.decide(att.now()); !out.goesOn() {
		return out
	}
	target, err := att.targets.Target(ctx, in.EndpointID)
	switch {
	case err == nil:
		f.target = target
	case webhook.CodeOf(err) == webhook.CodeNotFound:
		f.deleted = true
	default:
		return outcome{fault: att.internalFault(ctx, fmt.Sprintf("load endpoint %s", in.EndpointID), err)}
	}
	return att.decide(att.now())
}

// waitUntilDue waits until the attempt is due, if it was asked for a little early. False: the
// process stops.
func (att *attempt) waitUntilDue(ctx context.Context) bool {
	early := untilDue(&att.in, att.now())
	if early == 0 {
		return true
	}
	due := time.NewTimer(early)
	defer due.Stop()
	select {
	case <-due.C:
		return true
	case <-ctx.Done():
		return false
	}
}
