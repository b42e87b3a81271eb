package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Dead letters are counted as the lists show them: what was sent again since is none.
func TestOpenCounts(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.Waiting(t, webhook.StateRetrying, "", time.Now().Add(time.Minute))
	old, recent, again := b.Waiting(t, webhook.StateDeadLettered, "http_401", time.Time{}), b.Waiting(t, webhook.StateDeadLettered, "http_401", time.Time{}),
		b.Waiting(t, webhook.StateDeadLettered, "http_401", time.Time{})
	age := func(d webhook.DeliveryID, ago string) {
		b.Exec(t, `update deliveries set completed_at = now() - $2::interval where id = $1`, d, ago)
	}
	age(old.DeliveryID, "2 hours")
	age(recent.DeliveryID, "10 minutes")
	age(again.DeliveryID, "5 minutes")
	n, err := b.OpenCounts(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, webhook.OpenCounts{Waiting: 1, DeadLetters: 3, LastHour: 2}, n)

	b.Exec(t, `update deliveries set state = 3 where id = $1`, again.DeliveryID)
	n, err = b.OpenCounts(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, webhook.OpenCounts{Waiting: 1, DeadLetters: 2, LastHour: 1}, n)
}
