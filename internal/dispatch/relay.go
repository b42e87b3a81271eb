package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// relay takes up what was left behind: deliveries that were stored and not begun,
// because a process died, Temporal was away or the queue was too long, and
// commands that nobody has answered.
func (d *Dispatcher) relay() {
	tick := time.NewTicker(relayEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.stopped:
			return
		case <-tick.C:
		}
		for d.relayOnce() {
			select {
			case <-d.stopped:
				return
			default:
			}
		}
	}
}

// relayOnce takes a batch of each; it reports whether there may be more.
func (d *Dispatcher) relayOnce() bool {
	if d.away.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	starts, err := d.Record.LeftBehind(ctx, relayBatch)
	if err != nil {
		d.Logger.Warn("the outbox cannot be read", "error", err)
		return false
	}
	commands, err := d.Record.Unanswered(ctx, relayBatch)
	if err != nil {
		d.Logger.Warn("pending commands cannot be read", "error", err)
		return false
	}
	if len(starts) > 0 {
		d.Logger.Info("taking up deliveries that were left behind", "count", len(starts))
	}
	each(d.StartSlots, starts, func(start webhook.Start) { d.note(d.begin(ctx, start)) })
	each(d.StartSlots, commands, func(c webhook.Commanded) { d.note(d.signal(ctx, c.Delivery, c.Command)) })
	return (len(starts) == relayBatch || len(commands) == relayBatch) && !d.away.Load()
}

// each calls f for all items, at most n at a time, and returns when all are done.
func each[T any](n int, items []T, f func(T)) {
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
