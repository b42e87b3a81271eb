package replays_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// The set is fixed when the replay is made: in the order of the ids, nothing twice,
// nothing left out, without what comes or goes meanwhile.
func TestDeadLettersAreReleasedInBatches(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	older := b.AcceptOne(t)
	ids := b.DeadLetters(t, 7)
	r := b.StartReplay(t, webhook.Replay{})
	late := append(b.DeadLetters(t, 2), b.EndIn(t, older, webhook.StateDeadLettered).DeliveryID)
	b.Left(t)
	discarded := b.Discarded(t, ids[3])
	_, _, err := b.CommandOne(t, ids[4], webhook.CommandReplay)
	require.NoError(t, err)

	_, err = b.Pool().Exec(t.Context(), `update deliveries set workflow_id = 'dead/fanout/x/0' where state = 4`)
	require.NoError(t, err)

	st := b.ReleaseBatch(t, r, 1, 2)
	require.Equal(t, []string{"dead/fanout/x/0", "dead/fanout/x/0"}, storetest.Query[string](t, b.Stores,
		`select earlier from outbox where run = 2 and delivery_id = any($1)`, [][16]byte{ids[0], ids[1]}), "whoever starts the runs tells it")
	require.Equal(t, []int64{1, 2, 2}, []int64{st.Seq, st.Released, st.Waiting()})
	require.False(t, st.Exhausted)
	require.Equal(t, map[webhook.DeliveryID]int{ids[0]: 2, ids[1]: 2}, b.Left(t), "for the relay at once")
	again := b.ReleaseBatch(t, r, 1, 2)
	require.Equal(t, st, again, "a repeated batch is not released again")
	require.Empty(t, b.Left(t))

	d, err := b.Delivery(t.Context(), "acme", ids[0])
	require.NoError(t, err)
	require.Equal(t, webhook.Progress{Run: 2, State: webhook.StatePending, Attempts: 1, GiveUpAt: d.GiveUpAt}, d.Progress)
	require.WithinDuration(t, time.Now().Add(72*time.Hour), d.GiveUpAt, time.Minute, "a fresh one, of the endpoint's policy")
	require.Zero(t, d.CompletedAt)

	st = b.ReleaseBatch(t, r, 2, 2)
	require.EqualValues(t, 4, st.Released)
	require.Equal(t, map[webhook.DeliveryID]int{ids[2]: 2, ids[5]: 2}, b.Left(t))
	st = b.ReleaseBatch(t, r, 3, 2)
	require.True(t, st.Exhausted)
	require.Equal(t, []int64{5, 2, 7}, []int64{st.Released, st.Skipped, *st.Total}, "the two that others took")
	require.Equal(t, map[webhook.DeliveryID]int{ids[6]: 2}, b.Left(t))
	require.Equal(t, st, b.ReleaseBatch(t, r, 4, 2), "there is nothing more")

	for _, id := range append(late, discarded) {
		d, err := b.Delivery(t.Context(), "acme", id)
		require.NoError(t, err)
		require.Equal(t, 1, d.Run)
	}
}

// A discard that was accepted and is not carried out yet counts: a replay of many skips that dead letter.
func TestADiscardedOneIsNotReplayedWithTheOthers(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	ids := b.DeadLetters(t, 3)
	r := b.StartReplay(t, webhook.Replay{})
	_, command, err := b.CommandOne(t, ids[1], webhook.CommandDiscard)
	require.NoError(t, err)
	st := b.ReleaseBatch(t, r, 1, 10)
	require.True(t, st.Exhausted)
	require.Equal(t, []int64{2, 1, 3}, []int64{st.Released, st.Skipped, *st.Total})
	require.Equal(t, map[webhook.DeliveryID]int{ids[0]: 2, ids[2]: 2}, b.Left(t))
	stored, err := b.Delivery(t.Context(), "acme", ids[1])
	require.NoError(t, err)
	status, err := b.DeliveryStatus(t.Context(), stored.Ref)
	require.NoError(t, err)
	require.Equal(t, 1, status.Run)
	require.Equal(t, command, status.Command, "it is still to be carried out")
}

