package deliveries_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Held deliveries are released from the oldest on, whatever the reason, each once, by the outbox.
func TestReleaseHeld(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	endpoint := b.Subscriber.ID
	var held []webhook.Start
	for _, reason := range []string{webhook.ReasonBacklog, webhook.ReasonPaused, webhook.ReasonInternal, webhook.ReasonDisabled, webhook.ReasonBacklog} {
		held = append(held, b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, reason))
	}
	// Those of one millisecond are in the order of their ids.
	slices.SortFunc(held, func(a, b webhook.Start) int { return bytes.Compare(a.DeliveryID[:], b.DeliveryID[:]) })
	_, err := b.RecordStep(t.Context(), storetest.StepOf(b.AcceptOne(t), 1, webhook.StateRetrying))
	require.NoError(t, err)
	asked := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	_, _, err = b.CommandOne(t, asked.DeliveryID, webhook.CommandCancel)
	require.NoError(t, err)

	first := b.TurnOf(t, webhook.ReleaseTurn{EndpointID: endpoint, Limit: 3})
	require.Equal(t, storetest.StartIDs(held[:3]), storetest.StartIDs(first), "the oldest first")
	require.Equal(t, [16]byte(held[2].DeliveryID), valueOf[[16]byte](t, b, `select after_id from releases`), "where the next turn goes on")
	for _, start := range first {
		require.NotNil(t, start.Resume)
		require.Equal(t, webhook.StateHeld, start.Resume.State)
		require.Equal(t, 1, start.Resume.Seq)
	}
	second := b.TurnOf(t, webhook.ReleaseTurn{EndpointID: endpoint, Limit: 10})
	require.Equal(t, storetest.StartIDs(held[3:]), storetest.StartIDs(second), "those are on their way")
	require.True(t, valueOf[bool](t, b, `select after_id is null from releases`), "the end of a pass")
	require.Empty(t, b.Released(t, 10))

	// The relay makes up for a caller that died, and returns their progress.
	_, err = b.Pool().Exec(t.Context(), `update outbox set relay_at = now()`)
	require.NoError(t, err)
	relayed, err := b.TakeStarts(t.Context(), "test", 10)
	require.NoError(t, err)
	for _, start := range relayed {
		if start.DeliveryID == asked.DeliveryID {
			continue
		}
		require.Contains(t, storetest.StartIDs(held), start.DeliveryID)
		require.NotNil(t, start.Resume)
		require.Equal(t, 1, start.Resume.Seq)
	}
	rows := b.Count(t, "outbox")
	// The first write after the release deletes its outbox row, and it is not held any more.
	claim := storetest.ClaimOf(held[0], 1, "me", time.Minute)
	claim.WorkflowID = one
	begun, err := b.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.True(t, begun.Granted)
	require.Equal(t, one, begun.Status.WorkflowID)
	require.NotNil(t, begun.Payload)
	require.Equal(t, rows-1, b.Count(t, "outbox"))
}

// Nothing is released for an endpoint that is not active, and its release is not looked at again before a resume.
func TestBacklogOfAPausedEndpointStays(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	require.Len(t, b.due(t), 1)
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	require.Empty(t, b.due(t))
	require.Empty(t, b.Released(t, 10))
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
	require.Empty(t, b.due(t))
}

// A delivery may be held after its endpoint was deleted, because of a fault that was known before the endpoint
// was looked for. It is released, and its next attempt cancels it. Then the release is forgotten.
func TestHeldAfterItsEndpointWasDeleted(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	before, after := b.AcceptOne(t), b.AcceptOne(t)
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	b.Hold(t, before, storetest.NoWorkflow, webhook.ReasonPaused)
	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))
	require.Equal(t, []webhook.DeliveryID{before.DeliveryID}, b.Releasable(t))
	b.Exec(t, `delete from releases`)
	b.Hold(t, after, storetest.NoWorkflow, webhook.ReasonInternal)
	due := b.due(t)
	require.Len(t, due, 1)
	require.True(t, due[0].Deleted)
	require.Equal(t, []webhook.DeliveryID{after.DeliveryID}, b.Releasable(t))
	b.Exec(t, `update deliveries set state = 5`)
	b.Exec(t, `update releases set started_at = now() - interval '1 minute'`)
	require.Empty(t, b.Released(t, 10))
	require.Zero(t, b.Count(t, "releases"))
}

// A deletion begins the release anew: a hold that was decided before it, and is stored after the first turn, is not overlooked.
func TestADeletionWaitsForHolds(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	late := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	b.settled(t)
	b.Exec(t, `update deliveries set state = 5`)
	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))
	require.Empty(t, b.Releasable(t))
	require.Equal(t, 1, b.Count(t, "releases"))
	b.Exec(t, `update deliveries set state = 2 where id = $1`, late.DeliveryID) // by a flush that saw the endpoint paused
	require.Equal(t, []webhook.DeliveryID{late.DeliveryID}, b.Releasable(t))
}

