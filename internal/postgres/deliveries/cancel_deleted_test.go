package deliveries_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// A locked delivery does not delay the deletion of its endpoint. Maintenance cancels the deliveries that remain open.
func TestDeletingAnEndpointDoesNotWaitForItsDeliveries(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	release := b.LockRow(t, start.DeliveryID)
	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))
	asked, err := b.TakeCommands(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, asked)
	release()

	ctx, end := context.WithCancel(t.Context())
	var maintenance sync.WaitGroup
	maintenance.Go(func() { b.Maintain(ctx) })
	defer maintenance.Wait()
	defer end()
	require.Eventually(t, func() bool {
		asked, err = b.TakeCommands(t.Context(), 10)
		return err == nil && len(asked) == 1
	}, storetest.Eventually, storetest.Poll)
	require.Equal(t, webhook.ReasonEndpointDeleted, asked[0].Command.Reason)
}

func TestCancelRemainingAsksOnce(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	require.NoError(t, b.CancelRemaining(t.Context()))
	status, err := b.DeliveryStatus(t.Context(), start.Ref)
	require.NoError(t, err)
	require.Zero(t, status.Command, "its endpoint is there")

	// As a process leaves it that died right after the deletion.
	_, err = b.Pool().Exec(t.Context(), `update endpoints set deleted_at = now() where id = $1`, b.Subscriber.ID)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, b.CancelRemaining(t.Context()))
		status, err = b.DeliveryStatus(t.Context(), start.Ref)
		require.NoError(t, err)
		require.Equal(t, webhook.PendingCommand{ID: 1, Command: webhook.CommandCancel, Reason: webhook.ReasonEndpointDeleted}, status.Command)
	}
}

// Held deliveries are released, to end in shared workflows. Deliveries that have a workflow, or a command, get a cancel each. Nothing is done
// twice.
func TestADeletedEndpointsHeldDeliveriesAreReleased(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	var held []webhook.DeliveryID
	for _, reason := range []string{webhook.ReasonPaused, webhook.ReasonBacklog, webhook.ReasonDisabled} {
		held = append(held, b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, reason).DeliveryID)
	}
	asked := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
	_, _, err := b.CommandOne(t, asked.DeliveryID, webhook.CommandRetry)
	require.NoError(t, err)
	under := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
	_, err = b.Pool().Exec(t.Context(), `update deliveries set owner = gen_random_uuid(), owner_until = now() + interval '1 minute' where id = $1`,
		under.DeliveryID)
	require.NoError(t, err)

	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))
	for range 2 {
		require.NoError(t, b.CancelRemaining(t.Context()))
		unanswered, err := b.TakeCommands(t.Context(), 10)
		require.NoError(t, err)
		_, err = b.Pool().Exec(t.Context(), `update deliveries set commanded_at = now() - interval '1 hour' where command <> 0`)
		require.NoError(t, err) // so that they are handed out again
		var ids []webhook.DeliveryID
		for _, c := range unanswered {
			require.Equal(t, webhook.CommandCancel, c.Command.Command)
			require.Equal(t, webhook.ReasonEndpointDeleted, c.Command.Reason)
			ids = append(ids, c.Delivery.DeliveryID)
		}
		require.ElementsMatch(t, []webhook.DeliveryID{asked.DeliveryID, under.DeliveryID}, ids)
		require.Len(t, storetest.Query[int64](t, b.Stores, `select command_id from deliveries where command <> 0 and command_id = 1`), 1)
		require.Zero(t, b.Count(t, "outbox"))
	}
	released := b.Released(t, 10)
	require.ElementsMatch(t, held, storetest.StartIDs(released))
	for _, start := range released {
		require.NotNil(t, start.Resume)
		require.Equal(t, webhook.StateHeld, start.Resume.State)
	}
}

// More replays than connections, and an endpoint that is not in the cache: each
// holds a connection, and none may wait for another's.
func TestReplaysDoNotWaitForEachOthersConnections(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	const n = 16 // four times the pool
	var starts [n]webhook.Start
	for i := range starts {
		starts[i] = b.AcceptOne(t)
		_, err := b.RecordStep(t.Context(), storetest.StepOf(starts[i], 1, webhook.StateDeadLettered))
		require.NoError(t, err)
	}
	b.Endpoints.Cache().ForgetAll()
	var (
		all  sync.WaitGroup
		errs [n]error
	)
	for i := range starts {
		all.Go(func() {
			_, _, errs[i] = b.Command(context.WithoutCancel(t.Context()), storetest.TestActor(), "acme", starts[i].DeliveryID,
				webhook.PendingCommand{Command: webhook.CommandReplay})
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func TestACancelIsNotOverwritten(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	retrying := storetest.StepOf(start, 1, webhook.StateRetrying)
	retrying.DueAt = time.Now().Add(time.Hour)
	_, err := b.RecordStep(t.Context(), retrying)
	require.NoError(t, err)
	_, _, err = b.CommandOne(t, start.DeliveryID, webhook.CommandRetry)
	require.NoError(t, err)
	_, cancel, err := b.CommandOne(t, start.DeliveryID, webhook.CommandCancel)
	require.NoError(t, err, "a cancel overrules a retry")
	_, _, err = b.CommandOne(t, start.DeliveryID, webhook.CommandRetry)
	require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err))
	status, err := b.DeliveryStatus(t.Context(), start.Ref)
	require.NoError(t, err)
	require.Equal(t, cancel, status.Command)
}

// The cancels of a deleted endpoint are due at once, but behind the commands of others that are due already.
func TestCancelsOfADeletedEndpointWaitTheirTurn(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	other := b.AddEndpoint(t, "invoice.*")
	accepted, err := b.Accept(t.Context(), storetest.NewEvent("invoice.paid"))
	require.NoError(t, err)
	asked := accepted.Deliveries[0]
	for _, start := range []webhook.Start{asked, b.AcceptOne(t), b.AcceptOne(t)} {
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
		require.NoError(t, err)
	}
	_, _, err = b.CommandOne(t, asked.DeliveryID, webhook.CommandCancel)
	require.NoError(t, err)
	b.Exec(t, `update deliveries set commanded_at = now() - interval '1 minute' where endpoint_id = $1`, other.ID)
	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))
	first, err := b.TakeCommands(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, asked.DeliveryID, first[0].Delivery.DeliveryID)
	rest, err := b.TakeCommands(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, rest, 2)
}
