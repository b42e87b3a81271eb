package intake

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

// released are held deliveries of an endpoint that were released together.
func released(n int) []webhook.Start {
	_, held := enginetest.HeldFor(n)
	all := make([]*webhook.Start, len(held))
	for i := range held {
		all[i] = &held[i]
	}
	webhook.Assign(all)
	return held
}

// Released deliveries are started in the workflows that they were released in, when no new ones wait, and after a second in any case.
func TestReleasedGoBehindNewOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := enginetest.New(t)
		d := setup(t, parts{Client: c, Admission: admissionStub{}})
		d.lifetime.Go(d.starts.startReleased)
		d.Accepted(webhook.Accepted{Deliveries: enginetest.Accepted(1).Deliveries}) // nobody starts it
		d.Released(released(3))
		<-time.After(longestYield / 2)
		synctest.Wait()
		require.Empty(t, f.Started())
		<-time.After(longestYield)
		synctest.Wait()
		require.Len(t, enginetest.Begun(t, f), 3)
		require.Len(t, f.Started(), 1)
		start, _ := d.queue.take()
		d.queue.release(&start)
		d.Released(released(2))
		<-time.After(yieldStep)
		synctest.Wait()
		require.Len(t, enginetest.Begun(t, f), 5, "at once")
		d.stop()
	})
}

// What has waited too long is the relay's, and what is left when the process stops is another process's at once.
func TestReleasedAreLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := enginetest.New(t)
		d := setup(t, parts{Client: c, Admission: admissionStub{}})
		d.Released(released(3))
		<-time.After(queueTime)
		require.Empty(t, d.starts.nextReleased())
		d.Released(released(2))
		require.Equal(t, 1, d.starts.released.Len())
		d.stop()
		d.starts.leaveReleased()
		require.Zero(t, d.starts.released.Len())
	})
}
