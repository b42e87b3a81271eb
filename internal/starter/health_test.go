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

// isProbe reports a start that only asks whether Temporal can be written to.
func isProbe(in *workflowservice.StartWorkflowExecutionRequest) bool {
	return in.GetWorkflowType().GetName() == workflows.ProbeName
}

// cannotWrite has all starts hang, or fail with an error; health checks are answered.
func (f *frontend) cannotWrite(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail = err; err == nil {
		f.gate = make(chan struct{})
	}
}

func (f *frontend) canWrite() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		close(f.gate)
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
// its database is read-only, or something else is wrong that nobody thought of.
func waysNotToWrite() map[string]error {
	return map[string]error{
		"late": nil, "unavailable": serviceerror.NewUnavailable("shard status unknown"), "fails": serviceerror.NewInternal("read-only transaction"),
	}
}

// Nobody is refused while Temporal cannot write, however short the queue: who comes before
// that is known waits until it is.
func TestATemporalThatCannotWriteIsAway(t *testing.T) {
	t.Parallel()
	for name, err := range waysNotToWrite() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, c := newFrontend(t)
				d := setup(t, Config{Client: c, QueueLength: 4, Width: 1})
				d.Start(nil)
				defer d.Stop()
				post := func() {
					release, err := d.Reserve(t.Context(), "acme", 1)
					require.NoError(t, err)
					d.Accepted(accepted(1))
					release()
				}
				post()
				synctest.Wait()
				require.True(t, d.Healthy())

				f.cannotWrite(err)
				begun := time.Now()
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
				require.Less(t, time.Since(begun), doubtAfter+doorPatience+probeTimeout)
				letPass(time.Minute)
				require.False(t, d.Healthy(), "a health check says nothing")
				require.Zero(t, d.Waiting(), "all is left to the relay")

				f.canWrite()
				letPass(probeEvery + probeTimeout)
				require.True(t, d.Healthy())
				require.Nil(t, d.inDoubt())
				before := len(f.started())
				post()
				synctest.Wait()
				require.Len(t, f.started(), before+1)
			})
		})
	}
}

// A Temporal that takes long for what it is given, but can be written to, is busy. The door
// keeps its bound.
func TestABusyTemporalIsNotAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := newFrontend(t)
		f.quick = isProbe
		d := setup(t, Config{Client: c, QueueLength: 4, Width: 1})
		d.Start(nil)
		defer d.Stop()
		f.cannotWrite(nil)
		for range 2 {
			release, err := d.Reserve(t.Context(), "acme", 1)
			require.NoError(t, err)
			d.Accepted(accepted(1))
			release()
		}
		letPass(doubtAfter)
		synctest.Wait()
		require.True(t, d.Healthy())
		_, err := d.Reserve(t.Context(), "acme", 1)
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
		probes := 0
		for _, in := range f.started() {
			if isProbe(in) {
				probes++
			}
		}
		require.Positive(t, probes)
		require.LessOrEqual(t, probes, 2)
		f.canWrite()
	})
}

// A limit that is exceeded says nothing of the rest: what was away stays so, and what was not
// does not become so.
func TestALimitIsNoVerdict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := newFrontend(t)
		d := setup(t, Config{Client: c})
		d.Start(nil)
		defer d.Stop()
		f.cannotWrite(serviceerror.NewResourceExhausted(0, "x"))
		d.suspect()
		letPass(probeTimeout + time.Second)
		require.True(t, d.Healthy())
		d.setAway(context.DeadlineExceeded)
		letPass(time.Minute)
		require.False(t, d.Healthy())
		f.canWrite()
		letPass(probeTimeout + time.Second)
		require.True(t, d.Healthy())
	})
}

// What the relay took in vain keeps its turn, and is started together, as if it had not been
// taken. What one start of many failed of comes later: Temporal is there.
func TestWhatWasTakenInVainKeepsItsTurn(t *testing.T) {
	t.Parallel()
	for name, fault := range waysNotToWrite() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := postgrestest.New(t)
			store, err := stores.Open(t.Context(), stores.Config{URL: address, MaxConns: 3})
			require.NoError(t, err)
			t.Cleanup(store.Close)
			f, c := newFrontend(t)
			d := setup(t, Config{Client: c, Store: store.Outbox})
			d.workers.Go(d.probe)
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
			require.False(t, d.relayOnce(), "nobody is there")
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

func TestWhatAloneFailsComesLater(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	store, err := stores.Open(t.Context(), stores.Config{URL: address, MaxConns: 3})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	f, c := newFrontend(t)
	f.quick = isProbe
	d := setup(t, Config{Client: c, Store: store.Outbox})
	d.workers.Go(d.probe)
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
