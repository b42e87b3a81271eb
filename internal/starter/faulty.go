package starter

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// firstProbe is how long after a fault of our own its endpoint is tried again; the pause
	// doubles up to lastProbe.
	firstProbe, lastProbe = time.Second, time.Minute
	// maxFaulty bounds the endpoints that are remembered. The record knows the others.
	maxFaulty = 20_000
	// probeWidth is how many endpoints are looked at a time: one slow look keeps few waiting.
	probeWidth = 8
)

// FaultyBacklog is what is held because of faults of our own.
type FaultyBacklog interface {
	// FaultyEndpoints are up to limit active endpoints with such deliveries, in the order of
	// their ids, after the given one.
	FaultyEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error)
	// ReleaseFaulty releases the oldest of an endpoint, as Backlog.ReleaseBacklog does.
	ReleaseFaulty(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, error)
}

// faulty are the endpoints to which nothing can be sent because of a fault of our own, and
// those of which what was held is being released since that is over.
type faulty struct {
	mu sync.Mutex
	of map[webhook.EndpointID]*fault
}

type fault struct {
	what   string        // in words; "" when only the record knows of it
	broken bool          // nothing goes to the endpoint until it was tried again
	since  time.Time     // when it broke, or something was released, last
	pause  time.Duration // before the next try
	probe  time.Time     // when that is
	most   int           // while it is not broken: how many may be released at a time
}

// Faulted implements activities.Faults.
func (d *Starter) Faulted(id webhook.EndpointID, what string) {
	if !d.probes() {
		return // nobody would try again
	}
	now := time.Now()
	f := &d.faulty
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.of[id]
	switch {
	case known == nil && len(f.of) >= maxFaulty:
		return
	case known == nil:
		known = f.add(id)
	case known.broken && known.most == 0: // by others that were under way with the first
		return
	}
	known.what = what
	known.breaks(now)
	if known.pause == firstProbe {
		d.log.Warn("a fault of our own keeps an endpoint from being sent to; its deliveries are held until that is over", "endpoint", id, "error", what)
	}
}

// FaultOf implements activities.Faults.
func (d *Starter) FaultOf(id webhook.EndpointID) (what string, known bool) {
	d.faulty.mu.Lock()
	defer d.faulty.mu.Unlock()
	if one := d.faulty.of[id]; one != nil && one.broken {
		return one.what, true
	}
	return "", false
}

// EndpointMoved says that somebody has changed the endpoint: the next try is now.
func (d *Starter) EndpointMoved(id webhook.EndpointID) {
	d.faulty.mu.Lock()
	defer d.faulty.mu.Unlock()
	if one := d.faulty.of[id]; one != nil {
		one.pause, one.probe = 0, time.Time{}
	}
}

// probes reports whether this process looks after faulty endpoints.
func (d *Starter) probes() bool { return d.admission != nil && d.faultyStore != nil }

// has reports an endpoint that is faulty, or was a moment ago.
func (f *faulty) has(id webhook.EndpointID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[id] != nil
}

// add makes an entry. The caller holds the lock.
func (f *faulty) add(id webhook.EndpointID) *fault {
	if f.of == nil {
		f.of = map[webhook.EndpointID]*fault{}
	}
	one := &fault{}
	f.of[id] = one
	return one
}

// breaks puts the next try off.
func (f *fault) breaks(now time.Time) {
	f.pause = min(max(2*f.pause, firstProbe), lastProbe)
	f.broken, f.since, f.probe, f.most = true, now, now.Add(f.pause), 0
}

// found are endpoints for which the record has something: what another process has held, or
// this one before it was started. They are tried at once.
func (f *faulty) found(all []webhook.EndpointID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range all {
		if f.of[id] == nil && len(f.of) < maxFaulty {
			f.add(id)
		}
	}
}

// due are those to be tried, or to be released from, now.
func (f *faulty) due(now time.Time) (all []webhook.EndpointID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, one := range f.of {
		if !one.probe.After(now) {
			all = append(all, id)
		}
	}
	return all
}

