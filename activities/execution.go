package activities

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// execution is one attempt that this process makes or has made. Its outcome is remembered: if the
// workflow task was lost after the request went out, the repeated activity gets the outcome, and
// the request is not sent again.
type execution struct {
	began    time.Time
	done     chan struct{} // closed when the execution has ended; result and err are set then
	admitted chan struct{} // closed when the execution has its permit; timeout is set then
	timeout  time.Duration // of the request
	result   AttemptResult
	err      error
	span     *tracing.Span // of the attempt; nil without traces
	claimed  bool          // guarded by executions.mu: the store has a claim, or gets one now

	// unrecorded is the step of a request that was answered while the store was out of
	// reach: the next execution of the attempt records it and sends nothing. place is its
	// place in executions.unrecorded.
	unrecorded *webhook.Step
	place      *list.Element

	phase atomic.Int32 // an eagerPhase
}

// eagerPhase is how far an eager request is. It becomes slow or it ends, whichever comes first.
type eagerPhase int32

const (
	eagerNone eagerPhase = iota // a workflow has asked for the attempt
	eagerSending
	eagerEnded
	eagerSlow       // its own workflow waits for it, once the claim is written
	eagerOwnStarted // that workflow is being started
)

func (exec *execution) eagerPhase() eagerPhase { return eagerPhase(exec.phase.Load()) }

func (exec *execution) isEager() bool { return exec.eagerPhase() != eagerNone }

// move moves an eager request from one phase to another. False: it is not in the first one.
func (exec *execution) move(from, to eagerPhase) bool {
	return exec.phase.CompareAndSwap(int32(from), int32(to))
}

// rememberedExecutions is how many ended executions are kept, of each kind. Those that are recorded
// only save a query, so few suffice. Those that are not recorded are never more than the attempts
// that ran when the store became unreachable, for each outage. An outcome that another process has
// taken over is dropped after rememberedExecutions newer ones.
const rememberedExecutions = 10_000

// executions are a process's attempts by delivery, run and number. Tenants share the places of those that run: see fair.NewElastic.
type executions struct {
	mu         sync.Mutex
	byKey      map[attemptKey]*execution
	recorded   executionRing // the ended ones in byKey that are recorded
	unrecorded list.List     // the keys in byKey whose outcome is not recorded
	running    int
	shares     *fair.Semaphore // of the tenants in those that run
	closed     bool

	// waiting counts what Stop waits for. It grows only with mu held and closed unset, or
	// by an execution that it counts, so never from zero during a Wait.
	waiting sync.WaitGroup
}

func newExecutions(limit, remembered int) executions {
	return executions{byKey: map[attemptKey]*execution{}, recorded: newExecutionRing(remembered), shares: fair.NewElastic(limit)}
}

// enter returns the execution of an attempt that follows the input's step. isNew reports that the
// caller has to run it; it takes over the unrecorded outcome of the execution before.
//
// It ignores a remembered result that is not after the input's step. Either the delivery had to
// wait and has done so, or the caller knows the step already. It ignores a recorded one if a person has asked for the attempt: whether it was that one,
// the store says by the command.
func (r *executions) enter(in AttemptInput, now time.Time) (exec *execution, isNew bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := in.key()
	before := r.byKey[key]
	if before != nil && (!before.ended() || before.err == nil && before.result.After(in.Progress) && (!in.Forced || before.unrecorded != nil)) {
		return before, false, nil
	}
	switch {
	case r.closed:
		return nil, false, errStopping
	case !r.shares.TryAcquire(in.TenantID):
		return nil, false, errTooMany
	}
	exec = r.begin(key, now)
	if before != nil {
		exec.unrecorded, exec.place = before.unrecorded, before.place
	}
	return exec, true, nil
}

// enterEager returns a new execution of an attempt that no workflow has asked for. Nil: there is one
// already, or there can be none.
func (r *executions) enterEager(in AttemptInput, now time.Time) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey[in.key()] != nil || r.closed || !r.shares.TryAcquire(in.TenantID) {
		return nil
	}
	exec := r.begin(in.key(), now)
	exec.move(eagerNone, eagerSending)
	return exec
}

// begin adds an execution, for which its tenant has a place. The caller holds the lock.
func (r *executions) begin(key attemptKey, now time.Time) *execution {
	r.running++
	r.waiting.Add(1)
	exec := &execution{began: now, done: make(chan struct{}), admitted: make(chan struct{})}
	r.byKey[key] = exec
	return exec
}

// runningOf returns the execution of an attempt that has not ended; nil if there is none.
func (r *executions) runningOf(in AttemptInput) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	if exec := r.byKey[in.key()]; exec != nil && !exec.ended() {
		return exec
	}
	return nil
}

// end publishes the outcome of an execution that began at a progress.
func (r *executions) end(key attemptKey, from webhook.Progress, exec *execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.waiting.Done()
	r.running--
	r.shares.Release(key.delivery.TenantID, 1)
	close(exec.done)
	if exec.unrecorded != nil {
		r.keepUnrecorded(key, exec)
		return
	}
	if exec.place != nil {
		r.unrecorded.Remove(exec.place)
	}
	if exec.err != nil || !exec.result.After(from) { // it leads nowhere: the next execution queries the store again
		delete(r.byKey, key)
		return
	}
	if old := r.recorded.push(key, exec); old.exec != nil && r.byKey[old.key] == old.exec {
		delete(r.byKey, old.key)
	}
}

// isUnrecorded reports that an attempt has ended and its outcome could not be recorded.
func (r *executions) isUnrecorded(key attemptKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	exec := r.byKey[key]
	return exec != nil && exec.ended() && exec.unrecorded != nil
}

// keepUnrecorded keeps an outcome that is not recorded, and drops the oldest one if there are too
// many. The caller holds the lock.
func (r *executions) keepUnrecorded(key attemptKey, exec *execution) {
	if exec.place != nil {
		return
	}
	exec.place = r.unrecorded.PushBack(key)
	if r.unrecorded.Len() <= len(r.recorded.entries) {
		return
	}
	oldest, _ := r.unrecorded.Remove(r.unrecorded.Front()).(attemptKey)
	if other := r.byKey[oldest]; other.ended() {
		delete(r.byKey, oldest)
	} else {
		other.place = nil // it is being recorded
	}
}

// ended reports whether the execution has ended. The caller holds the lock.
func (exec *execution) ended() bool {
	select {
	case <-exec.done:
		return true
	default:
		return false
	}
}

// markClaimed notes that the store has a claim of the execution, or gets one now. It reports whether
// this is the first time: the caller then has to write the claim.
func (r *executions) markClaimed(exec *execution) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = !exec.claimed
	exec.claimed = true
	return first
}

// goFor runs fn for an execution in a goroutine that close waits for. After close has been called it does so only
// while the execution runs, for which close waits, too.
func (r *executions) goFor(exec *execution, fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed || !exec.ended() {
		r.waiting.Go(fn)
	}
}

// close refuses new executions and waits for those that have begun.
func (r *executions) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.waiting.Wait()
}

// executionRing holds the executions that were pushed last.
type executionRing struct {
	entries []ringEntry
	next    int
}

type ringEntry struct {
	key  attemptKey
	exec *execution
}

func newExecutionRing(size int) executionRing { return executionRing{entries: make([]ringEntry, size)} }

// push returns the entry that it replaces; the zero entry while there is room.
func (r *executionRing) push(key attemptKey, exec *execution) (old ringEntry) {
	old, r.entries[r.next] = r.entries[r.next], ringEntry{key, exec}
	r.next = (r.next + 1) % len(r.entries)
	return old
}
