package events_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for range 4 {
		b.AddEndpoint(t, "order.*")
	}
	a, err := b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	require.NoError(t, err)
	require.Len(t, a.Deliveries, 5)
	for i, state := range []webhook.State{webhook.StateDelivered, webhook.StateDeadLettered, webhook.StateCancelled, webhook.StateRetrying} {
		b.EndIn(t, a.Deliveries[i], state)
	}
	waiting, err := b.Accept(t.Context(), storetest.NewEvent("order.sent"))
	require.NoError(t, err)
	unmatched, err := b.Accept(t.Context(), storetest.NewEvent("invoice.sent"))
	require.NoError(t, err)
	ids := []webhook.EventID{a.Event.ID, waiting.Event.ID, unmatched.Event.ID}
	got, err := b.Outcomes(t.Context(), "acme", ids)
	require.NoError(t, err)
	require.Equal(t, map[webhook.EventID]webhook.EventOutcomes{
		a.Event.ID:       {Delivered: 1, Waiting: 2, Failed: 1, Cancelled: 1}, // one is only in the outbox
		waiting.Event.ID: {Waiting: len(waiting.Deliveries)},
	}, got)

	b.Exec(t, `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at)
		select (left($1::uuid::text, 18) || '-8000-' || lpad(to_hex(n), 12, '0'))::uuid, $1, md5(n::text)::uuid, 'acme', 'a.b', now(), 1, 1, 3, now()
		from generate_series(1, 300) n`, unmatched.Event.ID)
	got, err = b.Outcomes(t.Context(), "acme", ids)
	require.NoError(t, err)
	require.Equal(t, webhook.EventOutcomes{Delivered: webhook.MaxOutcomes, More: true}, got[unmatched.Event.ID])
	got, err = b.Outcomes(t.Context(), "other", ids)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestExternalIDs(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	named, plain := storetest.NewEvent("order.paid"), storetest.NewEvent("order.paid")
	named.ExternalID = "order-17"
	a, err := b.Accept(t.Context(), named)
	require.NoError(t, err)
	other, err := b.Accept(t.Context(), plain)
	require.NoError(t, err)
	ids := []webhook.EventID{a.Event.ID, other.Event.ID}
	got, err := b.ExternalIDs(t.Context(), "acme", ids)
	require.NoError(t, err)
	require.Equal(t, map[webhook.EventID]string{a.Event.ID: "order-17"}, got)
	got, err = b.ExternalIDs(t.Context(), "other", ids)
	require.NoError(t, err)
	require.Empty(t, got)
}
