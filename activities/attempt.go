package activities

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// claimSlack is added to an attempt's deadline in its claim: the time to record it.
	claimSlack = 5 * time.Second
	// ownWork bounds what an attempt does beside the request: reading and recording.
	ownWork = 20 * time.Second
	// earlyEnough is how much before its time an attempt may start: timers and
	// clocks are not exact.
	earlyEnough = 50 * time.Millisecond
	// MaxEarly is how much before its due time an attempt may be asked for: it waits
	// that long, so that attempts with one timer between them still go out spread.
	MaxEarly = time.Second
	// busyPause is the least wait for another process's right to send.
	busyPause = time.Second
	// lookPause is the least time after which a shared workflow asks again for a request
	// that goes on.
	lookPause = 4 * time.Second
)

// AttemptInput says which attempt is to be made: the next one after Progress.
type AttemptInput struct {
	webhook.Ref
	webhook.Progress

	NotBefore   time.Time `json:"not_before,omitzero"` // the event's deliver_at
	CommandDone int64     `json:"command_done,omitempty"`

	// FirstTask says that the delivery's workflow is in its very first task: no task
	// before it can have been lost together with what it sent. Only then may a fresh
	// token stand for the look into the record.
	FirstTask bool `json:"first_task,omitempty"`

	// Probe: a person has asked for it. It goes although the circuit is open, unless another is
	// to find out already.
	Probe bool `json:"probe,omitempty"`

	// Shared is the workflow that makes the attempt beside those of other deliveries;
	// "" is the delivery's own.
	Shared string `json:"shared,omitempty"`

	// Faults is how often in a row a fault of our own has kept a shared workflow from it.
	Faults int `json:"faults,omitempty"`
}

// AttemptResult is where the delivery stands after it.
type AttemptResult struct {
	webhook.Progress

	// Running: the receiver is slow; the request goes on. A shared workflow asks for it
	// again at LookAt; a delivery's own waits for it with Join.
	Running bool      `json:"running,omitempty"`
	LookAt  time.Time `json:"look_at,omitzero"`
	// BusyUntil: another process has the right to send until then; nothing was sent.
	BusyUntil time.Time `json:"busy_until,omitzero"`
	// Command is what a person asked and no step has answered, if anything.
	Command webhook.PendingCommand `json:"command,omitzero"`
	// Told is what the receiver answered, in words: "503, Retry-After 30s".
	Told string `json:"told,omitempty"`
	// WorkflowID is who goes on with the delivery, as the record says; "" when it was
	// not asked.
	WorkflowID string `json:"workflow_id,omitempty"`
}

// Attempt makes the next attempt of a delivery, or finds out that it was made:
// checks, signs, sends, judges and records it. It waits for the receiver at most
// FastWait, and up to another where the gate had not let it through by then; a slower
// request goes on, and the result says Running.
//
// An error means that we could not do our part; nothing is counted.
func (a *Activities) Attempt(ctx context.Context, in AttemptInput) (AttemptResult, error) {
	fl, err := a.flight(in)
	if err != nil {
		return AttemptResult{}, err
	}
	limit := time.NewTimer(a.patience(in))
	defer limit.Stop()
	select {
	case <-fl.done:
		return fl.result, fl.err
	case <-limit.C:
		return a.goOn(ctx, fl, in)
	}
}

// goOn leaves an attempt that takes longer to itself, and claims it. One that has just ended has
// a result after all.
func (a *Activities) goOn(ctx context.Context, fl *flight, in AttemptInput) (AttemptResult, error) {
	if !a.awaitPassage(fl) {
		return fl.result, fl.err
	}
	if a.flights.needsClaim(fl) {
		// From here on others must know that the request is under way, and whose it is.
		if err := a.writeClaim(ctx, fl, in, false); err != nil {
			a.Logger.WarnContext(ctx, "a slow attempt could not be claimed yet", "delivery", in.DeliveryID, "error", err)
			a.flights.run(func() { a.keepClaiming(fl, in) })
		}
	}
	select {
	case <-fl.done: // it ended while the claim was written
		return fl.result, fl.err
	default:
		result := AttemptResult{Progress: in.Progress, Running: true}
		if in.Shared != "" {
			result.LookAt = a.lookAt(fl)
		}
		return result, nil
	}
}

// lookAt is when to ask again for a request that goes on: a while later, then after as long
// as it has taken, or when its time is over. So a retry is late by no more than that. Of one
// that the gate has not let through yet nobody knows when it is over.
func (a *Activities) lookAt(fl *flight) time.Time {
	now := a.Now()
	pause := lookPause
	select {
	case <-fl.passed:
		taken := now.Sub(fl.begun)
		pause = min(max(taken, lookPause), max(fl.timeout-taken, 0)+time.Second)
	default:
	}
	return now.Add(pause)
}

