package activities

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// handOverTime bounds one HandOver; the next one starts what is left.
	handOverTime = 8 * time.Second
	// handOverWidth is how many workflows one HandOver starts at a time. The Starter limits the
	// total per process.
	handOverWidth = 4
)

// Starter starts the own workflow of a delivery that leaves a shared one. It is no error that the
// workflow exists already. ErrTooManyHandOvers: none of the tenant's can be started now.
type Starter interface {
	HandOver(ctx context.Context, h DeliveryState) error
}

// ErrTooManyHandOvers is the error of a start that would have to wait too long for others.
var ErrTooManyHandOvers = &webhook.Error{Code: webhook.CodeUnavailable, Message: "too many deliveries are being handed over at once"}

// DeliveryState is what a workflow knows of one of its deliveries.
type DeliveryState struct {
	webhook.Ref
	webhook.Progress

	// Command is to be handled; commands up to the id CommandDone have been.
	Command     webhook.PendingCommand `json:"command,omitzero"`
	CommandDone int64                  `json:"command_done,omitempty"`
	// Running: the request of the next attempt is under way. Join waits for it.
	Running bool `json:"running,omitempty"`
	// Unconfirmed: the store does not name the delivery's own workflow, or keeps a command that
	// has been handled. See workflows.DeliveryState.
	Unconfirmed bool                 `json:"unconfirmed,omitempty"`
	LastOutcome *webhook.LastOutcome `json:"last_outcome,omitempty"` // of the last attempt that this or an earlier workflow made
	Faults      int                  `json:"faults,omitempty"`       // internal faults in a row
	LastError   string               `json:"last_error,omitempty"`   // the last of them
	// Unowned is how often in a row the attempt was deferred because its worker did not reach the owner of the endpoint's lane.
	Unowned int `json:"unowned,omitempty"`

	// Trace says where the spans of the delivery's workflows belong.
	Trace webhook.Trace `json:"trace,omitempty"`
}

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
func (a *Activities) Attempts(ctx context.Context, all []AttemptInput) (AttemptsResult, error) {
	results := make([]MemberResult, len(all))
	waiting := a.beginEach(all, results) //nolint:contextcheck // attempts outlive the activity that began them
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
func (a *Activities) recordFaults(ctx context.Context, all []AttemptInput, results []MemberResult) {
	var recording sync.WaitGroup
	for i := range results {
		result := &results[i]
		if result.Fault != "" && result.scope == scopeDelivery && !result.busy && all[i].Faults%recordFaultEvery == 0 {
			recording.Go(func() { a.recordFault(ctx, all[i], result) })
		}
	}
	recording.Wait()
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
func (a *Activities) beginEach(all []AttemptInput, results []MemberResult) []awaited {
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
func (a *Activities) guard(in AttemptInput, result *MemberResult, attempt func() (AttemptResult, error)) {
	defer func() {
		if p := recover(); p != nil {
			result.set(AttemptResult{}, a.panicked(in, p))
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

// HandedOver is the result of HandOver.
type HandedOver struct {
	Remaining []int  `json:"remaining,omitempty"` // indexes of those that were not started
	Fault     string `json:"fault,omitempty"`     // why, in words
}

// HandOver starts the own workflows of deliveries: as many as it can within handOverTime. It never
// fails. The workflow calls it again for those that remain.
func (a *Activities) HandOver(ctx context.Context, all []DeliveryState) (HandedOver, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	var (
		started sync.WaitGroup
		slots   = make(chan struct{}, handOverWidth)
		faults  = make([]error, len(all))
		refused sync.Map // tenants of which no more can be handed over now
		result  HandedOver
	)
	for i := range all {
		slots <- struct{}{}
		started.Go(func() {
			defer func() { <-slots }()
			if _, full := refused.Load(all[i].TenantID); full {
				faults[i] = ErrTooManyHandOvers
			} else if faults[i] = context.Cause(ctx); faults[i] == nil {
				faults[i] = a.handOver(ctx, all[i])
			}
			if errors.Is(faults[i], ErrTooManyHandOvers) {
				refused.Store(all[i].TenantID, nil)
			}
		})
	}
	started.Wait()
	for i, fault := range faults {
		if fault != nil {
			result.Remaining = append(result.Remaining, i)
		}
	}
	if len(result.Remaining) > 0 {
		result.Fault = a.handOverFault(ctx, faults[result.Remaining[0]])
	}
	return result, nil
}

// handOverFault is a fault of a hand-over in words. That too many are under way is no internal fault.
func (a *Activities) handOverFault(ctx context.Context, err error) string {
	const op = "hand over to workflows of their own"
	if errors.Is(err, ErrTooManyHandOvers) {
		return op + ": " + ErrTooManyHandOvers.Message
	}
	return a.internalFault(ctx, op, err).Error()
}

// handOver starts one workflow, and turns a panic into its error.
func (a *Activities) handOver(ctx context.Context, h DeliveryState) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = a.panicked(AttemptInput{Ref: h.Ref, Progress: h.Progress}, p)
		}
	}()
	if !h.Fits() {
		return nil // there is no such delivery, so there is nothing to hand over
	}
	if h.State == webhook.StateDeadLettered {
		if gone, err := a.isNoDeadLetter(ctx, h); gone || err != nil {
			return err
		}
	}
	return a.starter.HandOver(ctx, h)
}

// isNoDeadLetter reports that a dead letter was replayed or has ended while its hand-over was put off. A
// workflow of it would keep what is no dead letter.
func (a *Activities) isNoDeadLetter(ctx context.Context, h DeliveryState) (gone bool, err error) {
	status, err := a.store.ClaimStatus(ctx, h.Ref, a.claimant)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return true, nil
	}
	return status.Run != h.Run || status.State != webhook.StateDeadLettered, err
}
