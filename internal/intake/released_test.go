package intake

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

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

// A start that hangs holds up the released deliveries of others for a moment at most.
func TestReleasedBehindAHungStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := enginetest.New(t)
		f.Quick = func(in *workflowservice.StartWorkflowExecutionRequest) bool {
			return enginetest.MembersOf(t, in)[0].TenantID != "hangs"
		}
		f.Shut()
		d := setup(t, parts{Client: c, Admission: admissionStub{}, Patience: startPatience})
		d.lifetime.Go(d.starts.startReleased)
		defer d.stop()
		for range maxStarting / 2 {
			hanging, quick := released(2), released(2)
			for i := range hanging {
				hanging[i].TenantID = "hangs"
			}
			d.Released(hanging)
			enginetest.Pass(time.Millisecond)
			d.Released(quick)
			enginetest.Pass(2 * startPatience)
			require.Subset(t, enginetest.Begun(t, f), []webhook.Ref{quick[0].Ref, quick[1].Ref})
		}
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
