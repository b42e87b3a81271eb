package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
)

// A replay may store the delivery of an old event: it waits since then, not since the event.
func TestOutboxAgeIsSinceItWasStored(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.AcceptOne(t)
	b.Exec(t, `update outbox set created_at = now() - interval '3 days'`)
	n, oldest, err := b.OutboxDepth(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	require.WithinDuration(t, time.Now(), oldest, time.Minute)

	b.Exec(t, `update outbox set stored_at = now() - interval '2 hours'`)
	_, oldest, err = b.OutboxDepth(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(-2*time.Hour), oldest, time.Minute)
}
