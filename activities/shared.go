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
	// handOverTime bounds one hand-over; what it did not get to is handed over by the next.
	handOverTime = 8 * time.Second
	// handOverWidth is how many workflows it starts at a time. All hand-overs of a
	// process together have a bound of their own, in the Starter.
	handOverWidth = 4
)

// Starter starts the own workflow of a delivery that leaves a shared one. That there
// is one already is no error; ErrCrowded means that none of the tenant's can be started now.
type Starter interface {
	HandOver(ctx context.Context, h Handover) error
}

// ErrCrowded ends a hand-over for which there was no time.
var ErrCrowded = &webhook.Error{Code: webhook.CodeUnavailable, Message: "many deliveries are going on in workflows of their own at once"}

// Handover is a delivery that goes on in a workflow of its own.
type Handover struct {
	webhook.Ref
	webhook.Progress

	// Command is what was asked of the delivery and is still to be carried out.
	Command webhook.PendingCommand `json:"command,omitzero"`
	// CommandDone: commands up to this id have been carried out.
	CommandDone int64 `json:"command_done,omitempty"`
	// UnderWay: the next attempt's request goes on; Join waits for it.
	UnderWay bool `json:"under_way,omitempty"`
	// TakeOver: the record does not know yet who goes on with the delivery.
	TakeOver  bool   `json:"take_over,omitempty"`
	Told      string `json:"told,omitempty"` // what the receiver said last, in words
	Faults    int    `json:"faults,omitempty"`
	LastError string `json:"last_error,omitempty"`
}

// AttemptsResult is where several deliveries stand after an attempt of each: those
// that did not simply come to rest.
type AttemptsResult struct {
	Left []Left `json:"left,omitempty"`
	// Faults are those of our own: where many have met the same, they are said once.
	Faults []Fault `json:"faults,omitempty"`
}

// Fault is a fault of our own that deliveries have met. They stand where they stood.
type Fault struct {
	What string `json:"what"`
	Of   []int  `json:"of"` // indexes of the input
}

// add puts in what is left to be done for a delivery.
func (r *AttemptsResult) add(left Left) {
	switch {
	case left.Fault == "" && !left.unfinished():
		return
	case left.Fault == "" || left.Run > 0: // and what the record says
		r.Left = append(r.Left, left)
		return
	}
	for i := range r.Faults {
		if r.Faults[i].What == left.Fault {
			r.Faults[i].Of = append(r.Faults[i].Of, left.Index)
			return
		}
	}
	r.Faults = append(r.Faults, Fault{What: left.Fault, Of: []int{left.Index}})
}

// Left is a delivery that an attempt did not bring to rest.
type Left struct {
	Index int `json:"index"` // of its input

	AttemptResult

	// Fault is an error of ours in words. Nothing else is known then, unless the record was
	// told of it.
	Fault string `json:"fault,omitempty"`

	concern concern // of the fault
	busy    bool    // the fault is that too much goes on here
}

// Attempts makes the next attempt of several deliveries side by side, each as
// Attempt does, and leaves out of its result whoever came to rest other than as a
// dead letter, and whoever is held.
//
// It never fails: a fault of ours with one delivery is none of the others'.
func (a *Activities) Attempts(ctx context.Context, all []AttemptInput) (AttemptsResult, error) {
	results := make([]Left, len(all))
	waiting := a.beginEach(all, results)
	limit := time.NewTimer(0)
	defer limit.Stop()
	var slow sync.WaitGroup
	for _, w := range waiting {
		limit.Reset(time.Until(w.until))
		select {
		case <-w.flight.done:
			results[w.index].set(w.flight.result, w.flight.err)
		case <-limit.C:
			slow.Go(func() {
				a.guard(all[w.index], &results[w.index], func() (AttemptResult, error) { return a.goOn(ctx, w.flight, all[w.index]) })
			})
		}
	}
	slow.Wait()
	a.noteFaults(ctx, all, results)
	var left AttemptsResult
	for i := range results {
		left.add(results[i])
	}
	return left, nil
}

