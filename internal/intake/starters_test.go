package intake

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/everpost/everpost/internal/engine/enginetest"
)

// Starts that hang, as those of a lost history shard do, hold up those of others for a moment at most, and keep nobody's room in the queue.
func TestAHungStartHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, share := range map[string]int{"one each": 1, "ten in a workflow": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, c := enginetest.New(t)
				f.Quick = func(in *workflowservice.StartWorkflowExecutionRequest) bool {
					return enginetest.MembersOf(t, in)[0].TenantID != "hangs"
				}
				f.Shut()
				d := setup(t, parts{Client: c, Patience: startPatience})
				d.lifetime.Go(d.starts.run)
				defer d.stop()
				for range maxStarting {
					d.Accepted(acceptedOf("hangs", share)) // one start or two: the first delivery may be alone
					enginetest.Pass(time.Millisecond)
					quick := acceptedOf("quick", share)
					d.Accepted(quick)
					enginetest.Pass(3 * startPatience)
					begun := enginetest.Begun(t, f)
					for _, start := range quick.Deliveries {
						require.Contains(t, begun, start.Ref)
					}
					require.Zero(t, d.queue.permits.Tenants())
				}
			})
		})
	}
}

// No more starts are under way than may be, and each is made.
func TestStartsUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var underWay atomic.Int64
		s, answer, made := newStarters(startPatience), make(chan struct{}), make(chan int, 3*maxStarting)
		go func() {
			for i := range 2 * maxStarting {
				s.do(func() {
					underWay.Add(1)
					<-answer
					made <- i
				})
			}
			s.stop()
			close(made)
		}()
		<-time.After(time.Hour)
		synctest.Wait()
		require.Equal(t, int64(maxStarting), underWay.Load())
		close(answer)
		var all []int
		for i := range made {
			all = append(all, i)
		}
		require.Len(t, all, 2*maxStarting)
	})
}
