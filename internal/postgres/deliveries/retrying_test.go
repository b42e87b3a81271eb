package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestRetryDepth(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	depth := func() deliveries.RetryDepth {
		t.Helper()
		d, err := b.RetryDepth(t.Context())
		require.NoError(t, err)
		return d
	}
	require.Equal(t, deliveries.RetryDepth{}, depth())

	b.Waiting(t, webhook.StateRetrying, "", time.Now())
	b.Waiting(t, webhook.StateRetrying, "", time.Now())
	b.Waiting(t, webhook.StatePending, webhook.ReasonRate, time.Now())
	require.Equal(t, deliveries.RetryDepth{Deliveries: 2, Largest: 2}, depth())

	b.Exec(t, `update deliveries set created_at = now() - interval '25 hours'`)
	require.Equal(t, deliveries.RetryDepth{Deliveries: 2, Largest: 2, OverDay: 2}, depth())
	b.Exec(t, `update deliveries set run = 2`)
	require.Equal(t, deliveries.RetryDepth{Deliveries: 2, Largest: 2}, depth(), "a replay began later")

	other := webhook.NewEndpointID()
	b.Exec(t, `update deliveries set endpoint_id = $1 where id = (select id from deliveries where state = 1 limit 1)`, [16]byte(other))
	require.Equal(t, deliveries.RetryDepth{Deliveries: 2, Largest: 1}, depth())
}

// The age of what is held is that of its event.
func TestHeldDepth(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	n, oldest, err := b.HeldDepth(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, oldest)

	start := b.Hold(t, b.AcceptOne(t), "", webhook.ReasonPaused)
	b.Hold(t, b.AcceptOne(t), "", webhook.ReasonPaused)
	n, oldest, err = b.HeldDepth(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	require.WithinDuration(t, start.DeliveryID.Time(), oldest, time.Second)
}
