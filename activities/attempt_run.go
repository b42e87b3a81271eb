package activities

import (
	"container/list"
	"errors"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// attemptRun is one attempt that this process runs or has run. Its outcome is remembered: if the
// workflow task was lost after the request went out, the repeated activity gets the outcome, and
// the request is not sent again.
type attemptRun struct {
	began    time.Time
	done     chan struct{} // closed when the run has ended; result and err are set then
	admitted chan struct{} // closed when the run has its permit; timeout is set then
	timeout  time.Duration // of the request
	result   AttemptResult
	err      error
	span     *tracing.Span // of the attempt; nil without traces
	claimed  bool          // guarded by attemptRuns.mu: the store has a claim, or gets one now
	settled  bool          // result is what the store says; false if nothing was sent and nothing is known

	// unrecorded is the step of a request that was answered while the store was out of
	// reach: the next run records it and sends nothing. place is its place in
	// attemptRuns.unrecorded.
	unrecorded *webhook.Step
	place      *list.Element

	eager      bool // it began before a workflow asked for it
	answered   bool // guarded by attemptRuns.mu: its eager request has ended
	slow       bool // guarded by attemptRuns.mu: its eager request is slow, and its own workflow waits for it
	ownStarted bool // guarded by attemptRuns.mu: that workflow is being started
}

// attemptKey identifies an attempt.
type attemptKey struct {
	delivery    webhook.DeliveryID
	run, number int
}

var (
	errTooMany  = errors.New("too many attempts are running")
	errStopping = errors.New("this process is stopping")
)

// rememberedRuns is how many ended runs are kept, of each kind. Those that are recorded only
// save a query, so few suffice. Those that are not recorded are never more than the attempts that
// ran when the store became unreachable, for each outage; what another process has taken over
// stays until as many have followed.
const rememberedRuns = 10_000

// attemptRuns are a process's attempts by delivery, run and number.
type attemptRuns struct {
	mu           sync.Mutex
	byKey        map[attemptKey]*attemptRun
	recorded     runRing   // the ended runs in byKey that are recorded
	unrecorded   list.List // the keys in byKey whose outcome is not recorded
	running, max int
	closed       bool

	// waiting counts what Stop waits for. It grows only with mu held and closed unset, or
	// by a run that it counts, so never from zero beside a Wait.
	waiting sync.WaitGroup
}

func newAttemptRuns(limit, remembered int) attemptRuns {
	return attemptRuns{byKey: map[attemptKey]*attemptRun{}, recorded: newRunRing(remembered), max: limit}
}

// enter returns the run of an attempt that follows the input's step. isNew reports that the
// caller has to run it; it takes over the unrecorded outcome of the run before.
//
// A remembered result that does not lead beyond the step does not count: it says that the
// delivery had to wait, and it has waited; or that the step was recorded, which the caller knows.
func (r *attemptRuns) enter(in AttemptInput, now time.Time) (run *attemptRun, isNew bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := in.key()
	before := r.byKey[key]
	if before != nil && (!before.ended() || before.err == nil && before.result.After(in.Progress)) {
		return before, false, nil
	}
	switch {
	case r.closed:
		return nil, false, errStopping
	case r.running >= r.max:
		return nil, false, errTooMany
	}
	run = r.begin(key, now)
	if before != nil {
		run.unrecorded, run.place = before.unrecorded, before.place
	}
	return run, true, nil
}

// enterEager returns a new run of an attempt that no workflow has asked for. Nil: there is one
// already, or there can be none.
func (r *attemptRuns) enterEager(in AttemptInput, now time.Time) *attemptRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey[in.key()] != nil || r.closed || r.running >= r.max {
		return nil
	}
	run := r.begin(in.key(), now)
	run.eager = true
	return run
}

// begin adds a run. The caller holds the lock.
func (r *attemptRuns) begin(key attemptKey, now time.Time) *attemptRun {
	r.running++
	r.waiting.Add(1)
	run := &attemptRun{began: now, done: make(chan struct{}), admitted: make(chan struct{})}
	r.byKey[key] = run
	return run
}

// runningOf returns the run of an attempt that has not ended; nil if there is none.
func (r *attemptRuns) runningOf(in AttemptInput) *attemptRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run := r.byKey[in.key()]; run != nil && !run.ended() {
		return run
	}
	return nil
}

// markSlow notes that an eager request is slow, so that its own workflow waits for it. False: the
// request has ended.
func (r *attemptRuns) markSlow(run *attemptRun) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	run.slow = !run.answered
	return run.slow
}

func (r *attemptRuns) isSlow(run *attemptRun) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return run.slow
}

// markOwnStarted notes that the own workflow of a slow eager request is being started.
func (r *attemptRuns) markOwnStarted(run *attemptRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run.ownStarted = true
}

func (r *attemptRuns) isOwnStarted(run *attemptRun) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return run.ownStarted
}

// markAnswered notes that an eager request has ended.
func (r *attemptRuns) markAnswered(run *attemptRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run.answered = true
}

// end publishes the outcome of a run.
func (r *attemptRuns) end(key attemptKey, run *attemptRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.waiting.Done()
	r.running--
	close(run.done)
	if run.unrecorded != nil {
		r.keepUnrecorded(key, run)
		return
	}
	if run.place != nil {
		r.unrecorded.Remove(run.place)
	}
	if run.err != nil || !run.settled { // no outcome: the next run queries the store again
		delete(r.byKey, key)
		return
	}
	if old := r.recorded.push(key, run); old.run != nil && r.byKey[old.key] == old.run {
		delete(r.byKey, old.key)
	}
}

// isUnrecorded reports that an attempt has ended and its outcome could not be recorded.
func (r *attemptRuns) isUnrecorded(key attemptKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.byKey[key]
	return run != nil && run.ended() && run.unrecorded != nil
}

// keepUnrecorded keeps an outcome that is not recorded, and drops the oldest one if there are too
// many. The caller holds the lock.
func (r *attemptRuns) keepUnrecorded(key attemptKey, run *attemptRun) {
	if run.place != nil {
		return
	}
	run.place = r.unrecorded.PushBack(key)
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

// ended reports whether the run has ended. The caller holds the lock.
func (run *attemptRun) ended() bool {
	select {
	case <-run.done:
		return true
	default:
		return false
	}
}

// needsClaim reports, once, that the store has no claim of the run.
func (r *attemptRuns) needsClaim(run *attemptRun) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	needed := !run.claimed
	run.claimed = true
	return needed
}

// goBeforeClose runs fn in a goroutine that close waits for, unless close has been called.
func (r *attemptRuns) goBeforeClose(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.waiting.Go(fn)
	}
}

// close refuses new runs and waits for those that have begun.
func (r *attemptRuns) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.waiting.Wait()
}

// runRing holds the runs that were pushed last.
type runRing struct {
	entries []ringEntry
	next    int
}

type ringEntry struct {
	key attemptKey
	run *attemptRun
}

func newRunRing(size int) runRing { return runRing{entries: make([]ringEntry, size)} }

// push returns the entry that it replaces; the zero entry while there is room.
func (r *runRing) push(key attemptKey, run *attemptRun) (old ringEntry) {
	old, r.entries[r.next] = r.entries[r.next], ringEntry{key, run}
	r.next = (r.next + 1) % len(r.entries)
	return old
}
