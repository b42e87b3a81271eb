package recovery

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

// The relay starts deliveries that were recorded and not started, each in its own workflow, and then deletes their rows.
func TestRelayStartsTheRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := enginetest.New(t)
		record := &outbox{}
		d := setup(t, parts{Client: c, Outbox: record})
		defer d.Lifetime.Stop()
		all := enginetest.Accepted(3)
		for i := range all.Deliveries {
			all.Deliveries[i].Relayed, all.Deliveries[i].Recorded = 1, true
			record.starts = append(record.starts, all.Deliveries[i])
		}
		d.relayOnce()
		synctest.Wait()
		_, own := enginetest.Groups(t, f)
		require.Len(t, own, 3)
		require.Len(t, record.ended, 3)
	})
}

// R1: what the relay took is started although something else cannot be read.
func TestRelayStartsWhatItTook(t *testing.T) {
	t.Parallel()
	starts := enginetest.Accepted(3).Deliveries
	d := setup(t, parts{
		Client: enginetest.ClientOf(t, enginetest.ClosedPort(t)), Outbox: &outbox{starts: starts, commands: errors.New("not readable")},
	})
	done := d.relayOnce()
	require.Equal(t, 3, done.starts, "they were tried")
}

// If no worker runs, deliveries wait in the shared workflow that was started for them. They are started one by one only when that
// workflow has ended.
func TestRelayKeepsAssignedWorkflows(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	o := &outbox{}
	d := setup(t, parts{Client: c, Outbox: o})
	f.There, f.Begins = map[string]enumspb.WorkflowExecutionStatus{}, true
	all := enginetest.Accepted(200).Deliveries
	relayed := func() {
		taken := slices.Clone(all)
		o.starts = taken
		d.relayOnce()
		all = taken // as TakeStarts has assigned them
	}
	relayed()
	require.Len(t, f.Started(), 2)
	f.Tries = map[string]int32{}
	for _, request := range f.Started() {
		f.Tries[request.GetWorkflowId()] = 1
	}
	const shared = 2 // the same groups have the same ids: started again, there is one of each
	for range 5 {
		relayed()
		require.Len(t, enginetest.StartedIDs(f), shared, "no further workflow")
	}

	// One of them has ended without a word of its deliveries.
	gone := all[0].AssignedTo
	f.There[gone] = enginetest.Completed
	relayed()
	require.Len(t, enginetest.StartedIDs(f), shared+100)

	// And the other was never there.
	clear(f.There)
	f.Tries = nil
	before := len(f.Started())
	relayed()
	require.LessOrEqual(t, len(f.Started())-before, 4, "in shared workflows, as always")
}

// While Temporal is down, the outbox is not read.
func TestTemporalDown(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	store, err := stores.Open(t.Context(), stores.Config{URL: address, MaxConns: 3})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	d := setup(t, parts{Client: enginetest.ClientOf(t, enginetest.ClosedPort(t)), Outbox: store.Outbox})
	require.True(t, d.Health.Up())
	d.Start()
	defer d.Lifetime.Stop()
	require.Eventually(t, func() bool { return !d.Health.Up() }, 30*time.Second, 5*time.Millisecond)

	require.NoError(t, leaveBehind(t, store))
	d.relayOnce()
	var taken int
	require.NoError(t, store.Pool().QueryRow(t.Context(), `select count(*) from outbox where relay_at > now()`).Scan(&taken))
	require.Zero(t, taken)
}

// Deliveries that the relay took in vain keep their time in the outbox, and share a workflow as if they had not been taken.
func TestReturnedStartsKeepTheirTime(t *testing.T) {
	t.Parallel()
	for name, fault := range enginetest.WaysNotToWrite() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := postgrestest.New(t)
			store, err := stores.Open(t.Context(), stores.Config{URL: address, MaxConns: 3})
			require.NoError(t, err)
			t.Cleanup(store.Close)
			f, c := enginetest.New(t)
			d := setup(t, parts{Client: c, Outbox: store.Outbox})
			d.Start()
			defer d.Lifetime.Stop()
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
			f.CannotWrite(fault)
			d.relayOnce()
			require.False(t, d.Health.Up())
			after, relayed := turns()
			require.Equal(t, before, after)
			require.Zero(t, relayed)
			d.relayOnce() // Temporal is down
			after, _ = turns()
			require.Equal(t, before, after)

			f.CanWrite()
			require.Eventually(t, d.Health.Up, 20*time.Second, time.Millisecond)
			f.Forget()
			d.relayOnce()
			started := f.Started()
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
	f, c := enginetest.New(t)
	f.Quick = enginetest.IsProbe
	d := setup(t, parts{Client: c, Outbox: store.Outbox})
	d.Start()
	defer d.Lifetime.Stop()
	require.NoError(t, leaveBehind(t, store))
	f.CannotWrite(nil)
	d.relayOnce()
	require.True(t, d.Health.Up())
	var later bool
	require.NoError(t, store.Pool().QueryRow(t.Context(), `select relay_at > now() and relayed = 1 from outbox`).Scan(&later))
	require.True(t, later)
	f.CanWrite()
}

// rounds is how often a test runs in which a select may choose either of two cases.
const rounds = 10

// looked is an outbox that counts how often it is read.
type looked struct {
	outbox

	starts, commands int
}

func (l *looked) TakeStarts(ctx context.Context, call string, n int) ([]webhook.Start, error) {
	l.starts++
	return l.outbox.TakeStarts(ctx, call, n)
}

func (l *looked) TakeCommands(ctx context.Context, n int) ([]webhook.CommandedDelivery, error) {
	l.commands++
	return l.outbox.TakeCommands(ctx, n)
}

// What is taken from the outbox is not handed out again for a while, so nothing is taken after Stop.
func TestStopTakesNothingMore(t *testing.T) {
	t.Parallel()
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			f, c := enginetest.New(t)
			record := &looked{outbox: outbox{starts: enginetest.Accepted(1).Deliveries}}
			d := setup(t, parts{Client: c, Outbox: record})
			open := f.Shut()
			d.run(d.relay.Run)
			enginetest.Pass(2 * relayEvery) // it is time to look again
			require.Equal(t, 1, record.starts)
			go d.Lifetime.Stop()
			synctest.Wait()
			open()
			synctest.Wait()
			require.Equal(t, 1, record.starts)
			require.Zero(t, record.commands)
			require.Len(t, enginetest.Begun(t, f), 1)
		})
	}
}
