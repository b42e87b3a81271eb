package statistics

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// An attempt with an end that is not counted is two that are missing.
func TestDroppedCountsAttemptsAndEnds(t *testing.T) {
	t.Parallel()
	r := newRecorder(newSum(), &bytes.Buffer{})
	r.counts.max = 0
	a, p := attemptOf(1, retry.Delivered, time.Now()), webhook.StateDelivered
	r.Counted(refOf("acme", 1), a, webhook.StatePending, false)
	require.EqualValues(t, 1, r.Dropped())
	r.Counted(refOf("acme", 1), a, p, true)
	require.EqualValues(t, 3, r.Dropped())
	r.Counted(refOf("acme", 1), nil, p, true)
	require.EqualValues(t, 4, r.Dropped())
}

// Many endpoints at once are written before there is no more room, and nothing is dropped. While the database is away
// that is not tried for each of them.
func TestManyEndpointsAreWrittenEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newSum()
		r := newRecorder(store, &bytes.Buffer{})
		r.counts.max = 10
		count := func(endpoints byte) {
			for i := range endpoints {
				r.Counted(refOf("acme", i), attemptOf(1, retry.Delivered, time.Now()), webhook.StatePending, false)
			}
			synctest.Wait()
		}
		r.Start(t.Context())
		count(7)
		require.Zero(t, store.flushes())
		count(8)
		require.Equal(t, 1, store.flushes())
		count(8)
		require.Equal(t, 2, store.flushes())
		require.Zero(t, r.Dropped())

		store.mu.Lock()
		store.fail = func() (bool, bool) { return true, false }
		store.mu.Unlock()
		count(8)
		require.Equal(t, 3, store.flushes())
		count(8)
		require.Equal(t, 3, store.flushes(), "the next tick tries again")
		store.mu.Lock()
		store.fail = func() (bool, bool) { return false, false }
		store.mu.Unlock()
		r.Stop(t.Context())
	})
}
