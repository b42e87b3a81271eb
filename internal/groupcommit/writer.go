// Package groupcommit batches writes: many callers hand in one item each, a few flushes write
// them in one transaction each, and every caller returns when its item is committed. It knows
// no table and no driver: how to write items, and what an error means, are functions.
package groupcommit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/fair"
)

var (
	// ErrStopped refuses an item because the writer is stopping.
	ErrStopped = errors.New("the writer is stopping")
	// ErrFull refuses an item because too many wait already.
	ErrFull = errors.New("too many items are waiting to be written")

	errLeft = errors.New("the caller did not wait for its item") // no caller receives it
)

// queuedItems bounds the items that wait for a flush.
const queuedItems = 1 << 14

// Config describes a Writer. Flush is required.
type Config[T any] struct {
	// Flush writes items in one transaction and fills in their results. It is called again
	// with the same items, or with some of them, as Classify says, so it must keep nothing
	// of an attempt that failed.
	Flush func(ctx context.Context, items []T) error

	// MaxWeight bounds the weight of the items in one flush, unless a single item is heavier.
	MaxWeight int

	// Concurrency is the number of flushes at a time. Defaults to 1.
	Concurrency int

	// Tenant names the tenant of an item. Each tenant's items keep their order, and tenants
	// take turns. Defaults to one tenant for all items.
	Tenant func(item T) string

	// Weight says how much of MaxWeight an item takes. Defaults to 1.
	Weight func(item T) int

	// Classify says how to go on after an error of Flush. Defaults to not at all.
	Classify func(err error) Remedy

	// Apart says how items that another transaction keeps waiting are written. Defaults to with the others.
	Apart *Apart[T]

	// Translate makes the error that callers receive, of an error of Flush, of their context,
	// ErrStopped or ErrFull. Defaults to the error itself.
	Translate func(err error) error

	// Observer sees each flush. Defaults to none.
	Observer Observer
}

// Observer sees the flushes of a Writer, for metrics. It must be quick.
type Observer interface {
	// Flushed is called after each call of Flush, also for repetitions and parts of a batch.
	Flushed(items int, took time.Duration, err error)
}

// Writer is a group commit. A flush begins as soon as the previous one has finished; there
// are no timers, so a single caller does not wait for others. It is safe for concurrent use.
type Writer[T any] struct {
	config  Config[T]
	queue   *fair.Queue[*waiting[T]]
	stopped chan struct{} // closed by Stop: no new items
	drained chan struct{} // closed by Stop: the queue is read no more
	running sync.WaitGroup
	apart   *apart[T]
	aside   sync.WaitGroup // the goroutine that writes apart

	stopOnce, drainOnce sync.Once
}

// waiting is an item in the queue, and its caller.
type waiting[T any] struct {
	item T
	done chan error // buffered: a caller that left does not hold up the flush

	decided atomic.Bool // set by what comes first: the settlement, or the caller's leaving
	late    func()      // called when the item is settled after its caller left; may be nil
	tries   int         // how often it was written apart
}

// settle returns the result to the caller, or calls late if the caller has left.
func (w *waiting[T]) settle(err error) {
	w.done <- err
	if w.decided.Swap(true) && w.late != nil {
		w.late()
	}
}

// New returns a running Writer. The caller stops it.
func New[T any](c Config[T]) *Writer[T] {
	w := newWriter(c, queuedItems)
	for range max(1, c.Concurrency) {
		w.running.Go(w.run)
	}
	if c.Apart != nil {
		w.aside.Go(w.runApart)
	}
	return w
}

func newWriter[T any](c Config[T], queued int) *Writer[T] {
	if c.Tenant == nil {
		c.Tenant = func(T) string { return "" }
	}
	if c.Weight == nil {
		c.Weight = func(T) int { return 1 }
	}
	if c.Classify == nil {
		c.Classify = func(error) Remedy { return Remedy{} }
	}
	if c.Translate == nil {
		c.Translate = func(err error) error { return err }
	}
	return &Writer[T]{
		config: c, queue: fair.New[*waiting[T]](queued), apart: newApart[T](), stopped: make(chan struct{}), drained: make(chan struct{}),
	}
}

// Do hands in an item and returns when it is committed or refused. When ctx ends first, the
// item may still be committed: its result must not be read.
func (w *Writer[T]) Do(ctx context.Context, item T) error {
	_, err := w.DoUntilSettled(ctx, item, nil)
	return err
}

// DoUntilSettled is Do for a caller that guards something as long as the item may still be
// committed. left reports that ctx ended first and the item is not settled yet; late is
// called when it is.
func (w *Writer[T]) DoUntilSettled(ctx context.Context, item T, late func()) (left bool, err error) {
	waits := &waiting[T]{item: item, done: make(chan error, 1), late: late}
	select {
	case <-w.stopped:
		return false, w.config.Translate(ErrStopped)
	default:
	}
	if err := ctx.Err(); err != nil {
		return false, w.config.Translate(err)
	}
	if !w.queue.Put(w.config.Tenant(item), waits) {
		return false, w.config.Translate(ErrFull)
	}
	select {
	case err := <-waits.done:
		return false, err
	case <-w.drained:
		// Handed in while the writer stopped: it is settled with the rest, or was not seen.
		select {
		case err := <-waits.done:
			return false, err
		default:
			return false, w.config.Translate(ErrStopped)
		}
	case <-ctx.Done():
		settled := waits.decided.Swap(true)
		return !settled, w.config.Translate(ctx.Err())
	}
}

// Waiting returns the number of items that wait for a flush.
func (w *Writer[T]) Waiting() int { return w.queue.Len() }

// Stop commits the items that were handed in and ends the writer. Later items are refused.
func (w *Writer[T]) Stop() {
	w.stopOnce.Do(func() {
		close(w.stopped)
		w.running.Wait()
		close(w.apart.done)
	})
	w.running.Wait()
	w.aside.Wait()
	for { // handed in between the last look into the queue and now
		waits, more := w.queue.Next()
		if !more {
			w.drainOnce.Do(func() { close(w.drained) })
			return
		}
		waits.settle(w.config.Translate(ErrStopped))
	}
}

func (w *Writer[T]) run() {
	batch := make([]*waiting[T], 0, w.config.MaxWeight)
	for {
		stopping := false
		select {
		case <-w.queue.Ready:
		case <-w.stopped:
			stopping = true // items that were handed in before are still written
		}
		batch = w.gather(batch[:0])
		if len(batch) > 0 {
			w.commit(batch)
			clear(batch)
		} else if stopping {
			return
		}
	}
}

// gather takes the items of the next flush, and drops those whose callers have left: to write
// them would only delay the others. What it leaves is for another flush.
func (w *Writer[T]) gather(batch []*waiting[T]) []*waiting[T] {
	weight := 0
	fits := func(next *waiting[T]) bool {
		return weight == 0 || weight+w.config.Weight(next.item) <= w.config.MaxWeight
	}
	for weight < w.config.MaxWeight {
		next, ok := w.queue.NextIf(fits)
		if !ok {
			break
		}
		if next.decided.Load() {
			next.settle(errLeft)
			continue
		}
		if w.isApart(next) {
			continue
		}
		batch = append(batch, next)
		weight += w.config.Weight(next.item)
	}
	if w.queue.Len() > 0 {
		w.queue.Wake()
	}
	return batch
}