// probeFaulty tries endpoints again to which nothing could be sent, one try a minute at last,
// and releases what was held.
func (d *Starter) probeFaulty() {
	tick := time.NewTicker(releaseEvery)
	defer tick.Stop()
	var looked time.Time
	for {
		select {
		case <-d.stopped:
			return
		case <-tick.C:
		}
		if time.Since(looked) >= backlogEvery && d.findFaulty() {
			looked = time.Now()
		}
		forEach(probeWidth, d.faulty.due(time.Now()), func(id webhook.EndpointID) {
			if !d.temporalDown.Load() && !d.stopping() {
				d.probeEndpoint(id)
			}
		})
	}
}

// findFaulty looks for all endpoints with something held; false when it could not.
func (d *Starter) findFaulty() bool {
	var after webhook.EndpointID
	for !d.temporalDown.Load() && !d.stopping() {
		page, err := readBatch(d, func(ctx context.Context, _ int) ([]webhook.EndpointID, error) {
			return d.faultyStore.FaultyEndpoints(ctx, after, backlogPage)
		})
		if err != nil {
			return false
		}
		d.faulty.found(page)
		if len(page) < backlogPage {
			return true
		}
		after = page[len(page)-1]
	}
	return false
}

// probeEndpoint finds out whether an endpoint can be sent to, and releases some of what is
// held for it. The first one that goes is the proof: there are faults that only a request
// meets. Then twice as many go each time, as far as the gate has room for them, until there
// are none. Where the gate has no room for the first one, the try alone is taken for the proof:
// what comes need not be held.
func (d *Starter) probeEndpoint(id webhook.EndpointID) {
	now := time.Now()
	most, isProbe := d.faulty.allowed(id)
	if isProbe {
		if err := d.tryEndpoint(id); err != nil {
			d.faulty.failed(id, now, err)
			return
		}
	}
	n := min(d.admission.Releasable(id)-d.backlog.onItsWay(id, now), most, releaseBatch)
	if n <= 0 {
		if isProbe {
			d.faulty.mended(id, now)
		}
		return
	}
	ctx, cancel := context.WithTimeout(d.life, readTimeout)
	defer cancel()
	starts, err := d.faultyStore.ReleaseFaulty(ctx, id, n)
	if err != nil {
		if !d.stopping() {
			d.log.Warn("what a fault of our own has held for an endpoint cannot be released", "endpoint", id, "error", err)
		}
		return
	}
	// Before they are started: one that meets the fault again has the last word.
	if over := d.faulty.released(id, len(starts) == n, now); over {
		d.log.Info("an endpoint can be sent to again; what was held for it has been released", "endpoint", id)
	}
	d.backlog.released(id, len(starts), now)
	for group := range slices.Chunk(starts, d.width) {
		d.start(group)
	}
}

// tryEndpoint asks for all that a request to the endpoint needs.
func (d *Starter) tryEndpoint(id webhook.EndpointID) error {
	requests := d.requests.Load()
	if requests == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(d.life, readTimeout)
	defer cancel()
	return (*requests).Probe(ctx, id)
}

// allowed is how many of an endpoint may be released at a time, and whether it is to be tried
// first.
func (f *faulty) allowed(id webhook.EndpointID) (most int, isProbe bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.of[id]
	if one == nil || one.most == 0 {
		return 1, true
	}
	return one.most, false
}

// failed notes that an endpoint was tried in vain.
func (f *faulty) failed(id webhook.EndpointID, now time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.of[id]; one != nil {
		one.what = err.Error()
		one.breaks(now)
	}
}

// mended notes that an endpoint was tried with success, and nothing could be released.
func (f *faulty) mended(id webhook.EndpointID, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.of[id]; one != nil {
		one.broken, one.most, one.since = false, 1, now
	}
}

// released notes that some were, and whether there may be more; it reports that all is over.
// What comes back is held again within a moment, so that an endpoint stays on the list for that.
func (f *faulty) released(id webhook.EndpointID, more bool, now time.Time) (over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.of[id]
	if one == nil {
		return false
	}
	if one.most == 0 { // the proof, and nothing else goes before the next look
		one.most, one.since = 1, now
		return false
	}
	one.broken = false
	if more {
		one.most, one.since = min(2*one.most, releaseBatch), now
		return false
	}
	if now.Sub(one.since) < heldSettles {
		return false
	}
	delete(f.of, id)
	return true
}
