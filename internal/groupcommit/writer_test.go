package groupcommit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const (
	eventually = 10 * time.Second
	poll       = time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The queue may take an item after the stop has looked into it for the last time.
func TestAnItemHandedInWhileStoppingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWriter(Config[int]{}, 1)
	refused := make(chan error, 1)
	go func() { refused <- w.Do(context.WithoutCancel(t.Context()), 1) }()
	require.Eventually(t, func() bool { return w.Waiting() == 1 }, eventually, poll)
	close(w.drained)
	require.ErrorIs(t, <-refused, ErrStopped)
}

func TestStopSettlesWhatWasHandedIn(t *testing.T) {
	t.Parallel()
	written := 0
	w := New(Config[int]{MaxWeight: 10, Flush: func(_ context.Context, items []int) error {
		written += len(items)
		return nil
	}})
	require.NoError(t, w.Do(t.Context(), 1))
	w.Stop()
	w.Stop()
	require.ErrorIs(t, w.Do(t.Context(), 2), ErrStopped)
	require.Equal(t, 1, written)
}

// load is an item of a tenant that weighs something.
type load struct {
	tenant string
	weight int
}

// However much one tenant has handed in, the next flush has place for another's items.
func TestAFlushHasPlaceForEveryTenant(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan []load), make(chan struct{})
	w := New(Config[load]{
		MaxWeight: 10, Tenant: func(l load) string { return l.tenant }, Weight: func(l load) int { return l.weight },
		Flush: func(_ context.Context, items []load) error {
			begun <- items
			<-goOn
			return nil
		},
	})
	var callers sync.WaitGroup
	defer w.Stop()
	defer callers.Wait()
	defer close(goOn)
	handIn := func(l load) {
		n := w.Waiting()
		callers.Go(func() { assert.NoError(t, w.Do(t.Context(), l)) })
		require.Eventually(t, func() bool { return w.Waiting() > n }, eventually, poll)
	}
	callers.Go(func() { assert.NoError(t, w.Do(t.Context(), load{"busy", 1})) })
	require.Equal(t, []load{{"busy", 1}}, <-begun, "the first does not wait for others")
	for range 5 {
		handIn(load{"busy", 8})
	}
	handIn(load{"quiet", 1})
	handIn(load{"quiet", 2})
	goOn <- struct{}{}
	require.Equal(t, []load{{"busy", 8}, {"quiet", 1}}, <-begun, "in turns, as long as the next one fits")
	goOn <- struct{}{}
	require.Equal(t, []load{{"busy", 8}, {"quiet", 2}}, <-begun)
	for range 3 {
		goOn <- struct{}{}
		require.Equal(t, []load{{"busy", 8}}, <-begun)
	}
	goOn <- struct{}{}
	callers.Go(func() { assert.NoError(t, w.Do(t.Context(), load{"busy", 11})) })
	require.Equal(t, []load{{"busy", 11}}, <-begun, "too heavy, but alone")
}

// An item whose caller has left is not written before items that callers wait for.
func TestAnItemWhoseCallerLeftIsNotWritten(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan []int), make(chan struct{})
	w := New(Config[int]{MaxWeight: 10, Flush: func(_ context.Context, items []int) error {
		begun <- items
		<-goOn
		return nil
	}})
	defer w.Stop()
	var callers sync.WaitGroup
	callers.Go(func() { assert.NoError(t, w.Do(t.Context(), 1)) })
	require.Equal(t, []int{1}, <-begun)
	gone, leave := context.WithCancel(t.Context())
	late := make(chan struct{}, 2)
	var leaving sync.WaitGroup
	for range 2 {
		leaving.Go(func() {
			left, err := w.DoUntilSettled(gone, 2, func() { late <- struct{}{} })
			assert.True(t, left)
			assert.Error(t, err)
		})
	}
	require.Eventually(t, func() bool { return w.Waiting() == 2 }, eventually, poll)
	leave()
	leaving.Wait()
	callers.Go(func() { assert.NoError(t, w.Do(t.Context(), 3)) })
	require.Eventually(t, func() bool { return w.Waiting() == 3 }, eventually, poll)
	require.Empty(t, late, "it may still be written")
	goOn <- struct{}{}
	require.Equal(t, []int{3}, <-begun)
	goOn <- struct{}{}
	callers.Wait()
	require.Len(t, late, 2, "and now no more")
}

// A queue that is full refuses an item.
func TestAFullQueueRefuses(t *testing.T) {
	t.Parallel()
	w := newWriter(Config[int]{}, 1)
	w.queue.Put("", &waiting[int]{})
	require.ErrorIs(t, w.Do(t.Context(), 1), ErrFull)
}

// How often each item is flushed, and what becomes of it, by what its error is classified as.
func TestRemedies(t *testing.T) {
	t.Parallel()
	errBad := errors.New("bad")
	for name, c := range map[string]struct {
		remedy   Remedy
		failures int // of flushes with the bad item; the next succeeds
		flushes  [][]int
		refused  []int
	}{
		"none":                          {Remedy{}, 9, [][]int{{1, 2, 3, 4}}, []int{1, 2, 3, 4}},
		"repeat":                        {Remedy{Repeat: true}, 2, [][]int{{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}}, nil},
		"repeat, in vain":               {Remedy{Repeat: true}, 9, slices.Repeat([][]int{{1, 2, 3, 4}}, attempts), []int{1, 2, 3, 4}},
		"split":                         {Remedy{Split: true}, 9, [][]int{{1, 2, 3, 4}, {1, 2}, {3, 4}, {3}, {4}}, []int{3}},
		"split, and alone it is stored": {Remedy{Split: true, Locked: true}, 4, [][]int{{1, 2, 3, 4}, {1, 2}, {3, 4}, {3}, {3}, {3}, {4}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var flushes [][]int
			w := newWriter(Config[int]{
				Flush: func(_ context.Context, items []int) error {
					flushes = append(flushes, items)
					if c.failures > 0 && slices.Contains(items, 3) {
						c.failures--
						return errBad
					}
					return nil
				},
				Classify: func(error) Remedy { return c.remedy },
			}, 1)
			batch := make([]*waiting[int], 4)
			for i := range batch {
				batch[i] = &waiting[int]{item: i + 1, done: make(chan error, 1)}
			}
			w.commit(batch)
			require.Equal(t, c.flushes, flushes)
			var refused []int
			for _, waits := range batch {
				if err := <-waits.done; err != nil {
					require.ErrorIs(t, err, errBad)
					refused = append(refused, waits.item)
				}
			}
			require.Equal(t, c.refused, refused)
		})
	}
}
