package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Gate admits requests to endpoints, so that no receiver is hurt and none hurts its
// neighbours.
type Gate interface {
	// Enter asks to send one request. It may wait for most of a second.
	Enter(ctx context.Context, e Entry) Admission
	// TryEnter is Enter for who does not wait: where there is no pass, nothing is reserved.
	TryEnter(e Entry) Admission
	// Forget gives back what is reserved for a delivery that will not come.
	Forget(endpoint webhook.EndpointID, delivery webhook.DeliveryID)
	// Slow says whether an attempt is likely to take long, or to be turned away.
	Slow(endpoint webhook.EndpointID) bool
}

// Entry is a delivery that wants to be sent.
type Entry struct {
	Endpoint *webhook.Endpoint
	Delivery webhook.DeliveryID
	Released bool // it was held
	Retries  int  // attempts of this run that were made before
	Probe    bool // a person has asked for it: it goes although the circuit is open
}

// Admission is a gate's answer: a pass, or a time to come back at, or neither, which
// means that the delivery is held until somebody releases it.
type Admission struct {
	Pass    Pass          // has to be ended
	Timeout time.Duration // with a pass: how long the request may take; 0 is the endpoint's Timeout
	Until   time.Time
	Reason  string // of a wait: "circuit_open"
}

// Pass is the right to send one request. It ends once; what is said after that is ignored.
type Pass interface {
	// Done tells what became of the request; number is that of the attempt.
	Done(outcome retry.Outcome, number int, latency time.Duration)
	// Cancel says that nothing was learnt of the receiver.
	Cancel()
}

const (
	// slowWait is FastWait where the receiver is known to be slow: it has to be long
	// enough for an answer after all. Who is still at the gate then is waited for.
	slowWait = 300 * time.Millisecond
	// crowdedPause is the least time after which who found no place among the slow ones
	// comes back, and crowdedSpread what is added by chance, so that they do not come at once.
	crowdedPause  = 1200 * time.Millisecond
	crowdedSpread = 4 * time.Second
)

// patience is how long a workflow task waits for an attempt.
func (a *Activities) patience(in AttemptInput) time.Duration {
	wait := a.FastWait
	if a.Gate != nil && a.Gate.Slow(in.EndpointID) {
		wait = min(slowWait, wait)
	}
	return wait + untilDue(in, a.Now())
}

// admit asks the gate. The pass has to be ended; without one, the delivery waits.
func (a *Activities) admit(ctx context.Context, in AttemptInput, target *webhook.Target) Admission {
	if a.Gate == nil {
		return Admission{Pass: freePass{}}
	}
	admission := a.Gate.Enter(ctx, Entry{
		Endpoint: &target.Endpoint, Delivery: in.DeliveryID, Released: in.State == webhook.StateHeld, Retries: in.RunAttempts, Probe: in.Probe,
	})
	if admission.Pass == nil || !a.Gate.Slow(in.EndpointID) {
		return admission
	}
	if !a.slow.take(in.TenantID, max(a.MaxUnderWay/2, 1)) {
		admission.Pass.Cancel()
		spread := retry.Random(in.Seq, in.DeliveryID.String(), webhook.ReasonCapacity) * float64(crowdedSpread)
		return Admission{Until: a.Now().Add(crowdedPause + time.Duration(spread)), Reason: webhook.ReasonCapacity}
	}
	admission.Pass = &slowPass{Pass: admission.Pass, slow: &a.slow, tenant: in.TenantID}
	return admission
}

// within is the target with the timeout of one request; 0 is its own.
func within(target *webhook.Target, timeout time.Duration) *webhook.Target {
	if timeout == 0 || timeout == target.Timeout {
		return target
	}
	own := *target // others read the one that was found
	own.Timeout = timeout
	return &own
}

// slowPass gives its place among the slow ones back when it ends.
type slowPass struct {
	Pass

	slow   *shares
	tenant string
	ended  bool
}

func (p *slowPass) Done(outcome retry.Outcome, number int, latency time.Duration) {
	p.end()
	p.Pass.Done(outcome, number, latency)
}

func (p *slowPass) Cancel() {
	p.end()
	p.Pass.Cancel()
}

func (p *slowPass) end() {
	if !p.ended {
		p.ended = true
		p.slow.give(p.tenant)
	}
}

// freePass is everybody's where there is no gate.
type freePass struct{}

func (freePass) Done(retry.Outcome, int, time.Duration) {}
func (freePass) Cancel()                                {}

// turnedAway records that the delivery waits for its turn, or is held until it is
// released. A turn that would come after the give-up time does not come.
func (a *Activities) turnedAway(ctx context.Context, fl *flight, in AttemptInput, adm Admission) (AttemptResult, error) {
	if a.Observer != nil {
		a.Observer.TurnedAway(adm.Reason)
	}
	if adm.Until.IsZero() {
		return a.hold(ctx, fl, in, adm.Reason)
	}
	step := in.next()
	step.State, step.Reason, step.DueAt = webhook.StatePending, adm.Reason, adm.Until.UTC().Truncate(time.Microsecond)
	if in.RunAttempts > 0 {
		step.State = webhook.StateRetrying
	}
	if step.DueAt.After(in.GiveUpAt) {
		step.DueAt = in.GiveUpAt
	}
	return a.record(ctx, fl, in, step)
}

// hold records that the delivery waits to be released. Past the give-up time it is
// given up instead.
//
// A held delivery is only a row, because there may be many. Its release starts a workflow.
func (a *Activities) hold(ctx context.Context, fl *flight, in AttemptInput, reason string) (AttemptResult, error) {
	if !a.Now().After(in.GiveUpAt) {
		return a.record(ctx, fl, in, in.held(reason))
	}
	if in.State == webhook.StateHeld && in.Reason == webhook.ReasonInternal {
		what, known := a.Faults.FaultOf(in.EndpointID)
		if !known { // it was over too late
			what = "a fault of our own kept it from being sent until its give-up time"
		}
		return a.holdFor(ctx, fl, in, what)
	}
	return a.record(ctx, fl, in, in.end(webhook.StateDeadLettered, webhook.ReasonHeldExpired))
}

// forget tells the gate that a delivery has come to rest without an attempt.
func (a *Activities) forget(step *webhook.Step) {
	if a.Gate != nil && step.Attempt == nil && !step.State.Open() {
		a.Gate.Forget(step.EndpointID, step.DeliveryID)
	}
}
