package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// releaseEvery is how often what is held is looked at, releaseBatch how much of one
	// endpoint is released then at most.
	releaseEvery = time.Second
	releaseBatch = 500
	// backlogEvery is how often all endpoints are looked at: for what another process
	// has held, or this one before it was started.
	backlogEvery = time.Minute
	backlogPage  = 1000
)

// Gate is what starting needs to know of the admission to endpoints.
type Gate interface {
	// Slow says whether an attempt is likely to take long, or to be turned away.
	Slow(id webhook.EndpointID) bool
	// Releasable is how many held deliveries are to be released now.
	Releasable(id webhook.EndpointID) int
}

// Backlog is what is held because too much was waiting.
type Backlog interface {
	// BacklogEndpoints are up to limit endpoints with such deliveries, in the order of
	// their ids, after the given one.
	BacklogEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error)
	// ReleaseBacklog releases the oldest of an endpoint: those to be started, and those
	// whose workflow is to be told. What is not carried out comes back by the relay.
	ReleaseBacklog(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, []webhook.Commanded, error)
}

// backlog is the endpoints for which something may be held.
type backlog struct {
	mu        sync.Mutex
	endpoints map[webhook.EndpointID]bool
}

// Held says that a delivery of the endpoint was held because too much was waiting.
func (d *Dispatcher) Held(endpoint webhook.EndpointID) { d.backlog.add(endpoint) }

func (b *backlog) add(all ...webhook.EndpointID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endpoints == nil {
		b.endpoints = map[webhook.EndpointID]bool{}
	}
	for _, id := range all {
		b.endpoints[id] = true
	}
}

// take empties the set, so that whoever is held from now on is in it again.
func (b *backlog) take() []webhook.EndpointID {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]webhook.EndpointID, 0, len(b.endpoints))
	for id := range b.endpoints {
		all = append(all, id)
	}
	clear(b.endpoints)
	return all
}

// release lets go of what is held, as far as the gate has room for it.
func (d *Dispatcher) release() {
	tick := time.NewTicker(releaseEvery)
	defer tick.Stop()
	var looked time.Time
	for {
		select {
		case <-d.stopped:
			return
		case <-tick.C:
		}
		if d.away.Load() {
			continue
		}
		if time.Since(looked) >= backlogEvery && d.findBacklog() {
			looked = time.Now()
		}
		for _, id := range d.backlog.take() {
			if d.stopping() {
				return
			}
			if d.releaseOf(id) {
				d.backlog.add(id)
			}
		}
	}
}

// findBacklog looks for all endpoints with a backlog; false when it could not.
func (d *Dispatcher) findBacklog() bool {
	var after webhook.EndpointID
	for {
		page, err := take(d, func(ctx context.Context, _ int) ([]webhook.EndpointID, error) {
			return d.Backlog.BacklogEndpoints(ctx, after, backlogPage)
		})
		if err != nil {
			return false
		}
		d.backlog.add(page...)
		if len(page) < backlogPage {
			return true
		}
		after = page[len(page)-1]
	}
}

// releaseOf releases what the gate has room for; true when there may be more.
func (d *Dispatcher) releaseOf(endpoint webhook.EndpointID) (more bool) {
	n := min(d.Gate.Releasable(endpoint), releaseBatch)
	if n <= 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(d.life, readTimeout)
	defer cancel()
	starts, commands, err := d.Backlog.ReleaseBacklog(ctx, endpoint, n)
	if err != nil {
		if !d.stopping() {
			d.Logger.Warn("what is held for an endpoint cannot be released", "endpoint", endpoint, "error", err)
		}
		return true
	}
	for group := range slices.Chunk(starts, d.Width) {
		d.start(group)
	}
	each(ownWidth, commands, func(c webhook.Commanded) {
		d.carry(func(ctx context.Context) error { return d.signal(ctx, c.Delivery, c.Command) })
	})
	return len(starts)+len(commands) == n
}