// Several processes that release at once release each delivery once, in whatever order their turns come.
func TestHeldDeliveriesAreReleasedOnceByMany(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	for range 40 {
		b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
	}
	_, _, err = b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, webhook.MaxReleaseRate, "")
	require.NoError(t, err)
	type got struct {
		ids []webhook.DeliveryID
		err error
	}
	results := make(chan got)
	const processes = 4
	for range processes {
		go func() {
			var mine got
			for range 60 {
				_, err := b.Pool().Exec(t.Context(), `update releases set next_at = now(), set_next_at = now() where state = 0`)
				starts, failed := b.TakeTurn(t.Context(), webhook.ReleaseTurn{EndpointID: b.Subscriber.ID, Limit: 3})
				mine.ids, mine.err = append(mine.ids, storetest.StartIDs(starts)...), errors.Join(mine.err, err, failed)
			}
			results <- mine
		}()
	}
	seen := map[webhook.DeliveryID]bool{}
	for range processes {
		r := <-results
		require.NoError(t, r.err)
		for _, id := range r.ids {
			require.False(t, seen[id], "released twice")
			seen[id] = true
		}
	}
	require.Len(t, seen, 40)
	require.Equal(t, 40, b.Count(t, "outbox"))
	release, err := b.ReleaseOf(t.Context(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	require.EqualValues(t, 40, release.Released)
	require.EqualValues(t, 40, *release.Total)
}

// What is held is released at its give-up time, whatever it waits for.
func TestReleaseExpired(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	expired := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
	young := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	_, err := b.Pool().Exec(t.Context(), `update deliveries set give_up_at = now() - interval '1 second' where id <> $1`, young.DeliveryID)
	require.NoError(t, err)
	starts, err := b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []webhook.DeliveryID{expired.DeliveryID}, storetest.StartIDs(starts))
	require.NotNil(t, starts[0].Resume)
	starts, err = b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, starts, "it is on its way")
}

// However many deliveries of one tenant are to be given up, another's that have expired later are not behind all of them.
func TestTenantsTakeTurnsWithWhatExpires(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	hold := func(tenant string, n int, ago time.Duration) {
		t.Helper()
		b.Exec(t, `insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, give_up_at)
			select gen_random_uuid(), $3, $3, $1, 'order.paid', now(), 1, 1, 2, 'endpoint_paused',
				now() - $4::bigint * interval '1 millisecond' from generate_series(1, $2::int)`, tenant, n, b.Subscriber.ID, ago.Milliseconds())
	}
	given := func() map[string]int {
		t.Helper()
		starts, err := b.ReleaseExpired(t.Context(), 200)
		require.NoError(t, err)
		of := map[string]int{}
		for _, start := range starts {
			of[start.TenantID]++
		}
		return of
	}
	hold("large", 1000, time.Hour)
	hold("quiet", 3, time.Second)
	hold("young", 3, -time.Hour)
	first := given()
	require.Equal(t, 3, first["quiet"])
	require.Greater(t, first["large"], 100)
	require.Zero(t, first["young"])
	b.Exec(t, `update outbox set relay_at = now() + interval '1 hour'`) // what is given up waits while anything is late

	for i := range 3 * deliveries.ExpiredTurns {
		hold(fmt.Sprintf("t%02d", i), 1, time.Second)
	}
	seen := map[string]int{}
	for range 4 {
		maps.Copy(seen, given())
	}
	require.Len(t, seen, 3*deliveries.ExpiredTurns+1)
}

// A delivery with a claim is being sent, and does not count as held until the claim has ended.
func TestClaimedIsNotHeld(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	released := func() []webhook.DeliveryID {
		return b.Releasable(t)
	}
	require.Equal(t, []webhook.DeliveryID{start.DeliveryID}, released())
	claim := storetest.ClaimOf(start, 1, "me", time.Minute)
	claim.WorkflowID = one
	begun, err := b.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.True(t, begun.Granted)
	require.Empty(t, released())
	_, err = b.Pool().Exec(t.Context(), `update deliveries set owner_until = now() - interval '121 seconds'`)
	require.NoError(t, err)
	require.Equal(t, []webhook.DeliveryID{start.DeliveryID}, released())
}

// While the clock of a held delivery stands still, it expires when it has been held for too long, whatever its give-up time. A row without an end of
// its hold expires at the give-up time.
func TestTheClockOfAHeldDelivery(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	start := b.AcceptOne(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	step := storetest.StepOf(start, 1, webhook.StatePending)
	step.GiveUpAt = now.Add(-time.Hour)
	step.Progress, step.WorkflowID = step.Holding(webhook.ReasonPaused, now.Add(-2*time.Hour), 3*time.Hour), storetest.NoWorkflow
	step.HeldFor = time.Minute
	status, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, step.Progress, status.Progress)
	stored, err := b.Delivery(t.Context(), start.TenantID, start.DeliveryID)
	require.NoError(t, err)
	require.Equal(t, step.Progress, stored.Progress)
	none, err := b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, none)

	b.Exec(t, `update deliveries set held_until = now() - interval '1 second' where id = $1`, start.DeliveryID)
	expired, err := b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []webhook.DeliveryID{start.DeliveryID}, storetest.StartIDs(expired))

	b.Exec(t, `delete from outbox`)
	b.Exec(t, `update deliveries set held_until = null where id = $1`, start.DeliveryID)
	expired, err = b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []webhook.DeliveryID{start.DeliveryID}, storetest.StartIDs(expired))

	next := storetest.StepOf(start, 2, webhook.StateRetrying)
	next.Progress = step.WaitingUntil(now, now)
	next.Seq = 2
	status, err = b.RecordStep(t.Context(), next)
	require.NoError(t, err)
	require.Equal(t, 2*time.Hour+time.Minute, status.HeldFor)
	require.True(t, status.HeldAt.IsZero() && status.HeldUntil.IsZero())
}
