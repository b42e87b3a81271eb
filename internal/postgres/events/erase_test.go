package events_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// old makes an event older, as if no process could have its payload in memory any more.
func old(t *testing.T, b *storetest.Bundle, id webhook.EventID) webhook.EventID {
	t.Helper()
	earlier := webhook.NewEventID().Later(-time.Minute)
	b.Exec(t, `update events set id = $2 where id = $1`, id, earlier)
	_, err := b.Pool().Exec(t.Context(), `update idempotency_keys set event_id = $2 where event_id = $1`, id, earlier)
	require.NoError(t, err)
	for _, table := range []string{"deliveries", "outbox", "attempts"} {
		column := "id"
		if table != "deliveries" {
			column = "delivery_id"
		}
		_, err = b.Pool().Exec(t.Context(), `update `+table+` set `+column+` = $2 where `+column+` = $1`,
			webhook.DeliveryIDOf(id, b.Subscriber.ID), webhook.DeliveryIDOf(earlier, b.Subscriber.ID))
		require.NoError(t, err)
		if table != "attempts" {
			_, err = b.Pool().Exec(t.Context(), `update `+table+` set event_id = $2 where event_id = $1`, id, earlier)
			require.NoError(t, err)
		}
	}
	return earlier
}

func erase(t *testing.T, b *storetest.Bundle, e webhook.PayloadErasure) ([]webhook.ErasedPayload, []webhook.CommandedDelivery, error) {
	t.Helper()
	return b.ErasePayloads(t.Context(), storetest.TestActor(), "acme", e)
}

func TestErasingRemovesThePayloadAndWhatEchoesIt(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	in := storetest.NewEvent("order.paid")
	in.ExternalID = "order-17"
	accepted, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	start := b.EndIn(t, accepted.Deliveries[0], webhook.StateDelivered)
	other := b.EndIn(t, b.AcceptOne(t), webhook.StateDelivered)

	erased, cancelled, err := erase(t, b, webhook.PayloadErasure{ExternalIDs: []string{"order-17", "nobody"}})
	require.NoError(t, err)
	require.Empty(t, cancelled)
	require.Len(t, erased, 2)
	require.Equal(t, start.EventID, erased[0].EventID)
	require.Equal(t, webhook.PayloadErased, erased[0].Removed.Reason)
	require.Equal(t, webhook.ErasedPayload{ExternalID: "nobody"}, erased[1])

	require.Equal(t, []string{""}, storetest.Query[string](t, b.Stores,
		`select encode(payload || payload_sha256, 'hex') from events where id = $1`, start.EventID))
	_, err = b.Payload(t.Context(), "acme", start.EventID)
	storetest.RequireCode(t, webhook.CodeRemoved, err)
	attempts, err := b.Attempts(t.Context(), "acme", start.DeliveryID, 10, 0)
	require.NoError(t, err)
	require.Len(t, attempts, 1)
	require.Empty(t, attempts[0].ResponseBody)
	require.Empty(t, attempts[0].ResponseHeaders)
	require.Empty(t, attempts[0].RequestHeaders)
	event, _, err := b.Event(t.Context(), "acme", start.EventID)
	require.NoError(t, err)
	require.Equal(t, len(in.Payload), event.PayloadSize)
	require.Equal(t, erased[0].Removed, event.Removed)

	// Nothing of another event, and the same event once more.
	_, err = b.Payload(t.Context(), "acme", other.EventID)
	require.NoError(t, err)
	attempts, err = b.Attempts(t.Context(), "acme", other.DeliveryID, 10, 0)
	require.NoError(t, err)
	require.NotEmpty(t, attempts[0].ResponseBody)
	again, _, err := erase(t, b, webhook.PayloadErasure{IDs: []webhook.EventID{start.EventID}})
	require.NoError(t, err)
	require.Equal(t, erased[0].Removed, again[0].Removed)
	require.Equal(t, []string{start.EventID.String()}, storetest.Query[string](t, b.Stores,
		`select subject from audit_log where action = 'event.erase_payload' and tenant_id = 'acme'`), "one entry for one erasure")

	// It cannot be sent again, and posting it again gets the first answer.
	_, _, err = b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
	storetest.RequireCode(t, webhook.CodeConflict, err)
	require.ErrorContains(t, err, "erased on request")
	repeated, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	require.True(t, repeated.Repeated)
	require.Equal(t, accepted.Event, repeated.Event)
}

