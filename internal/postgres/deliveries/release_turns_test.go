package deliveries_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// next is how long it is until the next turn, and turn makes it now, without regard to the set's own time.
func (b *releasing) next(t *testing.T) time.Duration {
	t.Helper()
	return time.Duration(valueOf[float64](t, b, `select extract(epoch from next_at - now())::float8 from releases`) * float64(time.Second))
}

func (b *releasing) turn(t *testing.T, limit int) []webhook.Start {
	t.Helper()
	b.Exec(t, `update releases set next_at = now()`)
	starts, err := b.TakeTurn(t.Context(), webhook.ReleaseTurn{EndpointID: b.Subscriber.ID, Limit: limit})
	require.NoError(t, err)
	return starts
}

// One hold costs three turns: one releases it, one sees that it has begun, and one ends the release once no hold can be on its way any more.
func TestAHoldCostsThreeTurns(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	require.Len(t, b.turn(t, 10), 1)
	require.InDelta(t, 2*time.Second, b.next(t), float64(time.Second))
	b.ended(t)
	require.Empty(t, b.turn(t, 10))
	require.InDelta(t, 10*time.Second, b.next(t), float64(3*time.Second))
	b.settled(t)
	require.Empty(t, b.turn(t, 10))
	require.Equal(t, webhook.ReleaseDone, b.release(t).State)
}

// A set is counted a page a second, also while it is stopped or slow; its rate does not depend on that.
func TestASlowSetIsCounted(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.pausedWith(t, 1)
	b.Exec(t, `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, give_up_at)
		select (left(d.id::text, 26) || lpad(to_hex(n), 10, '0'))::uuid, d.event_id, d.endpoint_id, d.tenant_id, d.event_type, d.created_at, 1, 1, 2,
			'endpoint_paused', d.give_up_at
		from deliveries d, generate_series(1, 2 * $1::int) n`, deliveries.CountPage)
	b.resume(t, 1)
	b.Exec(t, `update releases set until_id = 'ffffffff-0000-0000-0000-000000000000', counted_to = 'ffffffff-0000-0000-0000-000000000000'`)
	require.Len(t, b.turn(t, 10), 1)
	require.Nil(t, b.release(t).Total)
	require.InDelta(t, time.Second, b.next(t), float64(time.Second))
	require.Empty(t, b.turn(t, 10), "the next one is due in a minute")
	b.change(t, webhook.ReleaseChange{State: new(webhook.ReleaseStopped)})
	require.Empty(t, b.turn(t, 10))
	require.EqualValues(t, 2*deliveries.CountPage+1, *new(b.release(t)).Total)
	require.Empty(t, b.due(t))
}

// What is held besides a slow set does not wait for the set's next turn, and lets none of the set go.
func TestASlowSetDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.pausedWith(t, 3)
	r := b.resume(t, 1)
	require.Len(t, b.turn(t, 10), 1)
	require.InDelta(t, time.Minute, b.next(t), float64(2*time.Second))
	require.Eventually(t, func() bool { return time.Since(r.Until.Time()) > 2*time.Millisecond }, time.Second, time.Millisecond)
	later := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	require.Len(t, b.due(t), 1)
	require.Equal(t, []webhook.DeliveryID{later.DeliveryID}, storetest.StartIDs(b.turn(t, 10)))
}

// The pace of a set counts from when it begins or goes on, and a fault of an earlier release is none of the next one.
func TestAReleaseBeginsAnew(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonInternal)
	require.False(t, b.due(t)[0].FaultedAt.IsZero())
	b.pausedWith(t, 2)
	b.resume(t, 0)
	require.Zero(t, b.due(t)[0].FaultedAt)
	b.change(t, webhook.ReleaseChange{State: new(webhook.ReleaseStopped)})
	b.Exec(t, `update releases set running_at = now() - interval '10 minutes', started_at = now() - interval '10 minutes'`)
	r := b.release(t)
	require.Zero(t, r.Pace(b.Now(), 0))
	r = b.change(t, webhook.ReleaseChange{State: new(webhook.ReleaseRunning)})
	require.Equal(t, 600, r.Pace(b.Now(), 0))

	b.Exec(t, `update releases set state = 2, next_at = null, faulted_at = now() - interval '1 day'`)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	require.Zero(t, b.due(t)[0].FaultedAt)
}

// Only what turns have released takes room from further turns: replays, what is given up and what the relay has had to start do not.
func TestStartRoom(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	lanes := []int{webhook.LaneOf(b.Subscriber.ID)}
	room := func() int {
		t.Helper()
		n, err := b.StartRoom(t.Context(), lanes)
		require.NoError(t, err)
		return n
	}
	all := room()
	b.AcceptOne(t)
	expired := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
	b.Exec(t, `update deliveries set give_up_at = now() - interval '1 second' where id = $1`, expired.DeliveryID)
	starts, err := b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, starts, 1)
	b.Exec(t, `update outbox set workflow_id = 'fanout/x', relayed = 1`)
	require.Equal(t, all, room())
	for range 3 {
		b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	}
	require.Len(t, b.turn(t, 10), 3)
	require.Equal(t, all-3, room())
	lanes[0]++
	require.Equal(t, all, room(), "another process has its own room")
	b.Exec(t, `
		insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at, released)
		select gen_random_uuid(), o.event_id, o.endpoint_id, o.tenant_id, o.event_type, o.run, o.created_at, o.give_up_at, o.relay_at, true
		from (select event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at from outbox where released limit 1) o,
			generate_series(1, 500)`)
	require.Equal(t, 10, room(), "nor do busy ones keep it from that")
	lanes[0]--
	require.Zero(t, max(0, room()))
	lanes[0]++
	b.Exec(t, `update outbox set relay_at = now() - interval '1 minute'`)
	require.Zero(t, room(), "new events wait")
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
	b.Exec(t, `update deliveries set give_up_at = now() - interval '1 second'`)
	starts, err = b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, starts, "what is given up waits, too")
	b.Exec(t, `delete from outbox where relay_at < now()`)
	starts, err = b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.NotEmpty(t, starts)
}

