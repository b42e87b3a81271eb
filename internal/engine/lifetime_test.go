package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

// R11: Stop does not wait for a Temporal that does not answer, and nothing begins after it.
func TestStopCancelsCalls(t *testing.T) {
	t.Parallel()
	d := setup(t, Config{Client: enginetest.ClientOf(t, enginetest.SilentPort(t))})
	d.Start()
	delivery := webhook.Delivery{Ref: enginetest.Accepted(1).Deliveries[0].Ref}
	var signalling sync.WaitGroup
	for range 4 {
		signalling.Go(func() {
			for range 100 {
				d.Commands.Commanded(context.Background(), delivery, webhook.PendingCommand{Command: webhook.CommandCancel, ID: 1})
			}
		})
	}
	began := time.Now()
	d.Lifetime.Stop()
	require.Less(t, time.Since(began), startTimeout-time.Second)
	signalling.Wait()
	require.Empty(t, d.Calls.async)
	d.Commands.Commanded(context.Background(), delivery, webhook.PendingCommand{Command: webhook.CommandCancel, ID: 1})
	require.Empty(t, d.Calls.async, "after Stop")
}

// What runs when Stop is called may go on for a while, and is then cut off. Nothing is added meanwhile.
func TestLifetimeHasTwoEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLifetime()
		began := time.Now()
		var stopping, cut time.Duration
		require.True(t, l.Go(func() {
			<-l.Stopping().Done()
			stopping = time.Since(began)
			require.False(t, l.Go(func() {}))
			<-l.Calls().Done()
			cut = time.Since(began)
		}))
		l.Stop()
		require.Zero(t, stopping)
		require.Equal(t, stopTimeout, cut)
		require.True(t, l.Stopped())

		idle := newLifetime()
		idle.Stop()
		require.Error(t, idle.Calls().Err(), "at once, because there is nothing to wait for")
	})
}

// An access to a store outlives its context for as long as calls do, and no longer than its own time.
func TestOutlive(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ timeout, ends, lasts time.Duration }{
		"it takes too long":           {timeout: time.Minute, ends: time.Second, lasts: time.Second + stopTimeout},
		"its time is over":            {timeout: 5 * time.Second, ends: time.Hour, lasts: 5 * time.Second},
		"its time is over, meanwhile": {timeout: 2 * time.Second, ends: time.Second, lasts: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithTimeout(t.Context(), test.ends)
				defer end()
				began := time.Now()
				lasting, done := Outlive(ctx, test.timeout)
				<-lasting.Done()
				require.Equal(t, test.lasts, time.Since(began))
				done()
			})
		})
	}
	ctx, end := context.WithCancel(t.Context())
	lasting, done := Outlive(ctx, time.Minute)
	done()
	require.Error(t, lasting.Err())
	end()
}