func TestErasingIsRefusedWhileADeliveryIsOpen(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	fresh := b.AcceptOne(t)
	_, _, err := erase(t, b, webhook.PayloadErasure{IDs: []webhook.EventID{fresh.EventID}})
	storetest.RequireCode(t, webhook.CodeConflict, err)
	require.ErrorContains(t, err, fresh.DeliveryID.String()+" is pending")
	_, _, err = erase(t, b, webhook.PayloadErasure{IDs: []webhook.EventID{fresh.EventID}, Cancel: true})
	require.ErrorContains(t, err, "may be being sent", "its payload may be in the memory of a process")

	// One waits in the outbox, one is being sent, one waits for a retry.
	waiting, sending, retrying := b.AcceptOne(t), b.AcceptOne(t), b.AcceptOne(t)
	_, err = b.Claim(t.Context(), storetest.ClaimOf(sending, 0, "worker", time.Minute))
	require.NoError(t, err)
	_, err = b.RecordStep(t.Context(), storetest.StepOf(retrying, 1, webhook.StateRetrying))
	require.NoError(t, err)
	ids := []webhook.EventID{old(t, b, waiting.EventID), old(t, b, retrying.EventID)}
	busy := old(t, b, sending.EventID)
	_, _, err = erase(t, b, webhook.PayloadErasure{IDs: append([]webhook.EventID{busy}, ids...), Cancel: true})
	storetest.RequireCode(t, webhook.CodeConflict, err)
	require.ErrorContains(t, err, "may be being sent")
	for _, id := range append(ids, busy) {
		_, err := b.Payload(t.Context(), "acme", id)
		require.NoError(t, err, "all or none")
	}
	require.Zero(t, b.CountOf(t, "deliveries where command <> 0"))
	_, cancelled, err := erase(t, b, webhook.PayloadErasure{IDs: ids, Cancel: true})
	require.NoError(t, err)
	require.Len(t, cancelled, 2)
	for _, c := range cancelled {
		require.Equal(t, webhook.CommandCancel, c.Command.Command)
		require.Equal(t, webhook.ReasonPayloadErased, c.Command.Reason)
		claim := storetest.ClaimOf(webhook.Start{Ref: c.Delivery.Ref, Run: 1}, c.Delivery.Seq, "worker", time.Minute)
		result, err := b.Claim(t.Context(), claim)
		require.NoError(t, err)
		require.Equal(t, webhook.CommandCancel, result.Status.Command.Command, "the workflow finds the cancel")
		require.Nil(t, result.Payload)
	}
}

func TestErasingIsOfOneTenant(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	in := storetest.NewEvent("order.paid")
	in.ExternalID = "order-17"
	accepted, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	b.EndIn(t, accepted.Deliveries[0], webhook.StateDelivered)
	require.NoError(t, b.PutNamed(t, "other"))
	_, _, err = b.ErasePayloads(t.Context(), storetest.TestActor(), "other", webhook.PayloadErasure{IDs: []webhook.EventID{accepted.Event.ID}})
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	erased, _, err := b.ErasePayloads(t.Context(), storetest.TestActor(), "other", webhook.PayloadErasure{ExternalIDs: []string{"order-17"}})
	require.NoError(t, err)
	require.True(t, erased[0].EventID.IsZero())
	_, err = b.Payload(t.Context(), "acme", accepted.Event.ID)
	require.NoError(t, err)
}

func TestReplaysSkipRemovedPayloads(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	dead, kept := b.EndIn(t, b.AcceptOne(t), webhook.StateDeadLettered), b.EndIn(t, b.AcceptOne(t), webhook.StateDeadLettered)
	_, _, err := erase(t, b, webhook.PayloadErasure{IDs: []webhook.EventID{dead.EventID}})
	require.NoError(t, err)
	for _, source := range []webhook.ReplaySource{webhook.ReplayDeadLetters, webhook.ReplayEvents} {
		r, err := b.CreateReplay(t.Context(), storetest.TestActor(), webhook.Replay{
			TenantID: "acme", Source: source, Asked: 10,
			Filter: webhook.ReplayFilter{EndpointID: b.Subscriber.ID, Since: time.Now().Add(-time.Hour)},
		})
		require.NoError(t, err)
		_, err = b.ReleaseReplay(t.Context(), webhook.ReplayBatch{ID: r.ID, Seq: 1, Limit: 10, Now: time.Now()})
		require.NoError(t, err)
		released := storetest.Query[[16]byte](t, b.Stores, `select id from deliveries where run = 2`)
		require.Equal(t, [][16]byte{[16]byte(kept.DeliveryID)}, released, source)
	}
}

// Payloads are read together: those that are kept, and never another tenant's.
func TestContents(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	kept, erased := b.AcceptOne(t), b.AcceptOne(t)
	b.EndIn(t, erased, webhook.StateDelivered)
	ids := []webhook.EventID{kept.EventID, erased.EventID, webhook.NewEventID()}
	_, _, err := b.ErasePayloads(t.Context(), storetest.TestActor(), "acme", webhook.PayloadErasure{IDs: ids[1:2]})
	require.NoError(t, err)
	contents, err := b.Contents(t.Context(), "acme", ids)
	require.NoError(t, err)
	require.Equal(t, map[webhook.EventID]webhook.Content{kept.EventID: {Payload: []byte(`{"order": 17}`)}}, contents)

	require.NoError(t, b.PutNamed(t, "other"))
	contents, err = b.Contents(t.Context(), "other", ids)
	require.NoError(t, err)
	require.Empty(t, contents)
}
