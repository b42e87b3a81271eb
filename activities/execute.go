package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
)

// startOrJoin returns the attempt's execution: the running one, the remembered one, or a new one.
func (p *process) startOrJoin(in AttemptInput) (*execution, error) {
	exec, isNew, err := p.executions.enter(in, p.now())
	if err != nil {
		return nil, fmt.Errorf("attempt %d of %s: %w", in.Attempts+1, in.DeliveryID, err)
	}
	if isNew {
		p.goroutines.Go(newAttempt(p, exec, in).run)
	}
	return exec, nil
}

// run runs an attempt, in a goroutine of its own, because it may outlive the activity that
// began it.
func (att *attempt) run() {
	exec, in := att.exec, &att.in
	defer att.executions.end(in.key(), in.Progress, exec)
	exec.span = att.tracer.Start(in.Trace, "attempt")
	exec.span.Delivery(in.Ref)
	exec.span.Number("everpost.attempt.number", in.Attempts+1)
	exec.span.Number("everpost.run", in.Run)
	defer func() {
		if p := recover(); p != nil { // while the outcome was recorded
			exec.err = att.panicked(att.in.title(), p)
		}
		exec.span.End(exec.err)
		if exec.err != nil {
			att.observer.InternalFault(exec.err)
		}
	}()
	exec.result, exec.err = att.execute()
}

// execute makes an attempt: it goes through the stages, and finishes what they have come to. It does so a second time if the
// request has met the end of a kept connection; see reused.go.
func (att *attempt) execute() (AttemptResult, error) {
	ctx, cancel := context.WithTimeout(att.exec.span.In(att.base), webhook.MaxTimeout+queryTime)
	defer cancel()
	defer att.leave()
	if att.eager != nil {
		att.eager.watch()
	}
	for {
		out := att.pass(ctx)
		result, err := att.finish(out)
		att.noteUnknown(ctx, &result)
		if err != nil || !att.sendsAgain(ctx, out.step, &result) {
			return result, err
		}
		att.in.Progress, att.in.reused = result.Progress, true
		att.facts = facts{leastDelay: att.facts.leastDelay, maxHeld: att.facts.maxHeld, target: att.facts.target}
	}
}

// pass goes through the stages of an attempt. Each lets it go on, or is the last with its outcome. An eager attempt has its permit
// and its right to send from the beginning, and a second request the first one's permit.
func (att *attempt) pass(ctx context.Context) (out outcome) {
	defer func() {
		if p := recover(); p != nil {
			out = outcome{fault: att.panicked(att.in.title(), p)}
		}
	}()
	if att.facts.unrecorded != nil {
		return att.decide(att.now()) // nothing is sent
	}
	if att.permit == nil {
		out = att.load(ctx)
		if out.goesOn() && att.isNear() {
			out = att.takeRight(ctx)
		}
		if out.goesOn() {
			out = att.admit(ctx)
		}
	}
	if out.goesOn() && att.facts.content == nil {
		out = att.takeRight(ctx)
	}
	if out.goesOn() && !att.in.reused {
		out = att.begin(ctx)
	}
	if out.goesOn() {
		out = att.send(ctx)
	}
	return out
}

// finish is the one exit of a pass: it records the step that the pass has come to, or answers without one. While the store is out
// of reach, an eager attempt is recorded again and again: until then no workflow is started, because in another process it would
// not find the outcome, and would send again.
func (att *attempt) finish(out outcome) (AttemptResult, error) {
	fault := out.fault
	if fault != nil {
		out = att.afterFault(fault)
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
		result, err := att.record(out.step)
		switch {
		case err == nil:
			att.isRecorded = true
			if holds {
				failpoint.Hit("hold-after")
			}
			if fault != nil {
				att.observer.InternalFault(fault)
			}
			return result, nil
		case fault != nil:
			return AttemptResult{}, fault
		case att.eager == nil || !att.eager.awaitStore(err):
			return AttemptResult{}, err
		}
	}
}

// afterFault decides what follows an internal fault in an attempt. After an eager attempt, the attempt of its workflow decides.
func (att *attempt) afterFault(fault error) outcome {
	if att.eager != nil {
		return outcome{fault: fault}
	}
	if affected, text := describeFault(fault); affected == scopeEndpoint {
		att.faults.Faulted(att.in.EndpointID, text)
	}
	if errors.Is(fault, errStopping) || att.base.Err() != nil {
		return outcome{fault: fault}
	}
	att.facts.met = fault
	return att.decide(att.now())
}

// noteUnknown notes that the store does not have the delivery as the input says.
func (att *attempt) noteUnknown(ctx context.Context, result *AttemptResult) {
	if result.Reason != webhook.ReasonUnknown {
		return
	}
	in := &att.in
	att.log.WarnContext(ctx, "a workflow names a delivery that is not stored; nothing was sent", "delivery", in.DeliveryID,
		"event", in.EventID, "endpoint", in.EndpointID, "workflow", in.workflowID())
	att.admission.Forget(in.EndpointID, in.DeliveryID)
}

// sendsAgain reports whether the request is sent again at once, with the same permit: it has met the end of a kept connection, that
// is recorded, and nothing stands against the next attempt.
func (att *attempt) sendsAgain(ctx context.Context, step *webhook.Step, result *AttemptResult) bool {
	return att.permit != nil && att.eager == nil && step != nil && step.Attempt != nil && isReused(step.Attempt) &&
		result.Run == step.Run && result.Seq == step.Seq && result.State == step.State && result.WorkflowID == step.WorkflowID &&
		result.Command.Command == webhook.CommandNone && !att.in.Expired(att.now()) && att.permit.Again(ctx)
}

// leave gives back what the attempt has taken. A permit is cancelled, unless its request has ended.
func (att *attempt) leave() {
	if att.permit != nil {
		att.permit.Cancel()
	}
	att.payload.release()
	if att.hasSlowPlace {
		att.slowPlaces.Release(att.in.TenantID, 1)
	}
	if att.eager != nil {
		att.eager.startWorkflow(att.isRecorded)
	}
}
