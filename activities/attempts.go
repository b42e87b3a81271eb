package activities

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
)

// CheckPause is the least time after which a workflow asks again for a running request.
const CheckPause = 4 * time.Second

// Attempts make the attempts of deliveries. A slow request outlives the activity that began it, so a process has one Attempts,
// which it stops last.
type Attempts struct{ *process }

// recordFaultEvery: an internal fault of one delivery is recorded the first time and every tenth time in a row.
const recordFaultEvery = 10

// AttemptsResult is the result of several attempts. Of a shared workflow, those are not in it that delivered with the next attempt.
type AttemptsResult struct {
	Members []MemberResult `json:"members,omitempty"`
	// Ended are deliveries of a shared workflow for which nothing is left to be done and that were not delivered. Those of one
	// end are listed together.
	Ended []End `json:"ended,omitempty"`
	// Faults are internal faults: one that several deliveries have met is listed once.
	Faults []Fault `json:"faults,omitempty"`
}

// Fault is an internal fault that deliveries have met. Their status has not changed.
type Fault struct {
	What string `json:"what"`
	Of   []int  `json:"of"` // indexes of the input
}

// End is the end of deliveries, or the hold that makes them rows without a workflow.
type End struct {
	State  webhook.State `json:"state"`
	Reason string        `json:"reason,omitempty"`
	Of     []int         `json:"of"` // indexes of the input
}

// add adds the result of a delivery: as short as it can be said where many share a workflow.
func (r *AttemptsResult) add(m MemberResult, in *AttemptInput) {
	later := m.State == webhook.StateDelivered && m.Attempts != in.Attempts+1 // another process made attempts of which the workflow knows nothing
	switch {
	case m.Fault == "" && in.Shared != "" && !m.unfinished() && !later:
		r.addEnd(m.Index, m.State, m.Reason)
		return
	case m.Fault == "" || m.Run > 0: // with what the store says
		r.Members = append(r.Members, m)
		return
	}
	for i := range r.Faults {
		if r.Faults[i].What == m.Fault {
			r.Faults[i].Of = append(r.Faults[i].Of, m.Index)
			return
		}
	}
	r.Faults = append(r.Faults, Fault{What: m.Fault, Of: []int{m.Index}})
}

func (r *AttemptsResult) addEnd(index int, state webhook.State, reason string) {
	if state == webhook.StateDelivered {
		return
	}
	for i := range r.Ended {
		if end := &r.Ended[i]; end.State == state && end.Reason == reason {
			end.Of = append(end.Of, index)
			return
		}
	}
	r.Ended = append(r.Ended, End{State: state, Reason: reason, Of: []int{index}})
}

// MemberResult is the result of an attempt.
type MemberResult struct {
	Index int `json:"index"` // of its input

	AttemptResult

	// Fault is an internal fault in words. Nothing else is known then, unless the fault is
	// recorded.
	Fault string `json:"fault,omitempty"`

	scope scope // of the fault
	busy  bool  // the fault is that too many attempts are running, or that the process stops
}

// Attempts makes the next attempts of deliveries concurrently, or finds out that they were made: each loads the
// endpoint, asks admission, signs, sends, classifies and records. It waits for a receiver at
// most FastWait, and before that as long again for admission. A slower request runs on, and the
// result says Running.
//
// It never fails: an internal fault with one delivery does not affect the others. No attempt is counted then.
func (a *Attempts) Attempts(ctx context.Context, all []AttemptInput) (AttemptsResult, error) {
	results := make([]MemberResult, len(all))
	waiting := a.beginEach(all, results)
	limit := time.NewTimer(0)
	defer limit.Stop()
	var slow sync.WaitGroup
	for _, w := range waiting {
		limit.Reset(time.Until(w.until))
		select {
		case <-w.exec.done:
			failpoint.Hit("attempt-result")
			results[w.index].set(w.exec.result, w.exec.err)
		case <-limit.C:
			slow.Go(func() {
				a.guard(all[w.index], &results[w.index], func() (AttemptResult, error) { return a.leaveRunning(ctx, w.exec, all[w.index]) })
			})
		}
	}
	slow.Wait()
	a.recordFaults(ctx, all, results)
	var result AttemptsResult
	for i := range results {
		result.add(results[i], &all[i])
	}
	return result, nil
}

