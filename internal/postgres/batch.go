package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/lanes"
	"github.com/everpost/everpost/internal/webhook"
)

// committer is a group commit: many callers hand in an item each, one flush
// writes all that wait in one transaction, and every caller returns when that
// has been committed. A flush begins when the previous one has finished; there
// are no timers, so a caller that is alone waits for nobody. Each tenant's items wait in
// their own order, and the tenants get places in turns: however much one hands in at once,
// no more than one item of it comes between two of another's.
type committer[T any] struct {
	name  string
	max   int // weight of the items in one flush
	flush func(ctx context.Context, items []T) error

	queue   *lanes.Queue[*waiting[T]]
	stopped chan struct{} // closed by stop: no new items
	drained chan struct{} // closed by stop: nobody looks into the queue any more
	idle    sync.WaitGroup
	once    sync.Once

	closeDrained sync.Once
}

type waiting[T any] struct {
	item T
	done chan error // buffered: a caller that left does not hold up the flush

	left atomic.Bool // set by whoever is first, the settling or the caller's leaving
	late func()      // called when the item is settled after its caller left; nil: nothing
}

// settle tells the caller, or what the caller left behind, how it ended.
func (w *waiting[T]) settle(err error) {
	w.done <- err
	if w.left.Swap(true) && w.late != nil {
		w.late()
	}
}

const (
	flushTimeout   = 15 * time.Second // one flush with its repetitions
	conflictRounds = 5                // repetitions after a deadlock or serialisation failure
	// queuedItems bounds what waits for a flush; what nobody waits for any more is
	// dropped from it without being written.
	queuedItems = 1 << 14
)

// newCommitter makes width flushes side by side. limit is the weight of the items in
// one flush, unless one alone is heavier; an item weighs 1 unless it is heavy. So a heavy
// one does not keep those waiting that come before it.
// flush fills in the items' results; it is repeated after a deadlock and called with
// halves after an error that one bad item may have caused, so it must not keep
// anything of an attempt that failed.
func newCommitter[T any](name string, limit, width int, flush func(context.Context, []T) error) *committer[T] {
	c := &committer[T]{
		name:    name,
		max:     limit,
		flush:   flush,
		queue:   lanes.New[*waiting[T]](queuedItems),
		stopped: make(chan struct{}),
		drained: make(chan struct{}),
	}
	for range width {
		c.idle.Go(c.run)
	}
	return c
}

// do hands in an item and returns when it has been committed or refused. When ctx
// ends first, the item may still be committed: its result must not be read.
func (c *committer[T]) do(ctx context.Context, item T) error {
	_, err := c.doUntilSettled(ctx, item, nil)
	return err
}

// doUntilSettled is do for a caller that guards something as long as the item may
// still be committed. left reports that ctx ended first: the item is still on its
// way, and late is called once it is not.
func (c *committer[T]) doUntilSettled(ctx context.Context, item T, late func()) (left bool, err error) {
	w := &waiting[T]{item: item, done: make(chan error, 1), late: late}
	select {
	case <-c.stopped:
		return false, errClosed()
	default:
	}
	if err := ctx.Err(); err != nil {
		return false, translate(c.name, err)
	}
	if !c.queue.Put(tenantOf(item), w) {
		return false, errFull()
	}
	select {
	case err := <-w.done:
		return false, err
	case <-c.drained:
		// Handed in while the writer stopped: settled with the rest, or seen by nobody.
		select {
		case err := <-w.done:
			return false, err
		default:
			return false, errClosed()
		}
	case <-ctx.Done():
		settled := w.left.Swap(true)
		return !settled, translate(c.name, ctx.Err())
	}
}

// stop lets what was handed in be committed and ends the lanes.
func (c *committer[T]) stop() {
	c.once.Do(func() { close(c.stopped) })
	c.idle.Wait()
	for { // handed in between the last look of the lanes and now
		w, more := c.queue.Next()
		if !more {
			c.closeDrained.Do(func() { close(c.drained) })
			return
		}
		w.settle(errClosed())
	}
}

