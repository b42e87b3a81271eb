package events_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Processes take batches with the same external ids in other orders at the same time:
// no flush waits for one that waits for it, and every id is stored once.
func TestOverlappingBatchesNeitherDeadlockNorDoubleStore(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	const processes, rounds, universe, size = 4, 40, 60, 20
	type outcome struct {
		externals []string
		answer    []webhook.Accepted
		err       error
	}
	var (
		all       sync.WaitGroup
		conflicts atomic.Int64
		outcomes  = make(chan outcome, processes*rounds)
	)
	for process := range processes {
		s := storetest.OpenStore(t, b.Address)
		s.WaitForLocks(t)
		s.WriteBy(func(ctx context.Context, items []*events.Posting) error {
			err := s.FlushPostings(ctx, items)
			if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "40P01" {
				conflicts.Add(1)
			}
			return err
		})
		random := rand.New(rand.NewPCG(uint64(process), 1))
		all.Go(func() {
			for round := range rounds {
				var o outcome
				for _, n := range random.Perm(universe)[:size] {
					o.externals = append(o.externals, fmt.Sprintf("%d-%d", round/4, n))
				}
				o.answer, o.err = s.AcceptBatch(context.WithoutCancel(t.Context()), batchOf("", o.externals...))
				outcomes <- o
			}
		})
	}
	all.Wait()
	close(outcomes)
	require.Zero(t, conflicts.Load(), "deadlocks")
	got := map[string][]webhook.Accepted{}
	for o := range outcomes {
		require.NoError(t, o.err)
		for i, external := range o.externals {
			got[external] = append(got[external], o.answer[i])
		}
	}
	for external, answers := range got {
		fresh := 0
		for _, a := range answers {
			require.Equal(t, answers[0].Event.ID, a.Event.ID, external)
			require.Equal(t, external, a.Event.ExternalID)
			if !a.Repeated {
				fresh++
			}
		}
		require.Equal(t, 1, fresh, external)
	}
	require.Equal(t, []int{len(got), len(got), len(got)}, []int{b.Count(t, "events"), b.Count(t, "outbox"), b.Count(t, "idempotency_keys")})
}

// A flush takes batches by their events, so that it stays as large as without them.
func TestFlushesAreBoundedByEvents(t *testing.T) {
	t.Parallel()
	starts := make([]webhook.Start, 50*events.DeliveriesPerEvent)
	for want, in := range map[int]*events.Posting{
		1: {Arrivals: make([]events.Arrival, 1)}, 100: {Arrivals: make([]events.Arrival, 100)}, 50: {Arrivals: []events.Arrival{{Starts: starts}}},
	} {
		require.Equal(t, want, in.Weight())
	}
	flushes := make(chan int, 10)
	goOn := make(chan struct{})
	c := postgres.NewWriter("test", 200, func(_ context.Context, items []*events.Posting) error {
		flushes <- len(items)
		<-goOn
		return nil
	}, nil)
	var all sync.WaitGroup
	hand := func() {
		_ = c.Do(context.WithoutCancel(t.Context()), &events.Posting{Arrivals: make([]events.Arrival, 80)})
	}
	all.Go(hand)
	require.Equal(t, 1, <-flushes)
	for range 5 { // while the first is written
		all.Go(hand)
	}
	require.Eventually(t, func() bool { return c.Waiting() == 5 }, storetest.Eventually, storetest.Poll)
	close(goOn)
	for _, want := range []int{2, 2, 1} {
		require.Equal(t, want, <-flushes)
	}
	all.Wait()
	c.Stop()
}
