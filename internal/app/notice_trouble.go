package app

import (
	"context"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// tallyEvery is for how long failures are gathered before they are written.
	tallyEvery = 100 * time.Millisecond
	// troubleEvery is how often the record is read for trouble that others have written.
	troubleEvery = 2 * time.Second
	// remembered is for how long successes are, at least: until whatever trouble was
	// written before them has been read.
	remembered = 2 * troubleEvery
	// maxTally bounds the endpoints whose failures wait to be written, while the record is
	// away; maxSuccesses the endpoints whose last success is remembered.
	maxTally     = 50_000
	maxSuccesses = 100_000
	// tallyBatch is how many endpoints one transaction counts.
	tallyBatch = 200
	// tallyTime bounds one write.
	tallyTime = 15 * time.Second
)

// tally gathers what is seen of endpoints until it is written. While all is well nothing
// is: a success is noted in memory, and looked up whether there is trouble to be ended.
type tally struct {
	mu      *sync.Mutex
	pending map[webhook.EndpointID]*postgres.Trouble
	known   map[webhook.EndpointID]struct{} // with trouble on record
	wake    chan struct{}

	// Last successes: those of late, and of the time before.
	fresh, older map[webhook.EndpointID]time.Time
	turned       time.Time
}

func newTally() tally {
	return tally{
		mu: &sync.Mutex{}, pending: map[webhook.EndpointID]*postgres.Trouble{}, known: map[webhook.EndpointID]struct{}{},
		wake: make(chan struct{}, 1), fresh: map[webhook.EndpointID]time.Time{}, older: map[webhook.EndpointID]time.Time{},
	}
}

// succeeded notes a success.
func (t *tally) succeeded(id webhook.EndpointID, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.known[id]
	if known || t.pending[id] != nil {
		t.add(postgres.Trouble{EndpointID: id, Succeeded: at})
	}
	if len(t.fresh) < maxSuccesses {
		t.fresh[id] = at
	}
}

// failed notes a failure that counts.
func (t *tally) failed(trouble postgres.Trouble) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(trouble)
}

// add puts what was seen behind what is pending. The caller holds the lock.
func (t *tally) add(seen postgres.Trouble) {
	if pending := t.pending[seen.EndpointID]; pending != nil {
		pending.Add(seen)
	} else if len(t.pending) < maxTally {
		t.pending[seen.EndpointID] = &seen
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// take empties what is pending.
func (t *tally) take() []postgres.Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]postgres.Trouble, 0, len(t.pending))
	for _, pending := range t.pending {
		all = append(all, *pending)
	}
	clear(t.pending)
	return all
}

// giveBack puts what could not be written before what has come since.
func (t *tally) giveBack(unwritten []postgres.Trouble) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, seen := range unwritten {
		if since := t.pending[seen.EndpointID]; since != nil {
			seen.Add(*since)
		}
		if len(t.pending) < maxTally {
			t.pending[seen.EndpointID] = &seen
		}
	}
}

// wrote notes what is on record after a write.
func (t *tally) wrote(seen []postgres.Trouble, left []postgres.Troubled) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range seen {
		delete(t.known, seen[i].EndpointID)
	}
	for i := range left {
		t.known[left[i].EndpointID] = struct{}{}
		t.settle(&left[i])
	}
}

// settle ends trouble on record that a success here has ended already: one that came
// while nothing was known of the trouble. What is pending came after it. The caller
// holds the lock.
func (t *tally) settle(on *postgres.Troubled) {
	at, ok := t.fresh[on.EndpointID]
	if !ok {
		at = t.older[on.EndpointID]
	}
	if at.Before(on.Since) {
		return
	}
	if pending := t.pending[on.EndpointID]; pending == nil {
		t.add(postgres.Trouble{EndpointID: on.EndpointID, Succeeded: at})
	} else if pending.Succeeded.IsZero() {
		pending.Succeeded = at
	}
}

// read notes all that is on record, and ends what a success here has ended already.
func (t *tally) read(all []postgres.Troubled, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.known)
	for i := range all {
		t.known[all[i].EndpointID] = struct{}{}
		t.settle(&all[i])
	}
	if now.Sub(t.turned) >= remembered {
		t.fresh, t.older, t.turned = t.older, t.fresh, now
		clear(t.fresh)
	}
}

// keepTally writes what is gathered, and reads what others have written, until ctx ends.
func (w *watch) keepTally(ctx context.Context) {
	tick := time.NewTicker(troubleEvery)
	defer tick.Stop()
	gather := time.NewTimer(0)
	<-gather.C
	defer gather.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.refreshTrouble(ctx)
			w.flushTally(ctx) // what could not be written before
			continue
		case <-w.tally.wake:
		}
		gather.Reset(tallyEvery)
		select {
		case <-ctx.Done():
			return
		case <-gather.C:
		}
		w.flushTally(ctx)
	}
}

// refreshTrouble reads the trouble on record, and disables who has enough of it: a
// process that was about to may be gone.
func (w *watch) refreshTrouble(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tallyTime)
	defer cancel()
	all, err := w.store.TroubledEndpoints(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.log.WarnContext(ctx, "endpoints in trouble cannot be read; trying on", "error", err)
		}
		return
	}
	now := w.store.Now()
	w.tally.read(all, now)
	w.outage.prune(now, func(id webhook.EndpointID) bool { return w.gate.Health(id).Circuit != admission.CircuitClosed })
	w.disable(ctx, all)
}

// flushTally writes what is pending. What cannot be written is kept for the next time.
func (w *watch) flushTally(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tallyTime)
	defer cancel()
	seen := w.ofActive(ctx, w.tally.take())
	for len(seen) > 0 {
		part := seen[:min(len(seen), tallyBatch)]
		left, err := w.store.CountTrouble(ctx, part)
		if err != nil {
			w.tally.giveBack(seen) // the next failure, or the next look, writes it
			w.log.WarnContext(ctx, "endpoints' failures cannot be counted; trying on", "error", err)
			return
		}
		w.tally.wrote(part, left)
		w.disable(ctx, left)
		seen = seen[len(part):]
	}
}

// ofActive leaves out endpoints that are not active any more: of one that was disabled a
// moment ago thousands of requests may still be failing.
func (w *watch) ofActive(ctx context.Context, seen []postgres.Trouble) []postgres.Trouble {
	active := seen[:0]
	for _, t := range seen {
		target, err := w.store.EndpointCache().Target(ctx, t.EndpointID)
		gone := webhook.CodeOf(err) == webhook.CodeNotFound
		if gone || err == nil && target.State != webhook.EndpointActive {
			continue
		}
		active = append(active, t)
	}
	return active
}

// disable disables those that have enough trouble on record.
func (w *watch) disable(ctx context.Context, troubled []postgres.Troubled) {
	for _, t := range troubled {
		if !t.Over {
			continue
		}
		why, err := w.store.DisableTroubled(ctx, t.TenantID, t.EndpointID)
		switch {
		case webhook.CodeOf(err) == webhook.CodeNotFound: // it was deleted meanwhile
		case err != nil:
			w.log.WarnContext(ctx, "an endpoint that only fails cannot be disabled; trying on", "endpoint", t.EndpointID, "error", err)
		case why != "":
			w.Disabled()
			w.log.WarnContext(ctx, "an endpoint was disabled", "endpoint", t.EndpointID, "why", why)
		}
	}
}
