package monitor

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxOutages bounds the endpoints whose outage is remembered.
	maxOutages = 100_000
	// recoveryTimeout is how long after a change of its endpoint an outage waits for a delivery. Without one, the
	// endpoint most likely was deleted or is no longer used.
	recoveryTimeout = 24 * time.Hour
)

// outages remembers when the circuits that are open were opened. An endpoint whose circuit closed because its settings
// were changed has recovered only when something is delivered to it.
type outages struct {
	mu   sync.Mutex
	open map[webhook.EndpointID]*outage
}

type outage struct {
	since     time.Time
	resetting bool      // this process is closing the circuit because of a change
	reset     time.Time // when a change closed the circuit; zero: the circuit is open
	missed    bool      // the circuit was not open at the last prune
}

func newOutages() *outages { return &outages{open: map[webhook.EndpointID]*outage{}} }

// opened notes that a circuit has opened. The outage of a circuit that a change has closed goes on. A circuit that
// nothing has closed was forgotten by the admission: a new outage begins.
func (o *outages) opened(id webhook.EndpointID, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.open[id]; known != nil {
		if known.reset.IsZero() {
			known.since = at
		}
		known.missed, known.reset = false, time.Time{}
		return
	}
	if len(o.open) < maxOutages {
		o.open[id] = &outage{since: at}
	}
}

// closed notes that a circuit has closed. The outage is over, unless a change closed the circuit.
func (o *outages) closed(id webhook.EndpointID, at time.Time) (since time.Time, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.open[id]
	if known == nil {
		return time.Time{}, false
	}
	if known.resetting {
		known.reset = at
		return time.Time{}, false
	}
	delete(o.open, id)
	return known.since, true
}

// delivered notes a delivery, which ends an outage whose circuit a change has closed.
func (o *outages) delivered(id webhook.EndpointID) (since time.Time, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.open[id]
	if known == nil || known.reset.IsZero() {
		return time.Time{}, false
	}
	delete(o.open, id)
	return known.since, true
}

// resetting calls reset, which closes the circuit of an endpoint because of a change.
func (o *outages) resetting(id webhook.EndpointID, reset func()) {
	set := func(resetting bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if known := o.open[id]; known != nil {
			known.resetting = resetting
		}
	}
	set(true)
	defer set(false)
	reset()
}

// prune forgets outages that no delivery has ended in time after a change, and those whose circuit was not open twice in
// a row: the admission has forgotten their endpoints. Once is not enough, because the admission reports a change of a
// circuit a moment after it.
func (o *outages) prune(now time.Time, open func(webhook.EndpointID) bool) {
	for id, known := range o.pruneResets(now) {
		if open(id) { // called without the lock, because the admission may report changes of circuits from it
			continue
		}
		o.mu.Lock()
		if o.open[id] == known && known.reset.IsZero() {
			if known.missed {
				delete(o.open, id)
			}
			known.missed = true
		}
		o.mu.Unlock()
	}
}

// pruneResets forgets outages that no delivery has ended in time after a change. It returns those whose circuit should be
// open.
func (o *outages) pruneResets(now time.Time) map[webhook.EndpointID]*outage {
	o.mu.Lock()
	defer o.mu.Unlock()
	open := make(map[webhook.EndpointID]*outage, len(o.open))
	for id, known := range o.open {
		switch {
		case known.reset.IsZero():
			open[id] = known
		case now.Sub(known.reset) > recoveryTimeout:
			delete(o.open, id)
		}
	}
	return open
}
