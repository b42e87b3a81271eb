package starter

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// earlyTurn is how near its turn must be for a delivery to be started. The gate lets it wait for 250 ms at least, and
	// what is being started before it will wait there, too. What comes too early there is deferred by a timer of its workflow.
	earlyTurn = 100 * time.Millisecond
	// earlyLook is how long a delivery waits to look again.
	earlyLook = 25 * time.Millisecond
	// earlyTime is how long after it was accepted it does not do so any more, and earlyRate how many a second the endpoint
	// must take. Of a slower one a few would fill the places of their tenant, whose others wait at the door then.
	earlyTime = 500 * time.Millisecond
	earlyRate = 500
)

// early are deliveries that wait for their turn. They keep their places in the queue, so that the door waits for them.
type early struct {
	ready chan struct{} // something waits

	mu       sync.Mutex
	size     int
	byTenant map[string][]webhook.Start // in the order in which they came
	of       map[webhook.EndpointID]bool
}

func newEarly() *early {
	e := &early{ready: make(chan struct{}, 1)}
	e.takeAll(nil)
	return e
}

func (e *early) put(s webhook.Start) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byTenant[s.TenantID] = append(e.byTenant[s.TenantID], s)
	e.of[s.EndpointID] = true
	e.size++
	select {
	case e.ready <- struct{}{}:
	default: // it is known
	}
}

func (e *early) has(endpoint webhook.EndpointID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of[endpoint]
}

func (e *early) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.size
}

// takeAll takes them; from then on they count as behind.
func (e *early) takeAll(b *behind) map[string][]webhook.Start {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.byTenant
	for _, starts := range all {
		for i := range starts {
			b.add(&starts[i], 1)
		}
	}
	e.byTenant, e.of, e.size = map[string][]webhook.Start{}, map[webhook.EndpointID]bool{}, 0
	return all
}

// serveEarly lets those who wait look again, before all others of their tenants.
func (d *Starter) serveEarly() {
	for d.waitFor(d.early.ready, earlyLook) {
		for tenant, all := range d.early.takeAll(&d.behind) {
			d.queue.Return(tenant, all...)
		}
	}
}
