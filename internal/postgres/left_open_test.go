package postgres

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// A delivery that somebody holds keeps nobody from deleting its endpoint; what is
// left open then is cancelled by the maintenance.
func TestDeletingAnEndpointDoesNotWaitForItsDeliveries(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	start := b.accept(t)
	_, err := b.Record(t.Context(), stepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	release := b.lockRow(t, start.DeliveryID)
	require.NoError(t, b.DeleteEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID))
	asked, err := b.Unanswered(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, asked)
	release()

	ctx, end := context.WithCancel(t.Context())
	var maintenance sync.WaitGroup
	maintenance.Go(func() { b.Maintain(ctx) })
	defer maintenance.Wait()
	defer end()
	require.Eventually(t, func() bool {
		asked, err = b.Unanswered(t.Context(), 10)
		return err == nil && len(asked) == 1
	}, eventually, poll)
	require.Equal(t, webhook.ReasonEndpointDeleted, asked[0].Command.Reason)
}

func TestCancelLeftOpenAsksOnce(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	start := b.accept(t)
	_, err := b.Record(t.Context(), stepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	require.NoError(t, b.cancelLeftOpen(t.Context()))
	standing, err := b.Standing(t.Context(), start.DeliveryID)
	require.NoError(t, err)
	require.Zero(t, standing.Command, "its endpoint is there")

	// As a process leaves it that died right after the deletion.
	_, err = b.pool.Exec(t.Context(), `update endpoints set deleted_at = now() where id = $1`, b.endpoint.ID)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, b.cancelLeftOpen(t.Context()))
		standing, err = b.Standing(t.Context(), start.DeliveryID)
		require.NoError(t, err)
		require.Equal(t, webhook.PendingCommand{ID: 1, Command: webhook.CommandCancel, Reason: webhook.ReasonEndpointDeleted}, standing.Command)
	}
}

// More replays than connections, and an endpoint that is not in the cache: each
// holds a connection, and none may wait for another's.
func TestReplaysDoNotWaitForEachOthersConnections(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	const n = 16 // four times the pool
	var starts [n]webhook.Start
	for i := range starts {
		starts[i] = b.accept(t)
		_, err := b.Record(t.Context(), stepOf(starts[i], 1, webhook.StateDeadLettered))
		require.NoError(t, err)
	}
	b.endpointCache.forgetAll()
	var (
		all  sync.WaitGroup
		errs [n]error
	)
	for i := range starts {
		all.Go(func() {
			_, _, errs[i] = b.Command(context.WithoutCancel(t.Context()), testActor(), "acme", starts[i].DeliveryID,
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
	b := setupDelivery(t)
	start := b.accept(t)
	retrying := stepOf(start, 1, webhook.StateRetrying)
	retrying.DueAt = time.Now().Add(time.Hour)
	_, err := b.Record(t.Context(), retrying)
	require.NoError(t, err)
	_, _, err = b.command(t, start.DeliveryID, webhook.CommandRetry)
	require.NoError(t, err)
	_, cancel, err := b.command(t, start.DeliveryID, webhook.CommandCancel)
	require.NoError(t, err, "a cancel overrules a retry")
	_, _, err = b.command(t, start.DeliveryID, webhook.CommandRetry)
	require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err))
	standing, err := b.Standing(t.Context(), start.DeliveryID)
	require.NoError(t, err)
	require.Equal(t, cancel, standing.Command)
}
