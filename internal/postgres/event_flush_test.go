package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// waitForLocks lets flushes wait for locks until PostgreSQL finds the deadlock, if it
// is one. Otherwise they give up sooner, and a slow machine looks the same.
func (s *stores) waitForLocks(t *testing.T) {
	t.Helper()
	config := s.intake.Config()
	for _, name := range []string{"lock_timeout", "statement_timeout"} {
		config.ConnConfig.RuntimeParams[name] = milliseconds(15 * time.Second)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	s.intake.Close()
	s.intake = pool
}

// Processes take batches with the same external ids in other orders at the same time:
// no flush waits for one that waits for it, and every id is stored once.
func TestOverlappingBatchesNeitherDeadlockNorDoubleStore(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
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
		s := openStore(t, b.address)
		s.waitForLocks(t)
		s.ingest.Stop()
		s.ingest = newWriter("accept event", intakeWeight, func(ctx context.Context, items []*intake) error {
			err := s.flushIntake(ctx, items)
			if isConflict(err) {
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
			if !a.Replayed {
				fresh++
			}
		}
		require.Equal(t, 1, fresh, external)
	}
	require.Equal(t, []int{len(got), len(got), len(got)}, []int{b.count(t, "events"), b.count(t, "outbox"), b.count(t, "idempotency_keys")})
}

// A flush takes batches by their events, so that it stays as large as without them.
func TestFlushesAreBoundedByEvents(t *testing.T) {
	t.Parallel()
	starts := make([]webhook.Start, 50*deliveriesPerEvent)
	for want, in := range map[int]*intake{
		1: {arrivals: make([]arrival, 1)}, 100: {arrivals: make([]arrival, 100)}, 50: {arrivals: []arrival{{starts: starts}}},
	} {
		require.Equal(t, want, weightOf(in))
	}
	flushes := make(chan int, 10)
	goOn := make(chan struct{})
	c := newWriter("test", 200, func(_ context.Context, items []*intake) error {
		flushes <- len(items)
		<-goOn
		return nil
	})
	var all sync.WaitGroup
	hand := func() { _ = c.Do(context.WithoutCancel(t.Context()), &intake{arrivals: make([]arrival, 80)}) }
	all.Go(hand)
	require.Equal(t, 1, <-flushes)
	for range 5 { // while the first is written
		all.Go(hand)
	}
	require.Eventually(t, func() bool { return c.Waiting() == 5 }, eventually, poll)
	close(goOn)
	for _, want := range []int{2, 2, 1} {
		require.Equal(t, want, <-flushes)
	}
	all.Wait()
	c.Stop()
}
