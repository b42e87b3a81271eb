package starter

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// relay takes up what was left behind: deliveries that were stored and not begun,
// because a process died, Temporal was away or the queue was too long, and
// commands that nobody has answered.
func (d *Starter) relay() {
	tick := time.NewTicker(relayEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.stopped:
			return
		case <-tick.C:
		}
		d.relayReplays()
		for more := true; more; {
			more = d.relayOnce()
		}
	}
}

// relayOnce takes a batch of each; it reports whether there may be more.
func (d *Starter) relayOnce() bool {
	if d.away.Load() {
		return false
	}
	starts, err := take(d, d.Store.TakeStarts)
	if err != nil {
		return false
	}
	late := slices.DeleteFunc(slices.Clone(starts), func(start webhook.Start) bool {
		return time.Since(start.CreatedAt) < queueTime // a replay's are meant for the relay
	})
	if len(late) > 0 {
		d.Logger.Info("taking up deliveries that were left behind", "count", len(late))
	}
	// What was taken is carried on before anything else can fail: it is not handed out
	// again for a while.
	d.startAgain(starts)
	if len(starts) > 0 && d.awayAfterAll(d.life) {
		d.putBack(starts)
	}
	if d.away.Load() {
		return false
	}
	commands, err := take(d, d.Store.TakeCommands)
	if err != nil {
		return false
	}
	each(ownWidth, commands, func(c webhook.CommandedDelivery) {
		d.carry(func(ctx context.Context) error { return d.signalTimes(ctx, c) })
	})
	return (len(starts) == relayBatch || len(commands) == relayBatch) && !d.away.Load()
}

// putBack gives back what was taken while Temporal was going away. Some of it may have been
// started: that has an id which is not started twice, or two workflows that share it, of which
// the record lets one go on.
func (d *Starter) putBack(starts []webhook.Start) {
	ctx, cancel := context.WithTimeout(d.life, readTimeout)
	defer cancel()
	if err := d.Store.ReturnStarts(ctx, starts); err != nil && !d.stopping() {
		d.Logger.Warn("what was taken from the outbox in vain cannot be put back; it comes again later", "count", len(starts), "error", err)
	}
}

// startAgain starts what was left behind. What the relay has put into a workflow before is in
// good hands as long as that lives: where no worker runs, another one would wait beside it, and
// a hundred if each delivery got its own.
func (d *Starter) startAgain(starts []webhook.Start) {
	var fresh []webhook.Start
	placed := map[string][]webhook.Start{}
	for _, s := range starts {
		if s.RelayedTo == "" || d.goesAlone(&s) {
			fresh = append(fresh, s)
		} else {
			placed[s.RelayedTo] = append(placed[s.RelayedTo], s)
		}
	}
	var (
		mu      sync.Mutex
		ofEnded []webhook.Start
	)
	each(reconcileWidth, slices.Collect(maps.Keys(placed)), func(id string) {
		lost, alone := d.lostOf(id, placed[id])
		mu.Lock()
		defer mu.Unlock()
		fresh, ofEnded = append(fresh, lost...), append(ofEnded, alone...)
	})
	d.beginEach(ofEnded)
	d.start(fresh)
}

// lostOf is what a workflow does not carry: it was never started, or has ended without a word
// of them; those go on alone.
func (d *Starter) lostOf(id string, group []webhook.Start) (lost, alone []webhook.Start) {
	d.carry(func(ctx context.Context) error {
		c, err := d.look(ctx, id)
		switch {
		case err != nil:
			return err
		case c.fate == fateNone:
			lost = group
		case c.fate == fateRuns:
			for _, s := range group {
				if !d.has(ctx, c, s.DeliveryID) {
					alone = append(alone, s)
				}
			}
		default:
			alone = group
		}
		return nil
	})
	return lost, alone
}

// noteRelayed tells the outbox into which workflow the relay puts deliveries. If it cannot,
// they come back later.
func (d *Starter) noteRelayed(ctx context.Context, id string, group []webhook.Start) bool {
	var ids []webhook.DeliveryID
	for i := range group {
		if group[i].Relayed > 0 {
			ids = append(ids, group[i].DeliveryID)
		}
	}
	if len(ids) == 0 {
		return true
	}
	err := d.Store.AssignWorkflow(ctx, id, ids)
	if err != nil && !d.stopping() {
		d.Logger.WarnContext(ctx, "what was left behind could not be put into a workflow yet", "count", len(group), "error", err)
	}
	return err == nil
}

// take reads a batch of what was left behind; an error needs no words any more. It takes nothing
// after Stop: what it takes is not handed out again for a while.
func take[T any](d *Starter, read func(context.Context, int) ([]T, error)) ([]T, error) {
	if d.stopping() {
		return nil, context.Canceled
	}
	ctx, cancel := context.WithTimeout(d.life, readTimeout)
	defer cancel()
	batch, err := read(ctx, relayBatch)
	if err != nil && !d.stopping() {
		d.Logger.Warn("what was left behind cannot be read", "error", err)
	}
	return batch, err
}

// carry makes a call unless there is nobody to call, or no time left: after Stop there is some.
func (d *Starter) carry(f func(context.Context) error) {
	if !d.away.Load() && d.life.Err() == nil {
		d.call(f)
	}
}

// each calls f for all items, at most n at a time, and returns when all are done. A single
// one is called where each is: the SDK needs a stack of 64 KB for a start, and growing one
// anew takes a third of the time that the start takes in this process.
func each[T any](n int, items []T, f func(T)) {
	if len(items) == 1 {
		f(items[0])
		return
	}
	var (
		all   sync.WaitGroup
		slots = make(chan struct{}, n)
	)
	for _, item := range items {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(item)
		})
	}
	all.Wait()
}
