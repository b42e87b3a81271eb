package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// foreign are deliveries that are not stored, made of one that is: what somebody writes who starts workflows by hand.
func foreign(start webhook.Start) map[string]webhook.Start {
	change := func(edit func(*webhook.Start)) webhook.Start {
		other := start
		edit(&other)
		other.DeliveryID = webhook.DeliveryIDOf(other.EventID, other.EndpointID)
		return other
	}
	return map[string]webhook.Start{
		"another tenant":   change(func(s *webhook.Start) { s.TenantID = "other" }),
		"another type":     change(func(s *webhook.Start) { s.EventType = "order.refunded" }),
		"another endpoint": change(func(s *webhook.Start) { s.EndpointID = webhook.NewEndpointID() }),
		"another event":    change(func(s *webhook.Start) { s.EventID = webhook.NewEventID() }),
		"another tenant's event to one's own endpoint": change(func(s *webhook.Start) {
			s.TenantID, s.EndpointID = "other", webhook.NewEndpointID()
		}),
	}
}

// A claim or a step of a delivery that is neither in the outbox nor a row is refused, and nothing is written.
func TestOnlyStoredDeliveriesAreWritten(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	waiting, claimed := b.AcceptOne(t), b.AcceptOne(t)
	_, err := b.Claim(t.Context(), storetest.ClaimOf(claimed, 0, "me", time.Minute))
	require.NoError(t, err)
	for _, start := range []webhook.Start{waiting, claimed} {
		rows, outbox := b.Count(t, "deliveries"), b.Count(t, "outbox")
		for name, other := range foreign(start) {
			got, err := b.Claim(t.Context(), storetest.ClaimOf(other, 0, "me", time.Minute))
			require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err), name)
			require.Zero(t, got, name)
			for _, state := range []webhook.State{
				webhook.StatePending, webhook.StateHeld, webhook.StateDeadLettered, webhook.StateCancelled, webhook.StateDelivered,
			} {
				status, err := b.RecordStep(t.Context(), storetest.StepOf(other, 1, state))
				require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err), "%s, %s", name, state)
				require.Zero(t, status)
			}
			_, err = b.ClaimStatus(t.Context(), other.Ref, "another")
			require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err), name)
			_, err = b.Reopen(t.Context(), other.Ref, 1, "by hand")
			require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err), name)
		}
		require.Equal(t, rows, b.Count(t, "deliveries"))
		require.Equal(t, outbox, b.Count(t, "outbox"))
		got, err := b.Claim(t.Context(), storetest.ClaimOf(start, 0, "me", time.Minute))
		require.NoError(t, err)
		require.True(t, got.Granted)
		require.NotEmpty(t, got.Payload)
	}
}

// Claims and steps of deliveries that are not stored do no harm to those that are written together with them.
func TestAForeignClaimHarmsNoOther(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	var claims []*deliveries.Claiming
	for _, other := range foreign(start) {
		claims = append(claims, &deliveries.Claiming{Claim: storetest.ClaimOf(other, 0, "me", time.Minute)})
	}
	claims = append(claims, &deliveries.Claiming{Claim: storetest.ClaimOf(start, 0, "me", time.Minute)})
	require.NoError(t, b.FlushClaims(t.Context(), claims)) // sorts them
	for _, c := range claims {
		require.Equal(t, c.Claim.Ref == start.Ref, c.Known, "%+v", c.Claim.Ref)
		require.Equal(t, c.Claim.Ref == start.Ref, c.Granted, "%+v", c.Claim.Ref)
		require.Equal(t, c.Claim.Ref == start.Ref, c.Payload.Bytes != nil, "%+v", c.Claim.Ref)
	}

	steps := []*deliveries.Recording{{Step: storetest.StepOf(start, 1, webhook.StateDelivered)}}
	for _, other := range foreign(start) {
		steps = append(steps, &deliveries.Recording{Step: storetest.StepOf(other, 2, webhook.StateCancelled)})
	}
	require.NoError(t, b.FlushRecords(t.Context(), steps))
	require.Equal(t, webhook.StateDelivered, steps[0].Status.State)
	for _, r := range steps[1:] {
		require.Zero(t, r.Status)
	}
	require.Equal(t, 1, b.Count(t, "deliveries"))
}

// A payload goes to nobody but its tenant, also by a row that names another one's event: it was written before such rows were refused.
func TestAForeignRowGetsNoPayload(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	own := start
	own.TenantID, own.EndpointID = "other", webhook.NewEndpointID()
	own.DeliveryID = webhook.DeliveryIDOf(own.EventID, own.EndpointID)
	b.Exec(t, `insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at)
		values ($1, $2, $3, $4, $5, now(), 1, 0, 0, now() + interval '1 day')`, own.DeliveryID, own.EventID, own.EndpointID, own.TenantID, own.EventType)
	got, err := b.Claim(t.Context(), storetest.ClaimOf(own, 0, "me", time.Minute))
	require.NoError(t, err)
	require.True(t, got.Granted)
	require.Nil(t, got.Payload)
}