// A local activity is run again when its task is, also while the first one is still at it.
func TestABatchIsReleasedOnceByMany(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.DeadLetters(t, 10)
	r := b.StartReplay(t, webhook.Replay{})
	var (
		all      sync.WaitGroup
		statuses [4]webhook.ReplayStatus
	)
	for i := range statuses {
		s := b.Stores
		if i%2 == 1 {
			s = storetest.OpenStore(t, b.Address)
		}
		all.Go(func() {
			st, err := s.ReleaseReplay(t.Context(), webhook.ReplayBatch{ID: r.ID, Seq: 1, Limit: 3, Now: time.Now()})
			if err != nil {
				t.Error(err)
			}
			statuses[i] = st
		})
	}
	all.Wait()
	for _, st := range statuses {
		require.Equal(t, statuses[0].ReplayCounts, st.ReplayCounts)
	}
	require.EqualValues(t, 3, statuses[0].Released)
	require.Len(t, b.Left(t), 3)
	require.Equal(t, 3, b.Count(t, "replay_releases"))
}

// A large installation always has thousands of deliveries in the outbox, each for a moment, and
// some that cannot be started. Replays go on there.
func TestReplaysGoOnWhereMuchIsUnderWay(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.DeadLetters(t, 2)
	r := b.StartReplay(t, webhook.Replay{})
	b.FillOutbox(t, 50_000, 0, deliveries.RelayAfter)                                          // of the last moments
	b.FillOutbox(t, 5_000, 0, -time.Second)                                                    // about to be taken
	b.FillOutbox(t, 5_000, 1, deliveries.RelayAfter-time.Second)                               // taken a moment ago
	b.FillOutbox(t, deliveries.MaxUnstarted/2, 1, deliveries.RelayAfter-2*deliveries.StartLag) // these have waited for longer than usual
	b.FillOutbox(t, deliveries.MaxUnstarted/2, 20, 5*time.Minute)                              // these, too
	st := b.ReleaseBatch(t, r, 1, 2)
	require.False(t, st.Behind)
	require.EqualValues(t, 2, st.Released)
}

func TestNothingIsReleased(t *testing.T) {
	t.Parallel()
	for name, prevent := range map[string]func(t *testing.T, b *storetest.Bundle, r webhook.Replay){
		"when paused": func(t *testing.T, b *storetest.Bundle, r webhook.Replay) {
			t.Helper()
			_, err := b.StepReplay(t.Context(), webhook.ReplayStep{ID: r.ID, Seq: 1, State: webhook.ReplayPaused, Asked: 1, Rate: 1})
			require.NoError(t, err)
		},
		"past a pause that is not answered": func(t *testing.T, b *storetest.Bundle, r webhook.Replay) {
			t.Helper()
			b.AskReplay(t, r, webhook.ReplayCommand{Action: webhook.ReplayPause})
		},
		"past a cancel that is not answered": func(t *testing.T, b *storetest.Bundle, r webhook.Replay) {
			t.Helper()
			b.AskReplay(t, r, webhook.ReplayCommand{Action: webhook.ReplayCancel})
		},
		"while the relay is late": func(t *testing.T, b *storetest.Bundle, _ webhook.Replay) {
			t.Helper()
			b.FillOutbox(t, 1, 0, -deliveries.RelayLag-time.Second)
		},
		"while what the relay took is not started": func(t *testing.T, b *storetest.Bundle, _ webhook.Replay) {
			t.Helper()
			b.FillOutbox(t, deliveries.MaxUnstarted+1, 1, deliveries.RelayAfter-deliveries.StartLag-time.Second)
		},
		"while what the relay took again is not started": func(t *testing.T, b *storetest.Bundle, _ webhook.Replay) {
			t.Helper()
			b.FillOutbox(t, deliveries.MaxUnstarted+1, 2, 2*deliveries.RelayAfter)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			b.DeadLetters(t, 2)
			r := b.StartReplay(t, webhook.Replay{})
			prevent(t, b, r)
			st := b.ReleaseBatch(t, r, 9, 2)
			require.Zero(t, st.Released)
			require.Less(t, st.Seq, int64(9), "it may be repeated")
			require.Equal(t, strings.HasPrefix(name, "while "), st.Behind)
			require.Zero(t, b.Count(t, "replay_releases"))
		})
	}
}

// Dead letters of a deleted endpoint are counted, not released.
func TestDeletedEndpointsAreSkipped(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.DeadLetters(t, 2)
	r := b.StartReplay(t, webhook.Replay{})
	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))
	st := b.ReleaseBatch(t, r, 1, 10)
	require.Equal(t, []int64{0, 2, 2}, []int64{st.Released, st.Skipped, *st.Total})
	require.True(t, st.Exhausted)
	require.Empty(t, b.Left(t))
}

