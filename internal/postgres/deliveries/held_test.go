package deliveries_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Held deliveries are released from the oldest on, whatever the reason, each once, by the outbox.
func TestReleaseHeld(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
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

	found, _, err := b.HeldEndpoints(t.Context(), webhook.HeldPlace{}, 10)
	require.NoError(t, err)
	require.Equal(t, []webhook.HeldEndpoint{{ID: endpoint, Faulty: true}}, found)
	found, _, err = b.HeldEndpoints(t.Context(), webhook.HeldPlace{EndpointID: endpoint, Reason: webhook.ReasonInternal}, 10)
	require.NoError(t, err)
	require.Empty(t, found, "after it there is none")

	starts, err := b.ReleaseHeld(t.Context(), endpoint, 3)
	require.NoError(t, err)
	require.Equal(t, storetest.StartIDs(held[:3]), storetest.StartIDs(starts), "the oldest first")
	for _, start := range starts {
		require.NotNil(t, start.Resume)
		require.Equal(t, webhook.StateHeld, start.Resume.State)
		require.Equal(t, 1, start.Resume.Seq)
	}
	starts, err = b.ReleaseHeld(t.Context(), endpoint, 10)
	require.NoError(t, err)
	require.Equal(t, storetest.StartIDs(held[3:]), storetest.StartIDs(starts), "those are on their way")
	starts, err = b.ReleaseHeld(t.Context(), endpoint, 10)
	require.NoError(t, err)
	require.Empty(t, starts)

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

// Nothing is released for an endpoint that is not active.
func TestBacklogOfAPausedEndpointStays(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	starts, err := b.ReleaseHeld(t.Context(), b.Subscriber.ID, 10)
	require.NoError(t, err)
	require.Empty(t, starts)
	found, _, err := b.HeldEndpoints(t.Context(), webhook.HeldPlace{}, 10)
	require.NoError(t, err)
	require.Empty(t, found)
}

// A delivery may be held after its endpoint was deleted, because of a fault that was known before the endpoint
// was looked for. It is released, and its next attempt cancels it.
func TestHeldAfterItsEndpointWasDeleted(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))
	b.Hold(t, start, storetest.NoWorkflow, webhook.ReasonInternal)
	found, _, err := b.HeldEndpoints(t.Context(), webhook.HeldPlace{}, 10)
	require.NoError(t, err)
	require.Equal(t, []webhook.HeldEndpoint{{ID: b.Subscriber.ID, Faulty: true}}, found)
	starts, err := b.ReleaseHeld(t.Context(), b.Subscriber.ID, 10)
	require.NoError(t, err)
	require.Equal(t, []webhook.DeliveryID{start.DeliveryID}, storetest.StartIDs(starts))
}

// Several processes that release at once release each delivery once.
func TestBacklogIsReleasedOnceByMany(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for range 40 {
		b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	}
	type got struct {
		ids []webhook.DeliveryID
		err error
	}
	results := make(chan got)
	for range 4 {
		go func() {
			var mine got
			for range 14 {
				starts, err := b.ReleaseHeld(t.Context(), b.Subscriber.ID, 3)
				mine.ids = append(mine.ids, storetest.StartIDs(starts)...)
				if err != nil {
					mine.err = err
				}
			}
			results <- mine
		}()
	}
	seen := map[webhook.DeliveryID]bool{}
	for range 4 {
		r := <-results
		require.NoError(t, r.err)
		for _, id := range r.ids {
			require.False(t, seen[id], "released twice")
			seen[id] = true
		}
	}
	require.Len(t, seen, 40)
	require.Equal(t, 40, b.Count(t, "outbox"))
}

// A resume lets go of what is held by the outbox, too, also where a row of an earlier build names a
// workflow.
func TestReplayReleasesWhatIsHeld(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
	carried := b.AcceptOne(t)
	b.Hold(t, carried, carried.WorkflowID(), webhook.ReasonPaused)
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	_, r, err := b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, 60)
	require.NoError(t, err)
	status, err := b.ReleaseReplay(t.Context(), webhook.ReplayBatch{ID: r.ID, Seq: 1, Limit: 10, Now: time.Now()})
	require.NoError(t, err)
	require.EqualValues(t, 2, status.Released)
	relayed, err := b.TakeStarts(t.Context(), "test", 10)
	require.NoError(t, err)
	require.ElementsMatch(t, []webhook.DeliveryID{start.DeliveryID, carried.DeliveryID}, storetest.StartIDs(relayed))
	for _, start := range relayed {
		require.NotNil(t, start.Resume)
	}
}

// What is held is released at its give-up time, whatever it waits for.
func TestReleaseExpired(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
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

// A delivery with a claim is being sent, and does not count as held until the claim has ended.
func TestClaimedIsNotHeld(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	released := func() []webhook.DeliveryID {
		starts, err := b.ReleaseHeld(t.Context(), b.Subscriber.ID, 10)
		require.NoError(t, err)
		return storetest.StartIDs(starts)
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

// The search goes on from page to page, with any number of held deliveries of an endpoint and reason.
func TestHeldEndpointsPageByPage(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	want := map[webhook.EndpointID]bool{b.Subscriber.ID: true}
	for _, reason := range []string{webhook.ReasonBacklog, webhook.ReasonBacklog, webhook.ReasonBacklog, webhook.ReasonInternal, webhook.ReasonPaused} {
		b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, reason)
	}
	for range 3 {
		e := b.AddEndpoint(t, "order.*")
		b.Exec(t, `insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, give_up_at)
			select gen_random_uuid(), md5(random()::text)::uuid, $1, 'acme', 'order.paid', now(), 1, 1, 2, 'backlog', now() + interval '1 day'`, e.ID)
		want[e.ID] = true
	}
	for _, limit := range []int{1, 2, 3, 100} {
		found, faulty := map[webhook.EndpointID]bool{}, false
		for at, pages := (webhook.HeldPlace{}), 0; ; pages++ {
			require.Less(t, pages, 10)
			page, next, err := b.HeldEndpoints(t.Context(), at, limit)
			require.NoError(t, err)
			for _, e := range page {
				found[e.ID], faulty = true, faulty || e.Faulty
			}
			if at = next; at == (webhook.HeldPlace{}) {
				break
			}
		}
		require.Equal(t, want, found, limit)
		require.True(t, faulty)
	}
}
