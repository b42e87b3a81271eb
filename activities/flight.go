package activities

import (
	"container/list"
	"errors"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// flight is one attempt that this process has begun. Its outcome is remembered,
// so that an activity which runs again, because its workflow task was lost after
// the request went out, gets the outcome and not a second request.
type flight struct {
	begun   time.Time
	done    chan struct{} // closed when it has ended; result and err are there then
	passed  chan struct{} // closed when the gate has let it through; timeout is there then
	timeout time.Duration // of its request
	result  AttemptResult
	err     error
	claimed bool // guarded by flights.mu: the record knows who sends, or is being told
	settled bool // result is what the record says; false when nothing was sent and nothing is known

	// unrecorded is the step of a request that was answered while the record was out
	// of reach: the next try records it and sends nothing. place is its in flights.left.
	unrecorded *webhook.Step
	place      *list.Element

	eager    bool // no workflow has asked for it when it began
	answered bool // guarded by flights.mu: of an eager one, its request has ended
	slow     bool // guarded by flights.mu: of an eager one, its own workflow goes on with it
	own      bool // guarded by flights.mu: of a slow eager one, that workflow is being started
}

type flightKey struct {
	delivery    webhook.DeliveryID
	run, number int
}

var (
	errTooMany  = errors.New("too many requests under way")
	errStopping = errors.New("this process is stopping")
)

// rememberedFlights is how many outcomes are kept, of either kind. The recorded
// ones only save a look into the record, which knows them too, so few will do. Of
// those that could not be recorded there are never more than requests were under
// way when the record went out of reach, in each such outage; what another process
// has taken over meanwhile stays until so many have come after it.
const rememberedFlights = 10_000

// flights are a process's attempts by delivery, run and number.
type flights struct {
	mu             sync.Mutex
	byKey          map[flightKey]*flight
	recorded       ring      // of the ended ones in byKey, those that were recorded
	left           list.List // of the keys in byKey with an answer that is not recorded
	underWay, most int
	closed         bool

	// running counts what Stop waits for. It grows only with mu held and closed unset, or
	// by one that it counts, so never from zero beside a Wait.
	running sync.WaitGroup
}

func newFlights(most, remembered int) flights {
	return flights{byKey: map[flightKey]*flight{}, recorded: newRing(remembered), most: most}
}

// enter returns the flight of an attempt that is to lead on from a step. mine says
// that the caller has to fly it; an outcome left unrecorded by the one before is
// handed over.
//
// A remembered result that does not lead on is none: it says that the delivery had
// to wait, and it has waited; or that the step was recorded, and it is known now.
func (f *flights) enter(in AttemptInput, now time.Time) (fl *flight, mine bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := in.key()
	before := f.byKey[key]
	if before != nil && (!before.ended() || before.err == nil && before.result.After(in.Progress)) {
		return before, false, nil
	}
	switch {
	case f.closed:
		return nil, false, errStopping
	case f.underWay >= f.most:
		return nil, false, errTooMany
	}
	fl = f.begin(key, now)
	if before != nil {
		fl.unrecorded, fl.place = before.unrecorded, before.place
	}
	return fl, true, nil
}

// enterEager returns a new flight, which the caller has to fly, for an attempt that no workflow has
// asked for; nil when there can be none, or has been one.
func (f *flights) enterEager(in AttemptInput, now time.Time) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byKey[in.key()] != nil || f.closed || f.underWay >= f.most {
		return nil
	}
	fl := f.begin(in.key(), now)
	fl.eager = true
	return fl
}

// begin makes a flight. The caller holds the lock.
func (f *flights) begin(key flightKey, now time.Time) *flight {
	f.underWay++
	f.running.Add(1)
	fl := &flight{begun: now, done: make(chan struct{}), passed: make(chan struct{})}
	f.byKey[key] = fl
	return fl
}

// underWayOf is the flight of an attempt that goes on; nil when there is none.
func (f *flights) underWayOf(in AttemptInput) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.byKey[in.key()]; fl != nil && !fl.ended() {
		return fl
	}
	return nil
}

// leavesAsSlow says that an eager flight takes long, so that its own workflow goes on with it;
// false when its request has ended.
func (f *flights) leavesAsSlow(fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.slow = !fl.answered
	return fl.slow
}

func (f *flights) isSlow(fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fl.slow
}

// started notes that the own workflow of a slow eager flight is being started.
func (f *flights) started(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.own = true
}

func (f *flights) isStarted(fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fl.own
}

// answer notes that the request of an eager flight has ended.
func (f *flights) answer(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.answered = true
}

// end publishes what a flight came to.
func (f *flights) end(key flightKey, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.running.Done()
	f.underWay--
	close(fl.done)
	if fl.unrecorded != nil {
		f.leave(key, fl)
		return
	}
	if fl.place != nil {
		f.left.Remove(fl.place)
	}
	if fl.err != nil || !fl.settled { // nothing came of it: the next try asks the record again
		delete(f.byKey, key)
		return
	}
	if old := f.recorded.push(key, fl); old.flight != nil && f.byKey[old.key] == old.flight {
		delete(f.byKey, old.key)
	}
}

// isUntold reports an attempt that has ended and could not be recorded.
func (f *flights) isUntold(key flightKey) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl := f.byKey[key]
	return fl != nil && fl.ended() && fl.unrecorded != nil
}

// leave keeps an answer that is not recorded, and forgets the oldest one when there
// are too many. The caller holds the lock.
func (f *flights) leave(key flightKey, fl *flight) {
	if fl.place != nil {
		return
	}
	fl.place = f.left.PushBack(key)
	if f.left.Len() <= len(f.recorded.entries) {
		return
	}
	oldest, _ := f.left.Remove(f.left.Front()).(flightKey)
	if other := f.byKey[oldest]; other.ended() {
		delete(f.byKey, oldest)
	} else {
		other.place = nil // being recorded just now
	}
}

// ended reports whether the flight is over. The caller holds the lock.
func (fl *flight) ended() bool {
	select {
	case <-fl.done:
		return true
	default:
		return false
	}
}

// needsClaim reports, once, that nobody has written who sends this attempt.
func (f *flights) needsClaim(fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	needed := !fl.claimed
	fl.claimed = true
	return needed
}

// run runs fn in a goroutine that close waits for, unless it is too late for that.
func (f *flights) run(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.running.Go(fn)
	}
}

// close lets nothing begin any more and returns when all that has begun is over.
func (f *flights) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.running.Wait()
}

// ring is the latest flights that were pushed.
type ring struct {
	entries []ringEntry
	next    int
}

type ringEntry struct {
	key    flightKey
	flight *flight
}

func newRing(size int) ring { return ring{entries: make([]ringEntry, size)} }

// push returns the one that had to go, none while there is room.
func (r *ring) push(key flightKey, fl *flight) (old ringEntry) {
	old, r.entries[r.next] = r.entries[r.next], ringEntry{key, fl}
	r.next = (r.next + 1) % len(r.entries)
	return old
}