// The set is what the list of dead letters shows with the same filters.
func TestTheSetIsTheList(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	other := b.AddEndpoint(t, "order.*")
	var middle time.Time
	for i, status := range []int{400, 404, 410, 400, 404, 410} {
		a, err := b.Accept(t.Context(), storetest.NewEvent([]string{"order.paid", "order.sent"}[i%2]))
		require.NoError(t, err)
		for _, start := range a.Deliveries {
			step := storetest.StepOf(start, 1, []webhook.State{webhook.StateDeadLettered, webhook.StateDelivered}[i/5])
			step.Reason, step.Attempt = fmt.Sprint("http_", status), storetest.AttemptOf(1, 1, status)
			step.Attempt.Latency = 0
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
		}
		if i == 2 {
			middle = a.Event.CreatedAt
		}
	}
	ended := storetest.Query[time.Time](t, b.Stores, `select completed_at from deliveries where state = 4 order by completed_at offset 3 limit 1`)[0].UTC()
	for _, f := range []webhook.ReplayFilter{
		{}, {EndpointID: other.ID}, {EventType: "order.sent"},
		{EventType: "order.*"}, {EventType: "order.s.*"}, {EventType: "*"}, {EventType: "order.nothing"}, {Reason: "http_404"}, {Status: 400},
		{EndedSince: ended}, {EndedUntil: ended}, {EndedSince: ended, EndedUntil: ended.Add(time.Microsecond)}, {EndedSince: time.Now().Add(time.Hour)},
		{Since: middle}, {Until: middle}, {Since: middle, Until: middle.Add(time.Microsecond)}, {Until: time.Now().Add(time.Hour)},
		{EndpointID: b.Subscriber.ID, EventType: "order.paid", Reason: "http_400", Status: 400, Since: middle.Add(-time.Hour), Until: middle.Add(time.Hour)},
	} {
		listed, _, err := b.ListDeliveries(t.Context(), "acme", webhook.DeliveryFilter{
			States: []webhook.State{webhook.StateDeadLettered}, EndpointID: f.EndpointID, EventType: f.EventType, Reason: f.Reason, Status: f.Status,
			Since: f.Since, Until: f.Until, EndedSince: f.EndedSince, EndedUntil: f.EndedUntil,
		}, webhook.Page{Limit: 100})
		require.NoError(t, err)
		var want, got [][16]byte
		for _, d := range slices.Backward(listed) {
			want = append(want, d.DeliveryID)
		}
		r := b.StartReplay(t, webhook.Replay{Filter: f})
		require.EqualValues(t, len(want), *r.Total, "%+v", f)
		require.NoError(t, b.AsWorker().InTx(t.Context(), "read", func(ctx context.Context, tx pgx.Tx) error {
			var exhausted bool
			got, _, exhausted, err = replays.NextOf(ctx, tx, replays.SetOf(&r, nil), 100, replays.ReplayScan)
			require.True(t, exhausted)
			return err
		}))
		require.Equal(t, want, got, "%+v", f)
	}
}

// However few rows each scan reads, all that match are found once, in order.
func TestASetIsWalkedInBoundedSteps(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	ids := b.DeadLetters(t, 12)
	rapid.Check(t, func(rt *rapid.T) {
		matching := rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 0, len(ids), func(id webhook.DeliveryID) [16]byte { return id }).Draw(rt, "matching")
		limit, scan := rapid.IntRange(1, 14).Draw(rt, "limit"), rapid.IntRange(1, 14).Draw(rt, "scan")
		var got, want [][16]byte
		err := b.AsWorker().InTx(context.Background(), "walk", func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `update deliveries set reason = case when id = any($1) then 'this' else 'other' end`, matching); err != nil {
				return err
			}
			r := webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters, CreatedAt: time.Now(), Filter: webhook.ReplayFilter{Reason: "this"}}
			var cursor [16]byte
			for range 40 {
				found, at, exhausted, err := replays.NextOf(ctx, tx, replays.SetOf(&r, nil).After(cursor), limit, scan)
				if err != nil {
					return err
				}
				require.LessOrEqual(rt, len(found), limit)
				got = append(got, found...)
				if exhausted {
					return nil
				}
				require.Positive(rt, slices.Compare(at[:], cursor[:]), "it moves")
				cursor = at
			}
			require.Fail(rt, "it does not end")
			return nil
		})
		require.NoError(rt, err)
		for _, id := range ids {
			if slices.Contains(matching, id) {
				want = append(want, id)
			}
		}
		require.Equal(rt, want, got)
	})
}

