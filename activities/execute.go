package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
)

// attempt is an attempt on its way through the stages. Only its own goroutine uses it; but others read exec, and in if it is eager, which
// does not change then.
type attempt struct {
	exec  *execution
	in    AttemptInput  // with the progress that a claim, or the first of two requests, has led to
	eager *eagerRequest // nil: a workflow has asked for the attempt
	facts facts

	permit     *admission.Permit // nil before admission
	admitting  time.Duration     // what admission has taken, which is not Everpost's lateness
	slowPlace  bool              // it has a place among the requests to slow receivers
	payload    payloadRoom
	isRecorded bool
}

func (a *Activities) newAttempt(exec *execution, in AttemptInput) *attempt {
	return &attempt{exec: exec, in: in, payload: payloadRoom{of: a.payloads, tenant: in.TenantID}, facts: facts{leastDelay: a.leastRetryDelay, unrecorded: exec.unrecorded}}
}

func (att *attempt) decide(now time.Time) outcome { return decide(att.in, &att.facts, now) }

// execute makes an attempt: it goes through the stages, and finishes what they have come to. It does so a second time if the
// request has met the end of a kept connection; see reused.go.
func (a *Activities) execute(att *attempt) (AttemptResult, error) {
	ctx, cancel := context.WithTimeout(att.exec.span.In(a.base), webhook.MaxTimeout+queryTime)
	defer cancel()
	defer a.leave(att)
	if att.eager != nil {
		a.watchEager(att)
	}
	for {
		out := a.pass(ctx, att)
		result, err := a.finish(att, out)
		a.noteUnknown(ctx, att, &result)
		if err != nil || !a.sendsAgain(ctx, att, out.step, &result) {
			return result, err
		}
		att.in.Progress, att.in.reused = result.Progress, true
		att.facts = facts{leastDelay: att.facts.leastDelay, target: att.facts.target}
	}
}

// pass goes through the stages of an attempt. Each lets it go on, or is the last with its outcome. An eager attempt has its permit
// and its right to send from the beginning, and a second request the first one's permit.
func (a *Activities) pass(ctx context.Context, att *attempt) (out outcome) {
	defer func() {
		if p := recover(); p != nil {
			out = outcome{fault: a.panicked(att.in, p)}
		}
	}()
	if att.facts.unrecorded != nil {
		return att.decide(a.now()) // nothing is sent
	}
	if att.permit == nil {
		out = a.load(ctx, att)
		if out.goesOn() && a.isNear(att) {
			out = a.takeRight(ctx, att)
		}
		if out.goesOn() {
			out = a.admit(ctx, att)
		}
	}
	if out.goesOn() && att.facts.content == nil {
		out = a.takeRight(ctx, att)
	}
	if out.goesOn() && !att.in.reused {
		out = a.begin(ctx, att)
	}
	if out.goesOn() {
		out = a.send(ctx, att)
	}
	return out
}

// finish is the one exit of a pass: it records the step that the pass has come to, or answers without one. While the store is out
// of reach, an eager attempt is recorded again and again: until then no workflow is started, because in another process it would
// not find the outcome, and would send again.
func (a *Activities) finish(att *attempt, out outcome) (AttemptResult, error) {
	fault := out.fault
	if fault != nil {
		out = a.afterFault(att, fault)
	}
	switch {
	case out.fault != nil:
		return AttemptResult{}, out.fault
	case out.answer != nil:
		return *out.answer, nil
	}
	holds := out.step.State == webhook.StateHeld
	if holds {
		failpoint.Hit("hold-before")
	}
	for {
		result, err := a.record(att, out.step)
		switch {
		case err == nil:
			att.isRecorded = true
			if holds {
				failpoint.Hit("hold-after")
			}
			if fault != nil {
				a.observer.InternalFault(fault)
			}
			return result, nil
		case fault != nil:
			return AttemptResult{}, fault
		case att.eager == nil || !a.awaitStore(err):
			return AttemptResult{}, err
		}
	}
}

