package activities

import (
	"errors"
	"sync"

	"github.com/everpost/everpost/internal/webhook"
)

// flight is one attempt that this process has begun. Its outcome is remembered,
// so that an activity which runs again, because its workflow task was lost after
// the request went out, gets the outcome and not a second request.
type flight struct {
	done    chan struct{} // closed when it has ended; result and err are there then
	result  AttemptResult
	err     error
	claimed bool // guarded by flights.mu: the record knows who sends, or is being told
	settled bool // result is what the record says; false when nothing was sent and nothing is known

	// unrecorded is the step of a request that was answered while the record was out
	// of reach: the next try records it and sends nothing. kept says that the memo has
	// counted it.
	unrecorded *webhook.Step
	kept       bool
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
	recorded, left ring // of the ended ones in byKey: recorded; answered and not recorded
	underWay, most int
	closed         bool

	// running counts what Stop waits for. It grows only with mu held and closed unset,
	// so never beside a Wait.
	running sync.WaitGroup
}

func newFlights(most, remembered int) flights {
	return flights{byKey: map[flightKey]*flight{}, recorded: newRing(remembered), left: newRing(remembered), most: most}
}

// enter returns the flight of an attempt that is to lead on from a step. mine says
// that the caller has to fly it; an outcome left unrecorded by the one before is
// handed over.
//
// A remembered result that does not lead on is none: it says that the delivery had
// to wait, and it has waited; or that the step was recorded, and it is known now.
func (f *flights) enter(key flightKey, from webhook.Progress) (fl *flight, mine bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.byKey[key]
	if before != nil && (!before.ended() || before.err == nil && before.result.After(from)) {
		return before, false, nil
	}
	switch {
	case f.closed:
		return nil, false, errStopping
	case f.underWay >= f.most:
		return nil, false, errTooMany
	}
	f.underWay++
	f.running.Add(1)
	fl = &flight{done: make(chan struct{})}
	if before != nil {
		fl.unrecorded, fl.kept = before.unrecorded, before.kept
	}
	f.byKey[key] = fl
	return fl, true, nil
}

// end publishes what a flight came to.
func (f *flights) end(key flightKey, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.running.Done()
	f.underWay--
	close(fl.done)
	switch {
	case fl.err == nil && fl.settled:
		// An outcome that could not be recorded is not forgotten for one that was.
		if old := f.recorded.push(key); f.byKey[old].forgettable() {
			delete(f.byKey, old)
		}
	case fl.unrecorded == nil: // nothing came of it: the next try asks the record again
		delete(f.byKey, key)
	case !fl.kept:
		fl.kept = true
		if old := f.left.push(key); f.byKey[old] != nil && f.byKey[old].ended() {
			delete(f.byKey, old)
		}
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

// forgettable reports whether the record knows all of it. The caller holds the lock.
func (fl *flight) forgettable() bool { return fl != nil && fl.ended() && fl.err == nil }

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

// ring is the latest keys that were pushed.
type ring struct {
	keys []flightKey
	next int
}

func newRing(size int) ring { return ring{keys: make([]flightKey, size)} }

// push returns the key that had to go, the zero one while there is room.
func (r *ring) push(key flightKey) (old flightKey) {
	old, r.keys[r.next] = r.keys[r.next], key
	r.next = (r.next + 1) % len(r.keys)
	return old
}