// awaitPassage waits for a flight that the gate has not let through yet: it is about to be
// told to wait, where a claim would say that it is being sent, or to be sent and maybe
// answered soon. False when the flight has ended.
func (a *Activities) awaitPassage(fl *flight) bool {
	select {
	case <-fl.passed: // the receiver has had its time, or what was left of it
	default:
		limit := time.NewTimer(a.FastWait)
		defer limit.Stop()
		select {
		case <-fl.done:
		case <-limit.C: // the record is slow, or the receiver is
		}
	}
	select { // it may have ended by now
	case <-fl.done:
		return false
	default:
		return true
	}
}

// untilDue is how long an attempt that was asked for a little early has to wait.
func untilDue(in AttemptInput, now time.Time) time.Duration {
	return min(max(in.DueAt.Sub(now), 0), MaxEarly)
}

// flight is the attempt's flight: the one under way, the remembered one, or a new one.
func (a *Activities) flight(in AttemptInput) (*flight, error) {
	fl, mine, err := a.flights.enter(in, a.Now())
	if err != nil {
		return nil, fmt.Errorf("attempt %d of %s: %w", in.Attempts+1, in.DeliveryID, err)
	}
	if mine {
		a.crew.run(func() { a.fly(fl, in, a.make) })
	}
	return fl, nil
}

// writeClaim tells the record that this process sends the attempt. keepOutbox says that its
// workflow is still to be started.
func (a *Activities) writeClaim(ctx context.Context, fl *flight, in AttemptInput, keepOutbox bool) error {
	ctx, cancel := context.WithTimeout(ctx, a.FastWait)
	defer cancel()
	timeout := webhook.MaxTimeout
	select {
	case <-fl.passed:
		timeout = fl.timeout
	default: // it may be let through at any moment
	}
	claim := a.claim(in, timeout)
	claim.KeepOutbox = keepOutbox
	_, err := a.Store.Claim(ctx, claim)
	return err
}

// keepClaiming repeats the claim while the request is under way: when the record is
// in reach again, a Join in another process must find it there before it sends.
func (a *Activities) keepClaiming(fl *flight, in AttemptInput) {
	for {
		pause := time.NewTimer(a.FastWait / 2)
		select {
		case <-fl.done:
			pause.Stop()
			return
		case <-pause.C:
		}
		if a.writeClaim(a.base, fl, in, fl.eager) == nil {
			return
		}
	}
}

func (in *AttemptInput) key() flightKey { return flightKey{in.DeliveryID, in.Run, in.Attempts + 1} }

// holder is the workflow that makes the attempt.
func (in *AttemptInput) holder() string {
	if in.Shared != "" {
		return in.Shared
	}
	return in.WorkflowID()
}

func (a *Activities) claim(in AttemptInput, timeout time.Duration) webhook.Claim {
	return webhook.Claim{
		Ref: in.Ref, Progress: in.Progress, WorkflowID: in.holder(), Owner: a.Owner, For: timeout + claimSlack,
	}
}

// fly makes an attempt, in a goroutine of its own, because it may outlast the
// activity that began it.
func (a *Activities) fly(fl *flight, in AttemptInput, attempt func(*flight, AttemptInput) (AttemptResult, error)) {
	defer a.flights.end(in.key(), fl)
	defer func() {
		if p := recover(); p != nil {
			fl.err = a.panicked(in, p)
		}
		if fl.err != nil && a.Observer != nil {
			a.Observer.Faulted(fl.err)
		}
	}()
	fl.result, fl.err = attempt(fl, in)
}

// panicked logs a panic and makes it an error. A panic's value may be anything, a
// payload too: unless the runtime made it, it is told nowhere.
func (a *Activities) panicked(in AttemptInput, value any) error {
	words := fmt.Sprintf("a value of type %T", value)
	if own, ok := value.(runtime.Error); ok {
		words = own.Error()
	}
	a.Logger.Error("an attempt panicked", "delivery", in.DeliveryID, "panic", words, "stack", string(debug.Stack()))
	return fmt.Errorf("attempt %d of %s: panic: %s", in.Attempts+1, in.DeliveryID, words)
}

// make is one attempt from the first check to the record.
func (a *Activities) make(fl *flight, in AttemptInput) (AttemptResult, error) {
	result, err := a.makeGuarded(fl, &in)
	if err != nil {
		return a.faulted(fl, in, err)
	}
	return result, nil
}