// recordFaults records the internal faults that affect single deliveries: their last_error then says why they wait.
func (a *Attempts) recordFaults(ctx context.Context, all []AttemptInput, results []MemberResult) {
	var recording sync.WaitGroup
	for i := range results {
		result := &results[i]
		recorded := result.scope == scopeDelivery || len(all) == 1 // an outage of the store is not recorded for many
		if result.Fault != "" && recorded && !result.busy && all[i].Faults%recordFaultEvery == 0 {
			recording.Go(func() { a.recordFault(ctx, all[i], result) })
		}
	}
	recording.Wait()
}

// recordFault records an internal fault that affects one delivery. The store's status becomes part of the result; the
// fault does not if the delivery has ended or goes on elsewhere. A held delivery that was released
// is no longer held then: otherwise it would be released again while it waits here.
func (a *Attempts) recordFault(ctx context.Context, in AttemptInput, result *MemberResult) {
	step := webhook.Step{Ref: in.Ref, Progress: in.Progress, WorkflowID: in.workflowID(), CommandDone: in.CommandDone, LastError: result.Fault}
	step.Seq++
	if step.DueAt.IsZero() { // without a due time the reconciler would not find it before its give-up time
		now := a.now().UTC().Truncate(time.Microsecond)
		step.Progress = step.WaitingUntil(now, now.Add(time.Second))
	}
	status, err := a.store.RecordStep(ctx, step)
	if err != nil {
		return // it is recorded with a later fault
	}
	result.AttemptResult = resultOf(&in, status)
	if !status.State.Open() || status.Run != in.Run || status.WorkflowID != in.workflowID() {
		result.Fault = ""
	}
}

// awaited is one of several running attempts, and until when it is waited for.
type awaited struct {
	index int
	exec  *execution
	until time.Time
}

// beginEach begins attempts, and returns those that have begun in the order in which the wait for
// them ends: so they can be waited for one after another. The results of the others say why they
// have not begun.
func (a *Attempts) beginEach(all []AttemptInput, results []MemberResult) []awaited {
	waiting := make([]awaited, 0, len(all))
	for i := range all {
		results[i].Index = i
		a.guard(all[i], &results[i], func() (AttemptResult, error) {
			exec, err := a.startOrJoin(all[i])
			if err == nil {
				waiting = append(waiting, awaited{i, exec, time.Now().Add(a.waitFor(all[i]))})
			}
			return AttemptResult{}, err
		})
	}
	slices.SortStableFunc(waiting, func(x, y awaited) int { return x.until.Compare(y.until) })
	return waiting
}

// guard turns a panic into a fault of the one delivery. Otherwise it would end the process.
func (a *Attempts) guard(in AttemptInput, result *MemberResult, attempt func() (AttemptResult, error)) {
	defer func() {
		if p := recover(); p != nil {
			result.set(AttemptResult{}, a.panicked(in.title(), p))
		}
	}()
	result.set(attempt())
}

// set takes over the result of an attempt, or its fault.
func (m *MemberResult) set(result AttemptResult, err error) {
	if err != nil {
		m.scope, m.Fault = describeFault(err)
		m.busy = errors.Is(err, errTooMany) || errors.Is(err, errStopping)
		return
	}
	m.AttemptResult = result
}

// unfinished reports that the delivery needs further work.
func (r *AttemptResult) unfinished() bool {
	held := r.State == webhook.StateHeld && r.Command.Command == webhook.CommandNone && r.ClaimedUntil.IsZero()
	return r.Running || !r.State.Final() && !held
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
		return AttemptResult{Progress: in.Progress, Running: true, CheckAt: a.checkAt(exec)}, nil
	}
}

// checkAt is when a workflow asks again for a running request: after CheckPause, then after
// as long as the request has taken, or when its timeout is over. So a retry is late by no more
// than that. When a request without a permit will end is not known.
func (a *Attempts) checkAt(exec *execution) time.Time {
	now := a.now()
	pause := CheckPause
	select {
	case <-exec.admitted:
		taken := now.Sub(exec.began)
		pause = min(max(taken, CheckPause), max(exec.timeout-taken, 0)+time.Second)
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
