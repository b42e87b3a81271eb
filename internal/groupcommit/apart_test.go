package groupcommit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lockable is a writer of numbers, of which some are locked.
type lockable struct {
	*Writer[int]

	locked  []int
	flushes [][]int
	asked   int // how often Locked was called
}

var errLock = errors.New("locked")

func newLockable(locked ...int) *lockable {
	l := &lockable{locked: locked}
	l.Writer = newWriter(Config[int]{
		MaxWeight: 10,
		Flush: func(_ context.Context, items []int) error {
			l.flushes = append(l.flushes, slices.Clone(items))
			if slices.ContainsFunc(items, l.isLocked) {
				return errLock
			}
			return nil
		},
		Classify: func(error) Remedy { return Remedy{Locked: true, Split: true} },
		Apart: &Apart[int]{
			Keys: func(item int) []any { return []any{item} }, Turn: &sync.Mutex{},
			Locked: func(_ context.Context, items []int) ([][]any, error) {
				l.asked++
				found := make([][]any, len(items))
				for i, item := range items {
					if l.isLocked(item) {
						found[i] = []any{item}
					}
				}
				return found, nil
			},
		},
	}, 10)
	return l
}

func (l *lockable) isLocked(item int) bool { return slices.Contains(l.locked, item) }

func batchOf(items ...int) (batch []*waiting[int]) {
	for _, item := range items {
		batch = append(batch, &waiting[int]{item: item, done: make(chan error, 1)})
	}
	return batch
}

// The first wait for a lock is the only one of the others; what is locked is tried a few times, apart.
func TestLockedItemsAreWrittenApart(t *testing.T) {
	t.Parallel()
	l := newLockable(2, 4)
	batch := batchOf(1, 2, 3, 4)
	l.commit(batch)
	require.Equal(t, [][]int{{1, 2, 3, 4}, {1, 3}}, l.flushes)
	require.Equal(t, 1, l.asked)
	require.NoError(t, <-batch[0].done)
	require.NoError(t, <-batch[2].done)

	l.locked, l.flushes = []int{4}, nil
	l.commitApart(l.apart.take())
	require.Equal(t, [][]int{{2, 4}, {2}}, l.flushes)
	require.NoError(t, <-batch[1].done)
	for range attempts - 1 {
		require.Empty(t, batch[3].done)
		l.commitApart(l.apart.take())
	}
	require.ErrorIs(t, <-batch[3].done, errLock)
	require.Empty(t, l.apart.take())
}

// Where a lock was met, nothing is written with others for a while, or until it is written.
func TestALockIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLockable(2)
		l.commit(batchOf(1, 2))
		require.Len(t, l.apart.take(), 1)
		gather := func() (all []int) {
			for _, item := range batchOf(1, 2, 3) {
				require.True(t, l.queue.Put("", item))
			}
			return itemsOf(l.gather(nil))
		}
		require.Equal(t, []int{1, 3}, gather())
		<-time.After(apartFor - time.Millisecond)
		require.Equal(t, []int{1, 3}, gather(), "the last time was at the beginning")
		<-time.After(apartFor)
		require.Equal(t, []int{1, 2, 3}, gather())

		l.commit(batchOf(2))
		require.Equal(t, []int{1, 3}, gather())
		l.locked = nil
		l.commitApart(l.apart.take())
		require.Equal(t, []int{1, 2, 3}, gather())
	})
}

// Too many that wait for locks are refused, and no more keys are remembered than may be.
func TestWhatIsApartIsBounded(t *testing.T) {
	t.Parallel()
	l := newLockable()
	for i := range maxApart {
		require.True(t, l.apart.add([]any{i}, &waiting[int]{item: i}, time.Now()))
	}
	require.False(t, l.apart.add([]any{maxApart}, &waiting[int]{}, time.Now()))
	l.apart.take()
	require.True(t, l.apart.add([]any{maxApart}, &waiting[int]{}, time.Now()))
	require.Len(t, l.apart.keys, maxApart)
	require.True(t, l.apart.add([]any{maxApart + 1}, &waiting[int]{}, time.Now().Add(apartFor)))
	require.Len(t, l.apart.keys, 1, "those that are over are forgotten")
}

// Stop tries what is locked for the last time.
func TestStopSettlesWhatIsLocked(t *testing.T) {
	t.Parallel()
	l := newLockable(1)
	w := New(l.config)
	refused := make(chan error, 1)
	go func() { refused <- w.Do(context.WithoutCancel(t.Context()), 1) }()
	require.ErrorIs(t, <-refused, errLock)
	w.Stop()
}

// The last try waits out one lock timeout, however many items are locked.
func TestStopTriesAllAtOnce(t *testing.T) {
	t.Parallel()
	l := newLockable(1, 2, 3)
	batch := batchOf(1, 2, 3, 4)
	for _, item := range batch {
		require.True(t, l.apart.add([]any{item.item}, item, time.Now()))
	}
	close(l.apart.done)
	<-l.apart.ready
	l.runApart()
	require.Equal(t, [][]int{{1, 2, 3, 4}, {4}}, l.flushes)
	for _, item := range batch[:3] {
		require.ErrorIs(t, <-item.done, errLock)
	}
	require.NoError(t, <-batch[3].done)
}

// An item with several keys is blamed for those that are locked only, and whoever needs one of these is written apart.
func TestOnlyLockedKeysAreRemembered(t *testing.T) {
	t.Parallel()
	l := newLockable(12) // an item writes its tens and its ones: 12 cannot be written, because of 10
	l.config.Apart.Keys = func(item int) []any { return []any{item / 10 * 10, item % 10} }
	l.config.Apart.Locked = func(_ context.Context, items []int) ([][]any, error) {
		found := make([][]any, len(items))
		for i, item := range items {
			if item/10 == 1 {
				found[i] = []any{10}
			}
		}
		return found, nil
	}
	l.commit(batchOf(12))
	require.Len(t, l.apart.take(), 1, "alone, too")
	for _, item := range batchOf(2, 13, 22) {
		require.True(t, l.queue.Put("", item))
	}
	require.Equal(t, []int{2, 22}, itemsOf(l.gather(nil)))
	require.Equal(t, 13, l.apart.take()[0].item)
}

// What is written apart is written in flushes of the usual weight.
func TestFlushesApartAreBounded(t *testing.T) {
	t.Parallel()
	l := newLockable()
	l.config.Weight = func(int) int { return 4 }
	l.commitApart(batchOf(1, 2, 3, 4, 5))
	require.Equal(t, [][]int{{1, 2}, {3, 4}, {5}}, l.flushes)
}
