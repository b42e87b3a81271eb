package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// begin lets the request begin, when the endpoint's rate allows it.
func (att *attempt) begin(ctx context.Context) outcome {
	asked := att.now()
	began := att.permit.Begin(ctx)
	att.admitting += att.now().Sub(asked)
	switch {
	case began:
		return outcome{}
	case att.eager != nil:
		return outcome{fault: errStalled} // its workflow makes the attempt
	default:
		return att.refuse(att.deferral(webhook.ReasonNoOwner))
	}
}

// send makes the request. What follows from its outcome is the pass's.
func (att *attempt) send(ctx context.Context) outcome {
	made, err := att.request(ctx)
	if att.eager != nil {
		att.eager.end() // the recording is not part of the request
	}
	if err != nil {
		return outcome{fault: err}
	}
	att.facts.made, att.facts.answered = made, true
	out := att.decide(att.now())
	if att.eager != nil {
		att.eager.assignWorkflow(ctx, out.step)
	}
	return out
}

// request makes the request, and ends the permit with its outcome, unless isReused. An error that is not caused by
// the end of this process would meet every request to the endpoint.
func (att *attempt) request(ctx context.Context) (webhook.Attempt, error) {
	in, target, content := &att.in, att.facts.target, att.facts.content
	about := message{
		event: in.EventID, delivery: in.DeliveryID, eventType: in.EventType, created: content.CreatedAt, number: in.Attempts + 1,
		headers: content.Headers, place: content.Sequence, run: in.Run,
	}
	made, reusedEnded, err := post(ctx, att.sender, att.now(), target, about, content.Payload)
	if err != nil {
		fault := &internalError{error: fmt.Errorf("attempt %d of %s: %w", in.Attempts+1, in.DeliveryID, err), text: err.Error()}
		if ctx.Err() == nil {
			fault.scope = scopeEndpoint
			att.log.WarnContext(ctx, "internal fault", "delivery", in.DeliveryID, "endpoint", in.EndpointID, "error", err)
		}
		return webhook.Attempt{}, fault
	}
	if made.Outcome.Reason == retry.ReasonProxyRefused && !refusedLong(in, target, att.now()) {
		return webhook.Attempt{}, &internalError{error: &sendError{made.Error}, text: made.Error, scope: scopeEndpoint}
	}
	made.WaitedFor, made.Late = in.waitedFor(), in.late(content.CreatedAt, in.runBegan(target), made.StartedAt, att.admitting)
	if reusedEnded && !att.hasReused(ctx) {
		return asReused(made), nil // nothing is known of the receiver
	}
	result := admission.ResultOf(made.Outcome, in.numberForAdmission(), made.Latency)
	policy, _ := target.PolicyInForce()
	result.DeferFor = min(result.DeferFor, policy.MaxRetryAfter)
	result.Error, result.Times = made.Error, made.Times
	att.permit.Done(result)
	return made, nil
}

// hasReused reports whether the run has had such an attempt, or may have had.
func (att *attempt) hasReused(ctx context.Context) bool {
	switch {
	case att.in.reused:
		return true
	case att.in.Attempts == 0:
		return false
	}
	has, err := att.history.HasReused(ctx, att.in.DeliveryID, att.in.Run)
	if err != nil {
		att.log.WarnContext(ctx, "the attempts of a delivery could not be read", "delivery", att.in.DeliveryID, "error", err)
	}
	return has || err != nil
}

// refusedFor is for how long after its acceptance, or its replay, a delivery is held because the egress proxy refuses the host. Afterwards
// the refusal counts as a failure of the receiver, so that an endpoint which the proxy never allows is disabled in the end.
const refusedFor = 24 * time.Hour

// refusedLong reports whether a delivery has waited for so long.
func refusedLong(in *AttemptInput, target *webhook.Target, now time.Time) bool {
	return now.Sub(in.runBegan(target)) > refusedFor
}

// runBegan is when the run began, which follows from the give-up time; after a change of the policy it is off by as much.
func (in *AttemptInput) runBegan(target *webhook.Target) time.Time {
	policy, _ := target.PolicyInForce()
	return in.BeganAt(policy.GiveUpAfter)
}
