package postgres

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/lanes"
	"github.com/everpost/everpost/internal/webhook"
)

// lockRow holds a delivery's row until the function that it returns is called.
func (b *deliveryBundle) lockRow(t *testing.T, id webhook.DeliveryID) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from deliveries where id = $1 for update`, id)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// R9: whoever holds one row holds up no other.
func TestALockedRowHarmsNoOther(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	const n, locked = 40, 17
	batch := make([]*waiting[*recording], n)
	for i := range batch {
		start := b.accept(t)
		_, err := b.Record(t.Context(), stepOf(start, 1, webhook.StateRetrying))
		require.NoError(t, err)
		batch[i] = &waiting[*recording]{item: &recording{step: stepOf(start, 2, webhook.StateDelivered)}, done: make(chan error, 1)}
	}
	release := b.lockRow(t, batch[locked].item.step.DeliveryID)
	defer release()
	b.records.commit(batch)
	for i, w := range batch {
		err := <-w.done
		if i == locked {
			require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err), "%v", err)
			continue
		}
		require.NoError(t, err, "%d", i)
		require.Equal(t, webhook.StateDelivered, w.item.standing.State)
	}
}

// An item that is alone waits out what locks a whole table for a moment.
func TestALockedRowIsWaitedForAWhile(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	start := b.accept(t)
	_, err := b.Record(t.Context(), stepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	release := b.lockRow(t, start.DeliveryID)
	flush, flushes := b.records.flush, 0
	w := &waiting[*recording]{item: &recording{step: stepOf(start, 2, webhook.StateDelivered)}, done: make(chan error, 1)}
	c := &committer[*recording]{name: "record", flush: func(ctx context.Context, items []*recording) error {
		flushes++
		if flushes == 2 {
			release()
		}
		return flush(ctx, items)
	}}
	c.commit([]*waiting[*recording]{w})
	require.NoError(t, <-w.done)
	require.Equal(t, 2, flushes)
}

// The queue may take an item after the stop has looked into it for the last time.
func TestAnItemHandedInWhileStoppingIsRefused(t *testing.T) {
	t.Parallel()
	c := &committer[int]{name: "test", queue: lanes.New[*waiting[int]](1), stopped: make(chan struct{}), drained: make(chan struct{})}
	refused := make(chan error, 1)
	go func() { refused <- c.do(context.WithoutCancel(t.Context()), 1) }()
	require.Eventually(t, func() bool { return c.queue.Len() == 1 }, eventually, poll)
	close(c.drained)
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(<-refused))
}

func TestStopSettlesWhatWasHandedIn(t *testing.T) {
	t.Parallel()
	written := 0
	c := newCommitter("test", 10, 1, func(_ context.Context, items []int) error {
		written += len(items)
		return nil
	})
	require.NoError(t, c.do(t.Context(), 1))
	c.stop()
	c.stop()
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(c.do(t.Context(), 2)))
	require.Equal(t, 1, written)
}

// load is an item of a tenant's that weighs something.
type load struct {
	of   string
	much int
}

func (l load) tenant() string { return l.of }
func (l load) weight() int    { return l.much }

// However much one tenant has handed in, the next flush has place for another's.
func TestAFlushHasPlaceForEveryTenant(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan []load), make(chan struct{})
	c := newCommitter("test", 10, 1, func(_ context.Context, items []load) error {
		begun <- items
		<-goOn
		return nil
	})
	var callers sync.WaitGroup
	defer c.stop()
	defer callers.Wait()
	defer close(goOn)
	handIn := func(l load) {
		n := c.queue.Len()
		callers.Go(func() { assert.NoError(t, c.do(t.Context(), l)) })
		require.Eventually(t, func() bool { return c.queue.Len() > n }, eventually, poll)
	}
	callers.Go(func() { assert.NoError(t, c.do(t.Context(), load{"loud", 1})) })
	require.Equal(t, []load{{"loud", 1}}, <-begun, "the first waits for nobody")
	for range 5 {
		handIn(load{"loud", 8})
	}
	handIn(load{"quiet", 1})
	handIn(load{"quiet", 2})
	goOn <- struct{}{}
	require.Equal(t, []load{{"loud", 8}, {"quiet", 1}}, <-begun, "in turns, as long as the next one fits")
	goOn <- struct{}{}
	require.Equal(t, []load{{"loud", 8}, {"quiet", 2}}, <-begun)
	for range 3 {
		goOn <- struct{}{}
		require.Equal(t, []load{{"loud", 8}}, <-begun)
	}
	goOn <- struct{}{}
	callers.Go(func() { assert.NoError(t, c.do(t.Context(), load{"loud", 11})) })
	require.Equal(t, []load{{"loud", 11}}, <-begun, "too heavy, but alone")
}

// What nobody waits for any more is not written before what others wait for.
func TestWhatItsCallerHasLeftIsNotWritten(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan []int), make(chan struct{})
	c := newCommitter("test", 10, 1, func(_ context.Context, items []int) error {
		begun <- items
		<-goOn
		return nil
	})
	defer c.stop()
	var callers sync.WaitGroup
	callers.Go(func() { assert.NoError(t, c.do(t.Context(), 1)) })
	require.Equal(t, []int{1}, <-begun)
	gone, leave := context.WithCancel(t.Context())
	late := make(chan struct{}, 2)
	var leaving sync.WaitGroup
	for range 2 {
		leaving.Go(func() {
			left, err := c.doUntilSettled(gone, 2, func() { late <- struct{}{} })
			assert.True(t, left)
			assert.Error(t, err)
		})
	}
	require.Eventually(t, func() bool { return c.queue.Len() == 2 }, eventually, poll)
	leave()
	leaving.Wait()
	callers.Go(func() { assert.NoError(t, c.do(t.Context(), 3)) })
	require.Eventually(t, func() bool { return c.queue.Len() == 3 }, eventually, poll)
	require.Empty(t, late, "it may still be written")
	goOn <- struct{}{}
	require.Equal(t, []int{3}, <-begun)
	goOn <- struct{}{}
	callers.Wait()
	require.Len(t, late, 2, "and now no more")
}

// A queue that is full says so.
func TestAFullQueueRefuses(t *testing.T) {
	t.Parallel()
	c := &committer[int]{name: "test", queue: lanes.New[*waiting[int]](1), stopped: make(chan struct{}), drained: make(chan struct{})}
	c.queue.Put("", &waiting[int]{})
	err := c.do(t.Context(), 1)
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
	require.ErrorContains(t, err, "try again shortly")
}
