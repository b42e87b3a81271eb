package dispatch

import (
	"context"
	"slices"
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
		d.relayReplays()
		for more := true; more; {
			more = d.relayOnce()
		}
	}
}

// relayOnce takes a batch of each; it reports whether there may be more.
func (d *Dispatcher) relayOnce() bool {
	if d.away.Load() {
		return false
	}
	starts, err := take(d, d.Record.LeftBehind)
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
	d.start(starts)
	commands, err := take(d, d.Record.Unanswered)
	if err != nil {
		return false
	}
	each(ownWidth, commands, func(c webhook.Commanded) {
		d.carry(func(ctx context.Context) error { return d.signal(ctx, c.Delivery, c.Command) })
	})
	return (len(starts) == relayBatch || len(commands) == relayBatch) && !d.away.Load()
}

// take reads a batch of what was left behind; an error needs no words any more. It takes nothing
// after Stop: what it takes is not handed out again for a while.
func take[T any](d *Dispatcher, read func(context.Context, int) ([]T, error)) ([]T, error) {
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
func (d *Dispatcher) carry(f func(context.Context) error) {
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
