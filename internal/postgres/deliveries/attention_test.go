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

// What was given up within the hour counts, however many newer deliveries were given up before it.
func TestOpenCountsGoByTheEnd(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	old := b.Waiting(t, webhook.StateDeadLettered, "http_401", time.Time{})
	newer := b.Waiting(t, webhook.StateDeadLettered, "http_401", time.Time{})
	b.Exec(t, `
		insert into deliveries select (jsonb_populate_record(d, jsonb_build_object('id', gen_random_uuid()))).*
		from deliveries d, generate_series(1, $2) where d.id = $1`, newer.DeliveryID, webhook.MaxAttention+100)
	b.Exec(t, `update deliveries set completed_at = now() - interval '2 hours' where id <> $1`, old.DeliveryID)
	b.Exec(t, `update deliveries set completed_at = now() - interval '5 minutes' where id = $1`, old.DeliveryID)
	n, err := b.OpenCounts(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, webhook.OpenCounts{DeadLetters: webhook.MaxAttention, LastHour: 1}, n)

	b.Exec(t, `update deliveries set completed_at = now()`)
	n, err = b.OpenCounts(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, webhook.OpenCounts{DeadLetters: webhook.MaxAttention, LastHour: webhook.MaxAttention}, n)

	b.Exec(t, `update deliveries set event_type = $1 where id <> $2`, webhook.NotificationType, old.DeliveryID)
	n, err = b.OpenCounts(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, webhook.OpenCounts{DeadLetters: 1, LastHour: 1}, n, "messages to the tenant's own chats do not count")
}