// makeGuarded makes a panic a fault like any other.
func (a *Activities) makeGuarded(fl *flight, in *AttemptInput) (result AttemptResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = a.panicked(*in, p)
		}
	}()
	return a.makeOnce(fl, in)
}

func (a *Activities) makeOnce(fl *flight, in *AttemptInput) (AttemptResult, error) {
	ctx, cancel := context.WithTimeout(a.base, webhook.MaxTimeout+ownWork)
	defer cancel()
	if fl.unrecorded != nil {
		step := *fl.unrecorded
		step.KeepOutbox = false // its workflow asks for it
		switch {
		case in.Shared == "": // a shared workflow may have made it, and left it to the delivery's own to record
			step.WorkflowID = in.WorkflowID()
		case step.State == webhook.StateDelivered: // eagerly, for a workflow that may never be started
			step.WorkflowID = in.Shared
		}
		return a.record(ctx, fl, *in, step)
	}

	if !a.waitUntilDue(ctx, *in) {
		return AttemptResult{}, errStopping
	}
	if what, known := a.knownFault(*in); known {
		return a.holdFor(ctx, fl, *in, what)
	}

	target, err := a.Targets.Target(ctx, in.EndpointID)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return a.record(ctx, fl, *in, in.end(webhook.StateCancelled, webhook.ReasonEndpointDeleted))
	}
	if err != nil {
		return AttemptResult{}, a.ownFault(ctx, fmt.Sprintf("load endpoint %s", in.EndpointID), err)
	}
	if now := a.Now(); in.NotBefore.After(now.Add(earlyEnough)) {
		return a.record(ctx, fl, *in, in.waitUntil(in.NotBefore))
	}
	if reason := whyHeld(target); reason != "" || in.State == webhook.StateHeld && a.Now().After(in.GiveUpAt) {
		return a.hold(ctx, fl, *in, reason)
	}
	if in.Deferred() && !a.Now().Before(in.GiveUpAt) {
		return a.record(ctx, fl, *in, in.end(webhook.StateDeadLettered, webhook.ReasonDeferredExpired))
	}
	admission := a.admit(ctx, *in, target)
	if admission.Pass == nil {
		// The step says that it waits: whoever sends it then has to ask the record.
		_, _ = a.Fresh.Take(in.DeliveryID)
		return a.turnedAway(ctx, fl, *in, admission)
	}
	defer admission.Pass.Cancel()
	target = within(target, admission.Timeout)
	fl.timeout = target.Timeout
	close(fl.passed)
	content, result, err := a.permission(ctx, fl, in, target)
	if content == nil {
		return result, err
	}
	if now := a.Now(); now.After(in.GiveUpAt) {
		reason := string(retry.ReasonGiveUpTime)
		if in.Faults > 0 {
			reason = webhook.ReasonInternal
		}
		return a.record(ctx, fl, *in, in.end(webhook.StateDeadLettered, reason))
	}
	made, err := a.send(ctx, *in, target, content, admission.Pass)
	if err != nil {
		return AttemptResult{}, err
	}
	return a.record(ctx, fl, *in, a.judge(*in, target, made))
}

// waitUntilDue waits until the attempt is due, when it was asked for a little early;
// false when this process is told to end meanwhile.
func (a *Activities) waitUntilDue(ctx context.Context, in AttemptInput) bool {
	early := untilDue(in, a.Now())
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

// whyHeld is why nothing is sent to the endpoint; "" when it is active.
func whyHeld(target *webhook.Target) string {
	switch target.State {
	case webhook.EndpointPaused:
		return webhook.ReasonPaused
	case webhook.EndpointDisabled:
		return webhook.ReasonDisabled
	case webhook.EndpointActive:
	}
	return ""
}

// send makes the request, and ends the pass with what it came to. An error that did not come
// of this process's end keeps every request from the endpoint, not this one.
func (a *Activities) send(ctx context.Context, in AttemptInput, target *webhook.Target, content *webhook.Content, pass Pass) (webhook.Attempt, error) {
	about := message{in.EventID, in.DeliveryID, in.EventType, content.CreatedAt, in.Attempts + 1}
	made, err := post(ctx, a.Sender, a.Now(), target, about, content.Payload)
	if err != nil {
		fault := &ownError{error: fmt.Errorf("attempt %d of %s: %w", in.Attempts+1, in.DeliveryID, err), what: err.Error()}
		if ctx.Err() == nil {
			fault.concern = concernsEndpoint
			a.Logger.WarnContext(ctx, "a fault of our own", "delivery", in.DeliveryID, "endpoint", in.EndpointID, "error", err)
		}
		return webhook.Attempt{}, fault
	}
	pass.Done(made.Outcome, in.Attempts+1, made.Latency)
	return made, nil
}
