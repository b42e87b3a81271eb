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
	done    chan struct{} // closed when it has ended
	result  AttemptResult
	err     error
	claimed bool // guarded by flights.mu: the record knows who sends
	settled bool // result is what the record says; false when nothing was sent and nothing is known

	// unrecorded is the step of a request that was answered while the record was out
	// of reach: the next try records it and sends nothing.
	unrecorded *webhook.Step
}

type flightKey struct {
	delivery    webhook.DeliveryID
	run, number int
}

var errTooMany = errors.New("too many requests under way")

// rememberedFlights is how many recorded outcomes are kept. They only save a look
// into the record, which knows them too, so few will do; an outcome that is not
// recorded yet is kept until it is.
const rememberedFlights = 10_000

// flights are a process's attempts by delivery, run and number.
type flights struct {
	mu             sync.Mutex
	byKey          map[flightKey]*flight
	oldest         []flightKey // ring of recorded ones
	next           int
	underWay, most int
}

func newFlights(most int) flights {
	return flights{byKey: map[flightKey]*flight{}, oldest: make([]flightKey, rememberedFlights), most: most}
}

// enter returns the flight of a key. mine says that the caller has to fly it; an
// outcome left unrecorded by the one before is handed over.
func (f *flights) enter(key flightKey) (fl *flight, mine bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.byKey[key]
	if before != nil {
		select {
		case <-before.done:
			if before.err == nil {
				return before, false, nil
			}
		default:
			return before, false, nil
		}
	}
	if f.underWay >= f.most {
		return nil, false, errTooMany
	}
	f.underWay++
	fl = &flight{done: make(chan struct{})}
	if before != nil {
		fl.unrecorded = before.unrecorded
	}
	f.byKey[key] = fl
	return fl, true, nil
}

// end publishes what a flight came to.
func (f *flights) end(key flightKey, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.underWay--
	switch {
	case fl.err == nil && fl.settled:
		old := f.oldest[f.next]
		if o := f.byKey[old]; o != nil && o.finished() {
			delete(f.byKey, old)
		}
		f.oldest[f.next] = key
		f.next = (f.next + 1) % len(f.oldest)
	case fl.unrecorded == nil: // nothing came of it: the next try asks the record again
		delete(f.byKey, key)
	}
	close(fl.done)
}

// finished reports whether it ended with a recorded outcome. The caller holds the lock.
func (fl *flight) finished() bool {
	select {
	case <-fl.done:
		return fl.err == nil
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
