package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxAhead bounds the first requests that are ahead of their workflows. A tenant gets as
	// many as it leaves to the others.
	maxAhead = 128
	// startOwnTime bounds a try to start the workflow of one that none has come to, and
	// longestStartPause is between two.
	startOwnTime, longestStartPause = 2 * time.Second, 30 * time.Second
)

// ahead is what is known of the workflow of a flight that was begun ahead of it. flights.mu
// guards it.
type ahead struct {
	asked    chan AttemptInput // gets what the workflow asks for, once
	isHere   bool              // it has asked
	alone    bool              // it has not, for too long: the delivery's own one goes on
	answered bool              // the request has ended
}

// ask tells the flight that its workflow is there. Of several the first one counts. The
// caller holds the lock.
func (h *ahead) ask(in AttemptInput) {
	if h != nil && !h.isHere && !h.alone {
		h.isHere = true
		h.asked <- in
	}
}

// lead is what a request that is ahead is made of.
type lead struct {
	target  *webhook.Target
	pass    Pass
	content *webhook.Content
}

// Ahead sends the first request of a delivery that has just been stored while its workflow
// is being started, if nothing speaks against that; false means that nothing is sent, and
// the workflow's Attempt does all. It does not block.
//
// The request's outcome waits for the workflow to ask for it: that knows who goes on with the
// delivery, which is part of the record. When it has not come within FastWait, or this
// process stops, it is recorded as if the delivery had its own, which is then started if
// there is something left to do.
//
// Only a process that runs all workflows may call it. Another one would not know of the
// request, and make it again.
func (a *Activities) Ahead(in AttemptInput) bool {
	target, ok := a.Targets.Known(in.EndpointID)
	if _, faulty := a.Faults.FaultOf(in.EndpointID); faulty || !ok || whyHeld(target) != "" || !a.leading.take(in.TenantID, maxAhead) {
		return false
	}
	fl, l := a.takeOff(in, target)
	if fl == nil {
		a.leading.give(in.TenantID)
		return false
	}
	a.crew.run(func() {
		a.fly(fl, in, func(fl *flight, in AttemptInput) (AttemptResult, error) { return a.makeAhead(fl, in, l) })
	})
	return true
}

// takeOff begins the flight if the gate lets it through and there is a token for it.
func (a *Activities) takeOff(in AttemptInput, target *webhook.Target) (*flight, lead) {
	admission := Admission{Pass: freePass{}}
	if a.Gate != nil {
		admission = a.Gate.TryEnter(Entry{Endpoint: &target.Endpoint, Delivery: in.DeliveryID})
	}
	if admission.Pass == nil {
		return nil, lead{}
	}
	var fl *flight
	content := a.fresh(a.base, &in)
	if content != nil {
		fl = a.flights.enterAhead(in, a.Now())
	}
	if fl == nil {
		admission.Pass.Cancel()
		return nil, lead{}
	}
	l := lead{target: within(target, admission.Timeout), pass: admission.Pass, content: content}
	fl.timeout = l.target.Timeout
	close(fl.passed)
	return fl, l
}

// makeAhead is an attempt that is begun before anybody asks for it.
func (a *Activities) makeAhead(fl *flight, in AttemptInput, l lead) (AttemptResult, error) {
	alone := make(chan struct{})
	place := time.AfterFunc(a.FastWait, func() {
		a.leading.give(in.TenantID) // who is slow is no secret any more
		if a.flights.leaveAlone(fl) {
			close(alone)
			a.flights.run(func() { a.claimAlone(fl, in) })
		}
	})
	over := false // nothing is left to do
	defer func() {
		if place.Stop() {
			a.leading.give(in.TenantID)
		}
		l.pass.Cancel()
		if !over && a.flights.isAlone(fl) {
			a.flights.runOn(func() { a.startOwn(in) })
		}
	}()
	ctx, cancel := context.WithTimeout(a.base, webhook.MaxTimeout+ownWork)
	defer cancel()
	made, err := a.send(ctx, in, l.target, l.content, l.pass)
	a.flights.answer(fl)
	if err != nil {
		return AttemptResult{}, err
	}
	asked := in
	select {
	case asked = <-fl.ahead.asked:
	case <-alone:
	case <-a.flights.closing:
		if !a.flights.leaveAlone(fl) {
			asked = <-fl.ahead.asked
		}
	}
	result, err := a.record(ctx, fl, asked, a.judge(asked, l.target, made))
	over = err == nil && result.State.Final()
	return result, err
}

// claimAlone tells the record of a request that goes on and for which nobody has asked.
func (a *Activities) claimAlone(fl *flight, in AttemptInput) {
	if !a.flights.isAnswered(fl) && a.flights.needsClaim(fl) && a.writeClaim(a.base, fl, in) != nil {
		a.keepClaiming(fl, in)
	}
}

// startOwn starts the delivery's own workflow, as often as it takes: the outbox has done with
// it. The workflow finds the attempt in this process or in the record. What this process does
// not get to, with one try when it stops, is the reconciler's.
func (a *Activities) startOwn(in AttemptInput) {
	for pause := time.Second; ; pause = min(2*pause, longestStartPause) {
		ctx, cancel := context.WithTimeout(a.base, startOwnTime)
		err := a.handOver(ctx, Handover{Ref: in.Ref, Progress: in.Progress})
		cancel()
		if err == nil {
			return
		}
		if pause == time.Second {
			a.Logger.Warn("the workflow of a delivery that was sent cannot be started yet", "delivery", in.DeliveryID, "error", err)
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-a.flights.closing:
			again.Stop()
			return
		}
	}
}
