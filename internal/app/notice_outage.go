package app

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxOutages bounds the endpoints whose outage is remembered.
	maxOutages = 100_000
	// deliveredWithin is for how long after a change something has to be delivered for
	// the outage to be over; most likely the endpoint was deleted, or is not used any more.
	deliveredWithin = 24 * time.Hour
)

// outages remembers since when circuits are open. One that is closed because somebody
// changed its endpoint has not recovered before something is delivered.
type outages struct {
	reset atomic.Int64 // of those that were closed by a change: most often 0

	mu   *sync.Mutex
	open map[webhook.EndpointID]*outage
}

type outage struct {
	since     time.Time
	resetting bool      // now, by this process
	reset     time.Time // when a change closed the circuit; zero: it is open
	missed    bool      // when last looked for, it was not open
}

func newOutages() outages {
	return outages{mu: &sync.Mutex{}, open: map[webhook.EndpointID]*outage{}}
}

// opened notes that a circuit has opened. After one that was closed by a change, the
// outage goes on; one that nobody has closed was forgotten by the gate, and this is
// another.
func (o *outages) opened(id webhook.EndpointID, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.open[id]; known != nil {
		if known.reset.IsZero() {
			known.since = at
		}
		known.missed = false
		o.mark(known, time.Time{})
		return
	}
	if len(o.open) < maxOutages {
		o.open[id] = &outage{since: at}
	}
}

// closed notes that a circuit has closed: the outage is over, unless a change did it.
func (o *outages) closed(id webhook.EndpointID, at time.Time) (since time.Time, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.open[id]
	if known == nil {
		return time.Time{}, false
	}
	if known.resetting {
		o.mark(known, at)
		return time.Time{}, false
	}
	return o.forget(id, known), true
}

// delivered notes that something was delivered: an outage whose circuit was closed by a
// change is over then. It costs nothing while there is none.
func (o *outages) delivered(id webhook.EndpointID) (since time.Time, over bool) {
	if o.reset.Load() == 0 {
		return time.Time{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.open[id]
	if known == nil || known.reset.IsZero() {
		return time.Time{}, false
	}
	return o.forget(id, known), true
}

// resetting calls a reset of the endpoint's circuit.
func (o *outages) resetting(id webhook.EndpointID, reset func()) {
	set := func(now bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if known := o.open[id]; known != nil {
			known.resetting = now
		}
	}
	set(true)
	defer set(false)
	reset()
}

// prune forgets outages after whose change nothing was delivered, and those of circuits
// that are not open, twice in a row: the gate has forgotten their endpoints. Once is not
// enough, because the gate tells of a change a moment after it.
func (o *outages) prune(now time.Time, open func(webhook.EndpointID) bool) {
	for id, known := range o.look(now) {
		if open(id) { // it is asked without the lock: it tells of changes
			continue
		}
		o.mu.Lock()
		if o.open[id] == known && known.reset.IsZero() {
			if known.missed {
				o.forget(id, known)
			}
			known.missed = true
		}
		o.mu.Unlock()
	}
}

// look forgets outages after whose change nothing was delivered, and returns those whose
// circuits should be open.
func (o *outages) look(now time.Time) map[webhook.EndpointID]*outage {
	o.mu.Lock()
	defer o.mu.Unlock()
	open := make(map[webhook.EndpointID]*outage, len(o.open))
	for id, known := range o.open {
		switch {
		case known.reset.IsZero():
			open[id] = known
		case now.Sub(known.reset) > deliveredWithin:
			o.forget(id, known)
		}
	}
	return open
}

// mark notes that a change has closed the circuit, or, with the zero time, that none has.
func (o *outages) mark(known *outage, reset time.Time) {
	switch {
	case known.reset.IsZero() && !reset.IsZero():
		o.reset.Add(1)
	case !known.reset.IsZero() && reset.IsZero():
		o.reset.Add(-1)
	}
	known.reset = reset
}

func (o *outages) forget(id webhook.EndpointID, known *outage) time.Time {
	o.mark(known, time.Time{})
	delete(o.open, id)
	return known.since
}
