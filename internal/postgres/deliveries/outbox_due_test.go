package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// What a process that has ended was about to start is due at once. What waits for longer is not: it has been taken, in vain.
func TestTheOutboxOfAProcessThatHasEnded(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	b.FillOutbox(t, 1, 1, deliveries.RelayAfter+time.Minute)
	require.NoError(t, b.MakeRecentDue(t.Context()))
	due, err := b.TakeStarts(t.Context(), "test", 10)
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, start.DeliveryID, due[0].DeliveryID)
}

// What a process that stops leaves is due at once; no other row is.
func TestTheOutboxOfAProcessThatStops(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	left := b.AcceptOne(t)
	b.AcceptOne(t)
	require.NoError(t, b.MakeDue(t.Context(), []webhook.DeliveryID{left.DeliveryID, webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())}))
	due, err := b.TakeStarts(t.Context(), "test", 10)
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, left.DeliveryID, due[0].DeliveryID)
}
