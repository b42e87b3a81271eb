package deliveries_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// R9: a locked row holds up no other.
func TestALockedRowHarmsNoOther(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	const n, locked = 40, 17
	items := make([]*deliveries.Recording, n)
	for i := range items {
		start := b.AcceptOne(t)
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
		require.NoError(t, err)
		items[i] = &deliveries.Recording{Step: storetest.StepOf(start, 2, webhook.StateDelivered)}
	}
	release := b.LockRow(t, items[locked].Step.DeliveryID)
	defer release()
	for i, err := range storetest.HandInTogether(t, "record delivery", b.FlushRecords, items) {
		if i == locked {
			require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err), "%v", err)
			continue
		}
		require.NoError(t, err, "%d", i)
		require.Equal(t, webhook.StateDelivered, items[i].Status.State)
	}
}

// An item that is alone waits out what locks a whole table for a moment.
func TestALockedRowIsWaitedForAWhile(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	release := b.LockRow(t, start.DeliveryID)
	flushes := 0
	w := postgres.NewWriter("record delivery", deliveries.RecordWeight, func(ctx context.Context, items []*deliveries.Recording) error {
		flushes++
		if flushes == 2 {
			release()
		}
		return b.FlushRecords(ctx, items)
	}, nil)
	defer w.Stop()
	require.NoError(t, w.Do(t.Context(), &deliveries.Recording{Step: storetest.StepOf(start, 2, webhook.StateDelivered)}))
	require.Equal(t, 2, flushes)
}