// Past events, to an endpoint that may be younger than they are.
func TestEventsAreReplayed(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	since := time.Now().Add(-time.Minute)
	b.AcceptOne(t) // stays open, in the outbox
	open := b.AcceptOne(t)
	_, err := b.RecordStep(t.Context(), storetest.StepOf(open, 1, webhook.StateRetrying))
	require.NoError(t, err)
	delivered := b.EndIn(t, b.AcceptOne(t), webhook.StateDelivered)
	due := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	scheduled := storetest.NewEvent("order.paid")
	scheduled.DeliverAt = due
	later, err := b.Accept(t.Context(), scheduled)
	require.NoError(t, err)
	_, err = b.Accept(t.Context(), storetest.NewEvent("invoice.paid"))
	require.NoError(t, err)
	b.Left(t)

	// To the endpoint that got them: ended deliveries are sent again, open ones are skipped.
	filter := webhook.ReplayFilter{EndpointID: b.Subscriber.ID, EventType: "order.paid", Since: since}
	r := b.StartReplay(t, webhook.Replay{Source: webhook.ReplayEvents, Filter: filter})
	require.EqualValues(t, 4, *r.Total)
	st := b.ReleaseBatch(t, r, 1, 10)
	require.Equal(t, []int64{1, 3}, []int64{st.Released, st.Skipped})
	require.True(t, st.Exhausted)
	require.Equal(t, map[webhook.DeliveryID]int{delivered.DeliveryID: 2}, b.Left(t))

	// To one that is new: deliveries are made.
	young := b.AddEndpoint(t, "nothing.yet")
	r = b.StartReplay(t, webhook.Replay{Source: webhook.ReplayEvents, Filter: webhook.ReplayFilter{EndpointID: young.ID, Since: since, IncludeUnmatched: true}})
	require.EqualValues(t, 5, *r.Total)
	b.AcceptOne(t) // after it
	st = b.ReleaseBatch(t, r, 1, 3)
	require.EqualValues(t, 3, st.Released)
	st = b.ReleaseBatch(t, r, 2, 3)
	require.Equal(t, []int64{5, 0}, []int64{st.Released, st.Skipped})
	require.True(t, st.Exhausted)
	starts, err := b.TakeStarts(t.Context(), "test", 100)
	require.NoError(t, err)
	require.Len(t, starts, 5)
	for _, start := range starts {
		require.Equal(t, webhook.DeliveryIDOf(start.EventID, young.ID), start.DeliveryID)
		require.Equal(t, []any{1, young.ID, "acme"}, []any{start.Run, start.EndpointID, start.TenantID})
		if start.EventID == later.Event.ID {
			require.Equal(t, due, start.NotBefore)
			require.WithinDuration(t, due.Add(72*time.Hour), start.GiveUpAt, time.Second)
		} else {
			require.WithinDuration(t, time.Now().Add(72*time.Hour), start.GiveUpAt, time.Minute)
		}
	}
	e, all, err := b.Event(t.Context(), "acme", delivered.EventID)
	require.NoError(t, err)
	require.Equal(t, []webhook.EndpointID{b.Subscriber.ID}, e.EndpointIDs, "what the API matched stays what it answered")
	require.Len(t, all, 2)
	require.Equal(t, []webhook.EndpointID{b.Subscriber.ID, young.ID}, []webhook.EndpointID{all[0].EndpointID, all[1].EndpointID})

	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", young.ID))
	r.ID = b.StartReplay(t, webhook.Replay{Source: webhook.ReplayEvents, Filter: webhook.ReplayFilter{EndpointID: b.Subscriber.ID, Since: since}}).ID
	_, err = b.Pool().Exec(t.Context(), `update endpoints set deleted_at = now() where id = $1`, b.Subscriber.ID)
	require.NoError(t, err)
	st = b.ReleaseBatch(t, r, 1, 100)
	require.Equal(t, []int64{0, 5}, []int64{st.Released, st.Skipped})
}
