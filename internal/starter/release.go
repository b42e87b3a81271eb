package starter

import (
	"context"
	"maps"
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
	// heldSettles is how long a hold may take from when it is decided until it is in the
	// record: for so long an endpoint stays on the list although nothing is found.
	heldSettles = 5 * time.Second
	// releaseWidth is how many endpoints are served at a time: one slow call keeps no
	// other waiting.
	releaseWidth = 4
	// sentSettles is how long what is released may need to come to the gate.
	sentSettles = 3 * time.Second
)

// Backlog is what is held because too much was waiting.
type Backlog interface {
	// BacklogEndpoints are up to limit endpoints with such deliveries, in the order of
	// their ids, after the given one.
	BacklogEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error)
	// ReleaseBacklog releases the oldest of an endpoint. What is not started comes back by the relay.
	ReleaseBacklog(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, error)
	// ReleaseExpired releases what is to be given up.
	ReleaseExpired(ctx context.Context, limit int) ([]webhook.Start, error)
}

// backlog is the endpoints for which something may be held, and when that was said last.
// The time is zero when it was read in the record.
type backlog struct {
	mu   sync.Mutex
	said map[webhook.EndpointID]time.Time
	sent map[webhook.EndpointID]sent
	// swept is when sent was last rid of what has come to the gate.
	swept time.Time
}

// sent is what was released of an endpoint since a time. The gate counts it only when
// it has come there, and knows nothing at all of an endpoint that is new to it.
type sent struct {
	since time.Time
	n     int
}

// onItsWay is how much was released a moment ago and may not have come to the gate.
func (b *backlog) onItsWay(id webhook.EndpointID, now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.sent[id].since) >= sentSettles {
		delete(b.sent, id)
	}
	return b.sent[id].n
}

func (b *backlog) released(id webhook.EndpointID, n int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n == 0 {
		return
	}
	if b.sent == nil {
		b.sent = map[webhook.EndpointID]sent{}
	}
	if now.Sub(b.swept) >= sentSettles { // also of endpoints that nobody asks for any more
		b.swept = now
		maps.DeleteFunc(b.sent, func(_ webhook.EndpointID, s sent) bool { return now.Sub(s.since) >= sentSettles })
	}
	s := b.sent[id]
	if s.n == 0 {
		s.since = now
	}
	s.n += n
	b.sent[id] = s
}

// Held says that a delivery of the endpoint is about to be held because too much is
// waiting.
func (d *Starter) Held(endpoint webhook.EndpointID) { d.backlog.add(time.Now(), endpoint) }

func (b *backlog) add(said time.Time, all ...webhook.EndpointID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.said == nil {
		b.said = map[webhook.EndpointID]time.Time{}
	}
	for _, id := range all {
		if at, there := b.said[id]; !there || at.Before(said) {
			b.said[id] = said
		}
	}
}

// all are the endpoints, in no order, so that none is always the last.
func (b *backlog) all() []webhook.EndpointID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.said))
}

// forget drops an endpoint for which nothing was found by a look that began at the
// time, unless what was said of it may not have been in the record by then.
func (b *backlog) forget(id webhook.EndpointID, looked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if looked.Sub(b.said[id]) >= heldSettles {
		delete(b.said, id)
		delete(b.sent, id)
	}
}

// release lets go of what is held, as far as the gate has room for it.
func (d *Starter) release() {
	tick := time.NewTicker(releaseEvery)
	defer tick.Stop()
	var looked time.Time
	for {
		select {
		case <-d.stopped:
			return
		case <-tick.C:
		}
		if time.Since(looked) >= backlogEvery && d.findBacklog() {
			looked = time.Now()
		}
		d.releaseAll()
		d.releaseExpired()
	}
}

// releaseAll goes once through the endpoints. It ends when nobody is there to be told:
// what was released then would come back by the relay all at once.
func (d *Starter) releaseAll() {
	forEach(releaseWidth, d.backlog.all(), func(id webhook.EndpointID) {
		if d.temporalDown.Load() || d.stopping() {
			return
		}
		began := time.Now()
		if !d.releaseOf(id) {
			d.backlog.forget(id, began)
		}
	})
}

// releaseExpired starts what is held and is to be given up.
func (d *Starter) releaseExpired() {
	for !d.temporalDown.Load() && !d.stopping() {
		starts, err := readBatch(d, d.backlogStore.ReleaseExpired)
		if err != nil {
			return
		}
		for group := range slices.Chunk(starts, d.width) {
			d.start(group)
		}
		if len(starts) < relayBatch {
			return
		}
	}
}

// findBacklog looks for all endpoints with a backlog; false when it could not.
func (d *Starter) findBacklog() bool { return d.find(&d.backlog, d.backlogStore.BacklogEndpoints) }

// find looks, page by page, for all endpoints of a list; false when it could not.
func (d *Starter) find(list *backlog, read func(context.Context, webhook.EndpointID, int) ([]webhook.EndpointID, error)) bool {
	var after webhook.EndpointID
	for !d.temporalDown.Load() && !d.stopping() {
		page, err := readBatch(d, func(ctx context.Context, _ int) ([]webhook.EndpointID, error) { return read(ctx, after, backlogPage) })
		if err != nil {
			return false
		}
		list.add(time.Time{}, page...)
		if len(page) < backlogPage {
			return true
		}
		after = page[len(page)-1]
	}
	return false
}

// releaseOf releases of a backlog what the gate has room for; true when there may be more.
func (d *Starter) releaseOf(endpoint webhook.EndpointID) (more bool) {
	return d.releaseSome(endpoint, d.backlogStore.ReleaseBacklog)
}

// releaseSome releases what the gate has room for; true when there may be more.
func (d *Starter) releaseSome(endpoint webhook.EndpointID,
	take func(context.Context, webhook.EndpointID, int) ([]webhook.Start, error),
) (more bool) {
	now := time.Now()
	n := min(d.admission.Releasable(endpoint)-d.backlog.onItsWay(endpoint, now), releaseBatch)
	if n <= 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(d.life, readTimeout)
	defer cancel()
	starts, err := take(ctx, endpoint, n)
	if err != nil {
		if !d.stopping() {
			d.log.Warn("what is held for an endpoint cannot be released", "endpoint", endpoint, "error", err)
		}
		return true
	}
	d.backlog.released(endpoint, len(starts), now)
	for group := range slices.Chunk(starts, d.width) {
		d.start(group)
	}
	return len(starts) == n
}
