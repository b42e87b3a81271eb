package starter

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// isProbe reports a start that only tests whether Temporal can be written to.
func isProbe(in *workflowservice.StartWorkflowExecutionRequest) bool {
	return in.GetWorkflowType().GetName() == workflows.ProbeName
}

// cannotWrite has all starts hang, or fail with an error; health checks are answered.
func (f *frontend) cannotWrite(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail = err; err == nil {
		f.answer = make(chan struct{})
	}
}

func (f *frontend) canWrite() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		close(f.answer)
	}
	f.fail = nil
}

// letPass lets time pass, by the bubble's clock.
func letPass(d time.Duration) { <-time.After(d) }

// forget forgets what was started.
func (f *frontend) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts = nil
}

// waysNotToWrite are those of a Temporal that answers health checks: it has lost its shards,
// its database is read-only, or something else is wrong.
func waysNotToWrite() map[string]error {
	return map[string]error{
		"late": nil, "unavailable": serviceerror.NewUnavailable("shard status unknown"), "fails": serviceerror.NewInternal("read-only transaction"),
	}
}

// No request is refused while Temporal cannot write, however short the queue is: ReserveRoom waits for the verdict.
func TestTemporalThatCannotWriteIsDown(t *testing.T) {
	t.Parallel()
	for name, err := range waysNotToWrite() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, c := newFrontend(t)
				d := setup(t, Config{Client: c, QueueLength: 4, MaxPerWorkflow: 1})
				d.Start(nil)
				defer d.Stop()
				post := func() {
					release, err := d.ReserveRoom(t.Context(), "acme", 1)
					require.NoError(t, err)
					d.Accepted(accepted(1))
					release()
				}
				post()
				synctest.Wait()
				require.True(t, d.Healthy())

				f.cannotWrite(err)
				began := time.Now()
				var callers sync.WaitGroup
				for range 20 {
					callers.Go(func() {
						for range 10 {
							post()
						}
					})
				}
				callers.Wait()
				require.False(t, d.Healthy())
				require.Less(t, time.Since(began), suspectAfter+reserveTimeout+checkTimeout)
				letPass(time.Minute)
				require.False(t, d.Healthy(), "a health check says nothing")
				require.Zero(t, d.Waiting(), "all is left to the relay")

				f.canWrite()
				letPass(checkEvery + checkTimeout)
				require.True(t, d.Healthy())
				require.Nil(t, d.suspected())
				before := len(f.started())
				post()
				synctest.Wait()
				require.Len(t, f.started(), before+1)
			})
		})
	}
}

// A Temporal that is slow but can be written to is busy, and ReserveRoom keeps its bound.
func TestBusyTemporalIsNotDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := newFrontend(t)
		f.quick = isProbe
		d := setup(t, Config{Client: c, QueueLength: 4, MaxPerWorkflow: 1})
		d.Start(nil)
		defer d.Stop()
		f.cannotWrite(nil)
		for range 2 {
			release, err := d.ReserveRoom(t.Context(), "acme", 1)
			require.NoError(t, err)
			d.Accepted(accepted(1))
			release()
		}
		letPass(suspectAfter)
		synctest.Wait()
		require.True(t, d.Healthy())
		_, err := d.ReserveRoom(t.Context(), "acme", 1)
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
		checks := 0
		for _, in := range f.started() {
			if isProbe(in) {
				checks++
			}
		}
		require.Positive(t, checks)
		require.LessOrEqual(t, checks, 2)
		f.canWrite()
	})
}

// A limit that is exceeded changes nothing: Temporal stays down, or up.
func TestExceededLimitIsNoVerdict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := newFrontend(t)
		d := setup(t, Config{Client: c})
		d.Start(nil)
		defer d.Stop()
		f.cannotWrite(serviceerror.NewResourceExhausted(0, "x"))
		d.suspect()
		letPass(checkTimeout + time.Second)
		require.True(t, d.Healthy())
		require.Zero(t, d.TemporalDownSince())
		d.markDown(context.DeadlineExceeded)
		letPass(time.Minute)
		require.False(t, d.Healthy())
		require.Equal(t, time.Minute, time.Since(d.TemporalDownSince()), "the first failure counts, not the last")
		f.canWrite()
		letPass(checkTimeout + time.Second)
		require.True(t, d.Healthy())
	})
}

// Deliveries that the relay took in vain keep their time in the outbox, and share a workflow as if they had not been taken.
func TestReturnedStartsKeepTheirTime(t *testing.T) {
	t.Parallel()
	for name, fault := range waysNotToWrite() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := postgrestest.New(t)
			store, err := stores.Open(t.Context(), stores.Config{URL: address, MaxConns: 3})
			require.NoError(t, err)
			t.Cleanup(store.Close)
			f, c := newFrontend(t)
			d := setup(t, Config{Client: c, Outbox: store.Outbox})
			d.workers.Go(d.checkTemporal)
			defer d.Stop()
			for range 3 {
				require.NoError(t, leaveBehind(t, store))
			}
			turns := func() (all []time.Time, relayed int) {
				rows, err := store.Pool().Query(t.Context(), `select relay_at, relayed from outbox order by delivery_id`)
				require.NoError(t, err)
				for rows.Next() {
					var (
						at time.Time
						n  int
					)
					require.NoError(t, rows.Scan(&at, &n))
					all, relayed = append(all, at), relayed+n
				}
				require.NoError(t, rows.Err())
				return all, relayed
			}
			before, _ := turns()
			f.cannotWrite(fault)
			require.False(t, d.relayOnce())
			require.False(t, d.Healthy())
			after, relayed := turns()
			require.Equal(t, before, after)
			require.Zero(t, relayed)
			require.False(t, d.relayOnce(), "Temporal is down")
			after, _ = turns()
			require.Equal(t, before, after)

			f.canWrite()
			require.Eventually(t, d.Healthy, 20*time.Second, time.Millisecond)
			f.forget()
			require.False(t, d.relayOnce())
			started := f.started()
			require.Len(t, started, 1, "they share a workflow")
			require.True(t, strings.HasPrefix(started[0].GetWorkflowId(), "fanout/"), started[0].GetWorkflowId())
			_, relayed = turns()
			require.Equal(t, 3, relayed)
		})
	}
}

// A start that fails while Temporal is up is relayed again later.
func TestFailedStartIsRelayedLater(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	store, err := stores.Open(t.Context(), stores.Config{URL: address, MaxConns: 3})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	f, c := newFrontend(t)
	f.quick = isProbe
	d := setup(t, Config{Client: c, Outbox: store.Outbox})
	d.workers.Go(d.checkTemporal)
	defer d.Stop()
	require.NoError(t, leaveBehind(t, store))
	f.cannotWrite(nil)
	require.False(t, d.relayOnce())
	require.True(t, d.Healthy())
	var later bool
	require.NoError(t, store.Pool().QueryRow(t.Context(), `select relay_at > now() and relayed = 1 from outbox`).Scan(&later))
	require.True(t, later)
	f.canWrite()
}
