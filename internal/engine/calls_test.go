package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Signals beyond the bound are left to the relay.
func TestSignalsAreBounded(t *testing.T) {
	t.Parallel()
	d := setup(t, Config{Client: enginetest.ClientOf(t, enginetest.SilentPort(t))})
	delivery := webhook.Delivery{Ref: enginetest.Accepted(1).Deliveries[0].Ref}
	for range 10 * maxAsync {
		d.Commands.Commanded(t.Context(), delivery, webhook.PendingCommand{Command: webhook.CommandRetry, ID: 1})
	}
	require.Len(t, d.Calls.async, maxAsync)
	d.Lifetime.Stop()
	require.Empty(t, d.Calls.async)
}

func TestForEachIsBoundedAndComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		items := make([]int, 50)
		var now, most, done atomic.Int32
		began := time.Now()
		ForEach(8, items, func(int) {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Second) // of the bubble's clock
			now.Add(-1)
			done.Add(1)
		})
		require.Equal(t, int32(50), done.Load())
		require.LessOrEqual(t, most.Load(), int32(8))
		require.Equal(t, 7*time.Second, time.Since(began), "and as many at a time as there may be")
	})
}
