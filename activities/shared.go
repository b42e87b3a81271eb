package activities

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// recordFaultEvery: an internal fault with a shared workflow's delivery is recorded the first
// time and every tenth time in a row.
const recordFaultEvery = 10

// AttemptsResult has the deliveries that an attempt did not simply deliver.
type AttemptsResult struct {
	Members []MemberResult `json:"members,omitempty"`
	// Ended are deliveries for which nothing is left to be done and that were not delivered. Those of one
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

// add adds the result of a delivery, unless it was delivered.
func (r *AttemptsResult) add(m MemberResult) {
	switch {
	case m.Fault == "" && !m.unfinished():
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

// MemberResult is the result of an attempt that did not end its delivery.
type MemberResult struct {
	Index int `json:"index"` // of its input

	AttemptResult

	// Fault is an internal fault in words. Nothing else is known then, unless the fault is
	// recorded.
	Fault string `json:"fault,omitempty"`

	scope scope // of the fault
	busy  bool  // the fault is that too many attempts are running, or that the process stops
}

// Attempts makes the next attempt of several deliveries concurrently, each as Attempt does. Its
// result does not contain deliveries that were delivered.
//
// It never fails: an internal fault with one delivery does not affect the others.
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
		result.add(results[i])
	}
	return result, nil
}

// recordFaults records the internal faults that affect single deliveries, so that a person who
// looks at one sees why it waits.
func (a *Attempts) recordFaults(ctx context.Context, all []AttemptInput, results []MemberResult) {
	var recording sync.WaitGroup
	for i := range results {
		result := &results[i]
		if result.Fault != "" && result.scope == scopeDelivery && !result.busy && all[i].Faults%recordFaultEvery == 0 {
			recording.Go(func() { a.recordFault(ctx, all[i], result) })
		}
	}
	recording.Wait()
}

// recordFault records an internal fault that affects one delivery of a shared workflow, so that a
// person who looks at it sees why it waits. The store's status becomes part of the result; the
// fault does not if the delivery has ended or goes on elsewhere. A held delivery that was released
// is no longer held then: otherwise it would be released again while it waits here.
func (a *Attempts) recordFault(ctx context.Context, in AttemptInput, result *MemberResult) {
	step := webhook.Step{Ref: in.Ref, Progress: in.Progress, WorkflowID: in.Shared, CommandDone: in.CommandDone, LastError: result.Fault}
	step.Seq++
	if step.DueAt.IsZero() { // without a due time the reconciler would not find it before its give-up time
		step.Progress = step.WaitingUntil(a.now().Add(time.Second).UTC().Truncate(time.Microsecond))
	}
	status, err := a.store.RecordStep(ctx, step)
	if err != nil {
		return // it is recorded with a later fault
	}
	result.AttemptResult = resultOf(&in, status)
	if !status.State.Open() || status.Run != in.Run || status.WorkflowID != in.Shared {
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

// set takes over what Attempt returns.
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
