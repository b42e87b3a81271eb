package postgres

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// hold records that a delivery is held: by nobody, or, as earlier builds did, by a workflow.
func (b *deliveryBundle) hold(t *testing.T, start webhook.Start, workflow, reason string) webhook.Start {
	t.Helper()
	step := stepOf(start, 1, webhook.StateHeld)
	step.WorkflowID, step.Reason = workflow, reason
	standing, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.StateHeld, standing.State)
	require.Equal(t, workflow, standing.WorkflowID)
	return start
}

func startIDs(starts []webhook.Start) []webhook.DeliveryID {
	var ids []webhook.DeliveryID
	for _, s := range starts {
		ids = append(ids, s.DeliveryID)
	}
	return ids
}

// Held deliveries are released from the oldest on, whatever the reason, each once, by the outbox.
func TestReleaseHeld(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	endpoint := b.endpoint.ID
	var held []webhook.Start
	for _, reason := range []string{webhook.ReasonBacklog, webhook.ReasonPaused, webhook.ReasonInternal, webhook.ReasonDisabled, webhook.ReasonBacklog} {
		held = append(held, b.hold(t, b.accept(t), nobody, reason))
	}
	// Those of one millisecond are in the order of their ids.
	slices.SortFunc(held, func(a, b webhook.Start) int { return bytes.Compare(a.DeliveryID[:], b.DeliveryID[:]) })
	_, err := b.RecordStep(t.Context(), stepOf(b.accept(t), 1, webhook.StateRetrying))
	require.NoError(t, err)
	asked := b.hold(t, b.accept(t), nobody, webhook.ReasonBacklog)
	_, _, err = b.command(t, asked.DeliveryID, webhook.CommandCancel)
	require.NoError(t, err)

	found, err := b.HeldEndpoints(t.Context(), webhook.EndpointID{}, 10)
	require.NoError(t, err)
	require.Equal(t, []webhook.HeldEndpoint{{ID: endpoint, Faulty: true}}, found)
	found, err = b.HeldEndpoints(t.Context(), endpoint, 10)
	require.NoError(t, err)
	require.Empty(t, found, "after it there is none")

	starts, err := b.ReleaseHeld(t.Context(), endpoint, 3)
	require.NoError(t, err)
	require.Equal(t, startIDs(held[:3]), startIDs(starts), "the oldest first")
	for _, start := range starts {
		require.NotNil(t, start.Resume)
		require.Equal(t, webhook.StateHeld, start.Resume.State)
		require.Equal(t, 1, start.Resume.Seq)
	}
	starts, err = b.ReleaseHeld(t.Context(), endpoint, 10)
	require.NoError(t, err)
	require.Equal(t, startIDs(held[3:]), startIDs(starts), "those are on their way")
	starts, err = b.ReleaseHeld(t.Context(), endpoint, 10)
	require.NoError(t, err)
	require.Empty(t, starts)

	// The relay makes up for a caller that died, and hands out where they stand.
	_, err = b.Pool().Exec(t.Context(), `update outbox set relay_at = now()`)
	require.NoError(t, err)
	relayed, err := b.TakeStarts(t.Context(), 10)
	require.NoError(t, err)
	for _, start := range relayed {
		if start.DeliveryID == asked.DeliveryID {
			continue
		}
		require.Contains(t, startIDs(held), start.DeliveryID)
		require.NotNil(t, start.Resume)
		require.Equal(t, 1, start.Resume.Seq)
	}
	rows := b.count(t, "outbox")
	// The first record of whoever goes on with it ends its outbox row, and it is held no more.
	claim := claimOf(held[0], 1, "me", time.Minute)
	claim.WorkflowID = one
	begun, err := b.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.True(t, begun.Granted)
	require.Equal(t, one, begun.Status.WorkflowID)
	require.NotNil(t, begun.Payload)
	require.Equal(t, rows-1, b.count(t, "outbox"))
}

// Nothing is released for an endpoint that is not active.
func TestBacklogOfAPausedEndpointStays(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	b.hold(t, b.accept(t), nobody, webhook.ReasonBacklog)
	_, err := b.PauseEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID)
	require.NoError(t, err)
	starts, err := b.ReleaseHeld(t.Context(), b.endpoint.ID, 10)
	require.NoError(t, err)
	require.Empty(t, starts)
	found, err := b.HeldEndpoints(t.Context(), webhook.EndpointID{}, 10)
	require.NoError(t, err)
	require.Empty(t, found)
}

// Several processes that release at once release each delivery once.
func TestBacklogIsReleasedOnceByMany(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	for range 40 {
		b.hold(t, b.accept(t), nobody, webhook.ReasonBacklog)
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
				starts, err := b.ReleaseHeld(t.Context(), b.endpoint.ID, 3)
				mine.ids = append(mine.ids, startIDs(starts)...)
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
	require.Equal(t, 40, b.count(t, "outbox"))
}

// A resume lets go of what is held by the outbox, too, also where a row of an earlier build names a
// workflow.
func TestReplayReleasesWhatIsHeld(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	start := b.hold(t, b.accept(t), nobody, webhook.ReasonPaused)
	carried := b.accept(t)
	b.hold(t, carried, carried.WorkflowID(), webhook.ReasonPaused)
	_, err := b.PauseEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID)
	require.NoError(t, err)
	_, r, err := b.ResumeEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID, 60)
	require.NoError(t, err)
	standing, err := b.ReleaseReplay(t.Context(), webhook.ReplayBatch{ID: r.ID, Seq: 1, Limit: 10, Now: time.Now()})
	require.NoError(t, err)
	require.EqualValues(t, 2, standing.Released)
	relayed, err := b.TakeStarts(t.Context(), 10)
	require.NoError(t, err)
	require.ElementsMatch(t, []webhook.DeliveryID{start.DeliveryID, carried.DeliveryID}, startIDs(relayed))
	for _, start := range relayed {
		require.NotNil(t, start.Resume)
	}
}

// What is held is released at its give-up time, whatever it waits for.
func TestReleaseExpired(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	expired, young := b.hold(t, b.accept(t), nobody, webhook.ReasonPaused), b.hold(t, b.accept(t), nobody, webhook.ReasonBacklog)
	_, err := b.Pool().Exec(t.Context(), `update deliveries set give_up_at = now() - interval '1 second' where id <> $1`, young.DeliveryID)
	require.NoError(t, err)
	starts, err := b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []webhook.DeliveryID{expired.DeliveryID}, startIDs(starts))
	require.NotNil(t, starts[0].Resume)
	starts, err = b.ReleaseExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, starts, "it is on its way")
}

// What somebody has the right to send is on its way, and not held, until that has run out.
func TestWhatIsBeingSentIsNotHeld(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	start := b.hold(t, b.accept(t), nobody, webhook.ReasonBacklog)
	released := func() []webhook.DeliveryID {
		starts, err := b.ReleaseHeld(t.Context(), b.endpoint.ID, 10)
		require.NoError(t, err)
		return startIDs(starts)
	}
	require.Equal(t, []webhook.DeliveryID{start.DeliveryID}, released())
	claim := claimOf(start, 1, "me", time.Minute)
	claim.WorkflowID = one
	begun, err := b.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.True(t, begun.Granted)
	require.Empty(t, released())
	_, err = b.Pool().Exec(t.Context(), `update deliveries set owner_until = now() - interval '1 second'`)
	require.NoError(t, err)
	require.Equal(t, []webhook.DeliveryID{start.DeliveryID}, released())
}