// noteFaults tells the record of faults that befell single deliveries: whoever looks at one
// sees why it waits.
func (a *Activities) noteFaults(ctx context.Context, all []AttemptInput, results []Left) {
	var noting sync.WaitGroup
	for i := range results {
		left := &results[i]
		if left.Fault != "" && left.concern == concernsDelivery && !left.busy && all[i].Faults%noteEvery == 0 {
			noting.Go(func() { a.note(ctx, all[i], left) })
		}
	}
	noting.Wait()
}

// awaited is one of several attempts that have begun, and until when it is waited for.
type awaited struct {
	index  int
	flight *flight
	until  time.Time
}

// beginEach begins attempts, and returns those that have begun in the order in which they are
// waited for no longer: so they can be waited for one after another. Of the others the results
// say why they have not.
func (a *Activities) beginEach(all []AttemptInput, results []Left) []awaited {
	waiting := make([]awaited, 0, len(all))
	for i := range all {
		results[i].Index = i
		a.guard(all[i], &results[i], func() (AttemptResult, error) {
			fl, err := a.flight(all[i])
			if err == nil {
				waiting = append(waiting, awaited{i, fl, time.Now().Add(a.patience(all[i]))})
			}
			return AttemptResult{}, err
		})
	}
	slices.SortStableFunc(waiting, func(x, y awaited) int { return x.until.Compare(y.until) })
	return waiting
}

// guard makes a panic a fault of the one delivery: else it would end the process, and with
// it the others.
func (a *Activities) guard(in AttemptInput, left *Left, attempt func() (AttemptResult, error)) {
	defer func() {
		if p := recover(); p != nil {
			left.set(AttemptResult{}, a.panicked(in, p))
		}
	}()
	left.set(attempt())
}

// set fills in what Attempt returns.
func (l *Left) set(result AttemptResult, err error) {
	if err != nil {
		l.concern, l.Fault = concernOf(err)
		l.busy = errors.Is(err, errTooMany) || errors.Is(err, errStopping)
		return
	}
	l.AttemptResult = result
}

// unfinished reports that something is still to be done for the delivery.
func (r *AttemptResult) unfinished() bool {
	held := r.State == webhook.StateHeld && r.Command.Command == webhook.CommandNone && r.BusyUntil.IsZero()
	return r.Running || !r.State.Final() && !held
}

// HandedOver is what a hand-over left to be done.
type HandedOver struct {
	Left  []int  `json:"left,omitempty"`  // indexes of those that were not started
	Fault string `json:"fault,omitempty"` // why, in words
}

// HandOver starts the own workflows of deliveries: as many as it gets to. It never
// fails; repeating it for those that are left does no harm.
func (a *Activities) HandOver(ctx context.Context, all []Handover) (HandedOver, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	var (
		started sync.WaitGroup
		slots   = make(chan struct{}, handOverWidth)
		faults  = make([]error, len(all))
		crowded sync.Map // tenants that there is no room for now
		result  HandedOver
	)
	for i := range all {
		slots <- struct{}{}
		started.Go(func() {
			defer func() { <-slots }()
			if _, full := crowded.Load(all[i].TenantID); full {
				faults[i] = ErrCrowded
			} else if faults[i] = context.Cause(ctx); faults[i] == nil {
				faults[i] = a.handOver(ctx, all[i])
			}
			if errors.Is(faults[i], ErrCrowded) {
				crowded.Store(all[i].TenantID, nil)
			}
		})
	}
	started.Wait()
	for i, fault := range faults {
		if fault != nil {
			result.Left = append(result.Left, i)
		}
	}
	if len(result.Left) > 0 {
		result.Fault = a.ownFault(ctx, "hand over to workflows of their own", faults[result.Left[0]]).Error()
	}
	return result, nil
}

// handOver starts one; a panic is its error, and none of the others'.
func (a *Activities) handOver(ctx context.Context, h Handover) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = a.panicked(AttemptInput{Ref: h.Ref, Progress: h.Progress}, p)
		}
	}()
	return a.Starter.HandOver(ctx, h)
}