// noteUnknown notes that the store does not have the delivery as the input says.
func (a *Activities) noteUnknown(ctx context.Context, att *attempt, result *AttemptResult) {
	if result.Reason != webhook.ReasonUnknown {
		return
	}
	in := &att.in
	a.log.WarnContext(ctx, "a workflow names a delivery that is not stored; nothing was sent", "delivery", in.DeliveryID,
		"event", in.EventID, "endpoint", in.EndpointID, "workflow", in.workflowID())
	a.admission.Forget(in.EndpointID, in.DeliveryID)
}

// load waits until the attempt is due, if it was asked for a little early, and finds out all that decides whether admission is asked.
func (a *Activities) load(ctx context.Context, att *attempt) outcome {
	in, f := &att.in, &att.facts
	f.unstored = !in.Fits()
	if !f.unstored && !a.waitUntilDue(ctx, in) {
		return outcome{fault: errStopping}
	}
	if in.Running && !f.unstored { // by another process, perhaps: admission knows nothing of it, the other process has the permit
		status, err := a.store.ClaimStatus(ctx, in.Ref, a.claimant)
		switch {
		case err == nil:
			f.status = &status
			a.outage.end()
		case webhook.CodeOf(err) != webhook.CodeNotFound:
			return outcome{fault: a.internalFault(ctx, fmt.Sprintf("look for attempt %d of %s", in.Attempts+1, in.DeliveryID), err)}
		}
	}
	f.fault, _ = a.faults.FaultOf(in.EndpointID)
	if out := att.decide(a.now()); !out.goesOn() {
		return out
	}
	target, err := a.targets.Target(ctx, in.EndpointID)
	switch {
	case err == nil:
		f.target = target
	case webhook.CodeOf(err) == webhook.CodeNotFound:
		f.deleted = true
	default:
		return outcome{fault: a.internalFault(ctx, fmt.Sprintf("load endpoint %s", in.EndpointID), err)}
	}
	return att.decide(a.now())
}

// waitUntilDue waits until the attempt is due, if it was asked for a little early. False: the
// process stops.
func (a *Activities) waitUntilDue(ctx context.Context, in *AttemptInput) bool {
	early := untilDue(in, a.now())
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

// begin lets the request begin, when the endpoint's rate allows it.
func (a *Activities) begin(ctx context.Context, att *attempt) outcome {
	asked := a.now()
	began := att.permit.Begin(ctx)
	att.admitting += a.now().Sub(asked)
	switch {
	case began:
		return outcome{}
	case att.eager != nil:
		return outcome{fault: errStalled} // its workflow makes the attempt
	default:
		return a.refuse(att, a.deferral(webhook.ReasonNoOwner, &att.in))
	}
}

// send makes the request. What follows from its outcome is the pass's.
func (a *Activities) send(ctx context.Context, att *attempt) outcome {
	made, err := a.request(ctx, att)
	if att.eager != nil {
		a.endEagerRequest(att) // the recording is not part of the request
	}
	if err != nil {
		return outcome{fault: err}
	}
	att.facts.made, att.facts.answered = made, true
	out := att.decide(a.now())
	if att.eager != nil {
		a.assignWorkflow(ctx, att, out.step)
	}
	return out
}

// leave gives back what the attempt has taken. A permit is cancelled, unless its request has ended.
func (a *Activities) leave(att *attempt) {
	if att.permit != nil {
		att.permit.Cancel()
	}
	att.payload.release()
	if att.slowPlace {
		a.slow.Release(att.in.TenantID, 1)
	}
	if att.eager != nil {
		a.startWorkflow(att)
	}
}

// afterFault decides what follows an internal fault in an attempt. After an eager attempt, the attempt of its workflow decides.
func (a *Activities) afterFault(att *attempt, fault error) outcome {
	if att.eager != nil {
		return outcome{fault: fault}
	}
	if affected, text := describeFault(fault); affected == scopeEndpoint {
		a.faults.Faulted(att.in.EndpointID, text)
	}
	if errors.Is(fault, errStopping) || a.base.Err() != nil {
		return outcome{fault: fault}
	}
	att.facts.met = fault
	return att.decide(a.now())
}