// errLeft is told to nobody: the caller has gone.
func errLeft() error {
	return &webhook.Error{Code: webhook.CodeUnavailable, Message: "its caller did not wait for it"}
}

func errFull() error {
	return &webhook.Error{
		Code: webhook.CodeUnavailable, Message: "more is to be written than the database takes; try again shortly", RetryAfter: time.Second,
	}
}

func errClosed() error {
	return &webhook.Error{Code: webhook.CodeUnavailable, Message: "Everpost is stopping", RetryAfter: time.Second}
}

func (c *committer[T]) run() {
	batch := make([]*waiting[T], 0, c.max)
	for {
		stopping := false
		select {
		case <-c.queue.Ready:
		case <-c.stopped:
			stopping = true // what was handed in before is still written
		}
		batch = c.gather(batch[:0])
		if len(batch) > 0 {
			c.commit(batch)
			clear(batch)
		} else if stopping {
			return
		}
	}
}

// gather takes what goes into the next flush, and drops what its caller has left: to
// write that before what others wait for would be of use to nobody. What it leaves is for
// another lane.
func (c *committer[T]) gather(batch []*waiting[T]) []*waiting[T] {
	weight := 0
	fits := func(w *waiting[T]) bool { return weight == 0 || weight+weightOf(w.item) <= c.max }
	for weight < c.max {
		w, ok := c.queue.NextIf(fits)
		if !ok {
			break
		}
		if w.left.Load() {
			w.settle(errLeft())
			continue
		}
		batch = append(batch, w)
		weight += weightOf(w.item)
	}
	if c.queue.Len() > 0 {
		c.queue.Wake()
	}
	return batch
}

// heavy is an item that counts for more than one in a flush.
type heavy interface{ weight() int }

func weightOf(item any) int {
	if h, ok := item.(heavy); ok {
		return h.weight()
	}
	return 1
}

// ofTenant is an item of a tenant's; all others share a lane.
type ofTenant interface{ tenant() string }

func tenantOf(item any) string {
	if of, ok := item.(ofTenant); ok {
		return of.tenant()
	}
	return ""
}

// commit writes a batch and tells its callers.
func (c *committer[T]) commit(batch []*waiting[T]) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	c.commitPart(ctx, batch)
}

func (c *committer[T]) commitPart(ctx context.Context, part []*waiting[T]) {
	items := make([]T, len(part))
	for i, w := range part {
		items[i] = w.item
	}
	err := c.flush(ctx, items)
	for round := 1; round < conflictRounds && (isConflict(err) || len(part) == 1 && isLocked(err)); round++ {
		err = c.flush(ctx, items)
	}
	if (isBadData(err) || isHeldUp(err)) && len(part) > 1 {
		// One item cannot be stored: halve until it stands alone, so that it harms no
		// other. The deadline is the whole batch's: it outlasts the log2(200) ≈ 8 lock
		// timeouts of one such item, and the repetitions of it alone, twice over.
		c.commitPart(ctx, part[:len(part)/2])
		c.commitPart(ctx, part[len(part)/2:])
		return
	}
	if err != nil {
		err = translate(c.name, err)
	}
	for _, w := range part {
		w.settle(err)
	}
}

// isConflict reports a deadlock (40P01), a serialisation failure (40001) or a row that
// was on its way into the DEFAULT partition while its day's own was attached (23514
// without the name of a constraint): the same statement may succeed when it is repeated.
func isConflict(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40P01" || pg.Code == "40001" || pg.Code == "23514" && pg.ConstraintName == "")
}

// isTaken reports a key that is there already (23505).
func isTaken(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505"
}

// isLocked reports a lock timeout (55P03).
func isLocked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
}

// isHeldUp reports a lock timeout or a statement's (57014): somebody holds one of
// the rows, which says nothing about the others.
func isHeldUp(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (isLocked(err) || pg.Code == "57014")
}

// isBadData reports class 22 (data exception) or 23 (integrity violation): an
// error of the values, not of the database.
func isBadData(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && len(pg.Code) == 5 && (pg.Code[:2] == "22" || pg.Code[:2] == "23")
}
