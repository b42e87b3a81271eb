package starter

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// Deliveries that would wait for admission longer than for a moment are parked: they are started when
// that wait is short, with others that arrive meanwhile. Admission itself lets a delivery wait for
// at least 250 ms in memory; one that comes earlier is deferred, which costs a timer of its workflow.

const (
	// parkAbove is the wait for admission above which a delivery is parked.
	parkAbove = 100 * time.Millisecond
	// parkInterval is how long a delivery stays parked until it is looked at again.
	parkInterval = 25 * time.Millisecond
	// maxParked is how long after its acceptance a delivery is not parked any more.
	maxParked = 500 * time.Millisecond
	// minParkRate is the admission rate per second below which deliveries are not parked: a few of a
	// slower endpoint would use all permits of their tenant.
	minParkRate = 500
)

// parkedStarts are the parked deliveries. They keep their permits.
type parkedStarts struct {
	ready chan struct{} // receives a value when a delivery is parked

	mu         sync.Mutex
	size       int
	byTenant   map[string][]webhook.Start // in the order of their coming
	byEndpoint map[webhook.EndpointID]bool
}

func newParked() *parkedStarts {
	p := &parkedStarts{ready: make(chan struct{}, 1)}
	p.takeAll(nil)
	return p
}

// park parks a delivery if that is worthwhile. One whose endpoint has parked deliveries is parked,
// too, so that it does not overtake them.
func (d *Starter) park(start webhook.Start, forecast admission.Forecast, now time.Time) bool {
	worthwhile := forecast.Rate >= minParkRate && now.Sub(start.ReceivedAt) < maxParked
	if !worthwhile || forecast.Wait <= parkAbove && !d.parked.has(start.EndpointID) {
		return false
	}
	d.parked.put(start)
	return true
}

func (p *parkedStarts) put(start webhook.Start) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byTenant[start.TenantID] = append(p.byTenant[start.TenantID], start)
	p.byEndpoint[start.EndpointID] = true
	p.size++
	select {
	case p.ready <- struct{}{}:
	default: // a value is pending
	}
}

func (p *parkedStarts) has(endpoint webhook.EndpointID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byEndpoint[endpoint]
}

func (p *parkedStarts) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

// takeAll takes all parked deliveries and counts them as queued, before any other goroutine finds that
// they are not parked.
func (p *parkedStarts) takeAll(queued *endpointCounts) map[string][]webhook.Start {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.byTenant
	for _, starts := range all {
		for i := range starts {
			queued.add(&starts[i], 1)
		}
	}
	p.byTenant, p.byEndpoint, p.size = map[string][]webhook.Start{}, map[webhook.EndpointID]bool{}, 0
	return all
}

// returnParked returns parked deliveries to the queue, before the other deliveries of their tenants.
func (d *Starter) returnParked() {
	for d.waitFor(d.parked.ready, parkInterval) {
		for tenant, all := range d.parked.takeAll(&d.endpointQueue) {
			d.queue.Return(tenant, all...)
		}
	}
}