// A pass begins with the lowest that is held, whatever lies below and is not vacuumed yet. A hold below that notes itself.
func TestAPassBeginsWithTheLowestHeld(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"all", "set", "after a set"} {
		b := setupReleases(t)
		all := []webhook.Start{b.AcceptOne(t), b.AcceptOne(t), b.AcceptOne(t)}
		slices.SortFunc(all, func(a, b webhook.Start) int { return bytes.Compare(a.DeliveryID[:], b.DeliveryID[:]) })
		low, first, second := all[0], all[1], all[2]
		hold := func(start webhook.Start) {
			t.Helper()
			b.Hold(t, start, storetest.NoWorkflow, webhook.ReasonBacklog)
		}
		_, err := b.RecordStep(t.Context(), storetest.StepOf(low, 1, webhook.StateRetrying))
		require.NoError(t, err)
		hold(first)
		column := "from_id"
		switch of {
		case "set":
			b.Exec(t, `update releases set until_id = 'ffffffff-0000-0000-0000-000000000000', total = 1`)
		case "after a set":
			b.Exec(t, `update releases set until_id = '00000000-0000-0000-0000-000000000001', total = 0`)
			column = "later_from_id"
		}
		turn := func() []webhook.Start {
			t.Helper()
			b.Exec(t, `update releases set set_next_at = now()`) // however slow the set is
			return b.turn(t, 10)
		}
		begins := func() webhook.DeliveryID {
			t.Helper()
			return valueOf[[16]byte](t, b, `select `+column+` from releases`)
		}
		require.Len(t, turn(), 1)
		require.Zero(t, begins(), "a hold may be on its way")
		b.settled(t)
		require.Empty(t, turn())
		require.Equal(t, first.DeliveryID, begins(), "it has not begun")
		hold(second)
		b.ended(t)
		require.Equal(t, []webhook.DeliveryID{second.DeliveryID}, storetest.StartIDs(turn()), of)
		require.Equal(t, second.DeliveryID, begins(), of)
		again := storetest.StepOf(low, 2, webhook.StateHeld)
		again.WorkflowID, again.Reason = storetest.NoWorkflow, webhook.ReasonBacklog
		_, err = b.RecordStep(t.Context(), again)
		require.NoError(t, err)
		require.Equal(t, low.DeliveryID, begins(), of)
		require.Equal(t, []webhook.DeliveryID{low.DeliveryID}, storetest.StartIDs(turn()), of)
		b.ended(t)
		turn()
		require.Equal(t, webhook.ReleaseDone, b.release(t).State, of)
		require.Zero(t, begins())
	}
}

// A release is put off as it was read: one that was changed meanwhile has its turn.
func TestPostponeLeavesOutWhatWasChanged(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	postpone := func(d webhook.DueRelease) {
		t.Helper()
		require.NoError(t, b.Postpone(t.Context(), []webhook.PostponedRelease{{EndpointID: d.EndpointID, DueAt: d.DueAt, Pause: time.Minute}}))
	}
	read := b.due(t)[0]
	tx, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, deliveries.HastenRelease(t.Context(), tx, b.Subscriber.ID))
	require.NoError(t, tx.Commit(t.Context()))
	postpone(read)
	postpone(b.due(t)[0])
	require.Empty(t, b.due(t))
	require.InDelta(t, time.Minute, b.next(t), float64(5*time.Second))
}

// A hold that is refused, or repeated, makes its set no larger.
func TestARefusedHoldIsNotCounted(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	under := b.AcceptOne(t)
	_, err := b.Claim(t.Context(), storetest.ClaimOf(under, 0, "other", time.Minute))
	require.NoError(t, err)
	held := b.pausedWith(t, 2)
	b.resume(t, 0)
	require.Len(t, b.turn(t, 1), 1)
	require.EqualValues(t, 2, *new(b.release(t)).Total)
	again := storetest.StepOf(held[1], 2, webhook.StateHeld)
	again.WorkflowID, again.Reason = storetest.NoWorkflow, webhook.ReasonBacklog
	refused := storetest.StepOf(under, 1, webhook.StateHeld)
	refused.WorkflowID, refused.Reason, refused.Claimant = storetest.NoWorkflow, webhook.ReasonBacklog, "me"
	for range 2 {
		for _, step := range []webhook.Step{again, refused} {
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
		}
	}
	require.EqualValues(t, 3, *new(b.release(t)).Total)
}
