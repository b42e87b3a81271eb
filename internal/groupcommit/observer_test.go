package groupcommit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// flushes has the calls of an Observer.
type flushes struct {
	mu     sync.Mutex
	items  []int
	failed []bool
}

func (f *flushes) Flushed(items int, took time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if took < 0 {
		panic("a flush takes time")
	}
	f.items, f.failed = append(f.items, items), append(f.failed, err != nil)
}

// Every call of Flush is observed, also a repetition.
func TestFlushesAreObserved(t *testing.T) {
	t.Parallel()
	var (
		seen flushes
		once = errors.New("once")
		left = 1
	)
	w := New(Config[int]{
		MaxWeight: 10, Observer: &seen, Classify: func(err error) Remedy { return Remedy{Repeat: errors.Is(err, once)} },
		Flush: func(context.Context, []int) error {
			left--
			if left == 0 {
				return once
			}
			return nil
		},
	})
	require.NoError(t, w.Do(t.Context(), 1))
	w.Stop()
	require.Equal(t, []int{1, 1}, seen.items)
	require.Equal(t, []bool{true, false}, seen.failed)
}
