package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
)

// checkPause is the least time after which a shared workflow asks again for a running
// request.
const checkPause = 4 * time.Second

// Attempts make the attempts of deliveries. A slow request outlives the activity that began it, so a process has one Attempts,
// which it stops last.
type Attempts struct{ *process }

// Attempt makes the next attempt of a delivery, or finds out that it was made: it loads the
// endpoint, asks admission, signs, sends, classifies and records. It waits for the receiver at
// most FastWait, and before that as long again for admission. A slower request runs on, and the
// result says Running.
//
// An error is an internal fault; no attempt is counted.
func (a *Attempts) Attempt(ctx context.Context, in AttemptInput) (AttemptResult, error) {
	exec, err := a.startOrJoin(in)
	if err != nil {
		return AttemptResult{}, err
	}
	limit := time.NewTimer(a.waitFor(in))
	defer limit.Stop()
	select {
	case <-exec.done:
		failpoint.Hit("attempt-result")
		return exec.result, exec.err
	case <-limit.C:
		return a.leaveRunning(ctx, exec, in)
	}
}

// waitFor is how long a workflow task waits for an attempt.
func (a *Attempts) waitFor(in AttemptInput) time.Duration {
	wait := a.fastWait
	if a.admission.LikelySlow(in.EndpointID) {
		wait = min(slowWait, wait)
	}
	return wait + untilDue(&in, a.now())
}

// leaveRunning leaves an attempt that takes longer running, and claims it. It returns the result
// if the attempt has ended by now.
func (a *Attempts) leaveRunning(ctx context.Context, exec *execution, in AttemptInput) (AttemptResult, error) {
	if !a.awaitAdmission(exec) {
		return exec.result, exec.err
	}
	if a.executions.markClaimed(exec) {
		// From here on other processes must know that the request is running, and where.
		if err := a.writeClaim(ctx, exec, in, false); err != nil {
			a.log.WarnContext(ctx, "a slow attempt could not be claimed yet", "delivery", in.DeliveryID, "error", err)
			a.executions.goFor(exec, func() { a.keepClaiming(exec, in) })
		}
	}
	select {
	case <-exec.done: // it ended while the claim was written
		return exec.result, exec.err
	default:
		result := AttemptResult{Progress: in.Progress, Running: true}
		if in.Shared != "" {
			result.CheckAt = a.checkAt(exec)
		}
		return result, nil
	}
}

// checkAt is when a shared workflow asks again for a running request: after checkPause, then after
// as long as the request has taken, or when its timeout is over. So a retry is late by no more
// than that. When a request without a permit will end is not known.
func (a *Attempts) checkAt(exec *execution) time.Time {
	now := a.now()
	pause := checkPause
	select {
	case <-exec.admitted:
		taken := now.Sub(exec.began)
		pause = min(max(taken, checkPause), max(exec.timeout-taken, 0)+time.Second)
	default:
	}
	return now.Add(pause)
}

// awaitAdmission waits for an execution that has no permit yet. It will either be deferred, in which
// case a claim would be wrong, or be sent. False: the execution has ended.
func (a *Attempts) awaitAdmission(exec *execution) bool {
	select {
	case <-exec.admitted: // admitted: the wait for the receiver is over
	default:
		limit := time.NewTimer(a.fastWait)
		defer limit.Stop()
		select {
		case <-exec.done:
		case <-limit.C: // the store is slow, or the receiver is
		}
	}
	select { // it may have ended by now
	case <-exec.done:
		return false
	default:
		return true
	}
}

// SentAt returns when this process began the request that a delivery has under way; zero if it makes none.
func (a *Attempts) SentAt(d *webhook.Delivery) time.Time {
	exec := a.executions.runningOf(AttemptInput{Ref: d.Ref, Progress: d.Progress})
	if exec == nil {
		return time.Time{}
	}
	select {
	case <-exec.admitted:
		return exec.began
	default: // it has no permit yet
		return time.Time{}
	}
}

// Running is the number of attempts that are running.
func (a *Attempts) Running() int {
	a.executions.mu.Lock()
	defer a.executions.mu.Unlock()
	return a.executions.running
}

// lastRecords is how long Stop waits for outcomes to be recorded after it has cancelled the requests.
const lastRecords = time.Second

// Stop refuses new attempts, and waits until ctx ends for the running ones to be made and recorded.
// Then it cancels the requests. What was answered by then is recorded, for which Stop takes up to
// lastRecords; any other attempt is made again by another process.
func (a *Attempts) Stop(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		a.executions.close()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		a.cancel()
		limit := time.AfterFunc(lastRecords, a.endRecords)
		<-done
		limit.Stop()
	}
	a.cancel()
	a.endRecords()
	a.goroutines.Close()
}
