package events_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestAcceptStoresEventAndOutboxTogether(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	deliverAt := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	in := storetest.NewEvent("order.paid")
	in.ExternalID, in.DeliverAt = "order-17", deliverAt
	accepted, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	require.False(t, accepted.Repeated)
	require.Len(t, accepted.Deliveries, 1)

	e, deliveries, err := b.Event(t.Context(), "acme", accepted.Event.ID)
	require.NoError(t, err)
	require.Equal(t, accepted.Event, e)
	require.Len(t, deliveries, 1)
	d := deliveries[0]
	require.Equal(t, accepted.Deliveries[0].Ref, d.Ref)
	require.Equal(t, webhook.StatePending, d.State)
	require.Equal(t, deliverAt, d.DueAt)
	require.Equal(t, deliverAt.Add(72*time.Hour), d.GiveUpAt, "counted from deliver_at, which is later than acceptance")
	require.Equal(t, d.Ref.WorkflowID(1), d.WorkflowID)

	payload, err := b.Payload(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, `{"order": 17}`, string(payload), "byte for byte")
}

func TestAcceptStoresWhatMatchesNothingWithTheReason(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	a, err := b.Accept(t.Context(), storetest.NewEvent("invoice.sent"))
	require.NoError(t, err)
	require.Empty(t, a.Deliveries)
	e, deliveries, err := b.Event(t.Context(), "acme", a.Event.ID)
	require.NoError(t, err)
	require.Equal(t, webhook.ReasonNoMatch, e.Reason)
	require.Empty(t, deliveries)
	require.Zero(t, b.Count(t, "outbox"))
}

// A process that sends reads the endpoints of an event, if they are few, while it is stored.
func TestAcceptExpectsWhatIsToBeSent(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, ok := b.Cache().Known(start.EndpointID)
	require.False(t, ok, "this one does not send")

	b.SendsDeliveries()
	b.AcceptOne(t)
	require.Eventually(t, func() bool {
		target, ok := b.Cache().Known(start.EndpointID)
		return ok && target.ID == start.EndpointID && len(target.Secrets) == 1
	}, storetest.Eventually, storetest.Poll)

	b.Cache().ForgetAll()
	for range events.MaxExpected {
		b.AddEndpoint(t, "order.*")
	}
	a, err := b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	require.NoError(t, err)
	require.Len(t, a.Deliveries, events.MaxExpected+1)
	require.Eventually(t, func() bool { return b.Cache().Filling() == 0 }, storetest.Eventually, storetest.Poll)
	for _, start := range a.Deliveries {
		_, ok := b.Cache().Known(start.EndpointID)
		require.False(t, ok)
	}
}

func TestAcceptMatchesNamedEndpoints(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	other := b.AddEndpoint(t, "nothing.else")
	in := storetest.NewEvent("order.paid")
	in.EndpointIDs = []webhook.EndpointID{other.ID}
	a, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, a.Deliveries, 1)
	require.Equal(t, other.ID, a.Deliveries[0].EndpointID, "whatever its event types")

	in.EndpointIDs = []webhook.EndpointID{webhook.NewEndpointID()}
	_, err = b.Accept(t.Context(), in)
	require.Equal(t, webhook.CodeInvalid, webhook.CodeOf(err))
	require.ErrorContains(t, err, "endpoint_ids")
	require.Equal(t, 1, b.Count(t, "events"), "nothing is stored of a refused event")
}

func TestAcceptRefusesAnUnknownTenant(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	in := storetest.NewEvent("order.paid")
	in.TenantID = "nobody"
	_, err := b.Accept(t.Context(), in)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	require.Zero(t, b.Count(t, "events"))
}

// The promise of the contract: matching sees every endpoint that was created
// before the event was posted, also when another process made it and no
// notification has come yet.
func TestAcceptSeesEndpointsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.AcceptOne(t) // fills the cache; there is no listener in this test
	other := &storetest.Bundle{Stores: storetest.OpenStore(t, b.Address)}
	added := other.AddEndpoint(t, "*")
	a, err := b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	require.NoError(t, err)
	require.Len(t, a.Deliveries, 2)
	require.Equal(t, added.ID, a.Deliveries[1].EndpointID)
}

func TestAcceptIsIdempotent(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for name, key := range map[string]func(*webhook.NewEvent, string){
		"external id":     func(e *webhook.NewEvent, key string) { e.ExternalID = key },
		"idempotency key": func(e *webhook.NewEvent, key string) { e.IdempotencyKey = key },
		"both":            func(e *webhook.NewEvent, key string) { e.ExternalID, e.IdempotencyKey = "x"+key, "y"+key },
	} {
		in := storetest.NewEvent("order.paid")
		in.BodySHA256 = sha256.Sum256([]byte("body"))
		key(&in, name)
		first, err := b.Accept(t.Context(), in)
		require.NoError(t, err, name)
		before := b.Count(t, "events")
		again, err := b.Accept(t.Context(), in)
		require.NoError(t, err, name)
		require.True(t, again.Repeated, name)
		require.Equal(t, first.Event, again.Event, name)
		require.Equal(t, first.Deliveries[0].Ref, again.Deliveries[0].Ref, name)

		in.BodySHA256 = sha256.Sum256([]byte("another body"))
		_, err = b.Accept(t.Context(), in)
		require.Equal(t, webhook.CodeMismatch, webhook.CodeOf(err), name)
		require.Equal(t, before, b.Count(t, "events"), name)
	}
}

func TestAcceptGivesBackTheKeyOfARefusedEvent(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	in := storetest.NewEvent("order.paid")
	in.ExternalID = "one"
	_, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	in.IdempotencyKey = "two" // new, together with an external id that is known
	again, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	require.True(t, again.Repeated)
	in.ExternalID = "three"
	fresh, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	require.False(t, fresh.Repeated, "the key of the refused event is free again")
}

func TestAcceptKeysOfTenantsAndKindsAreApart(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, _, err := b.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "other"})
	require.NoError(t, err)
	for _, in := range []webhook.NewEvent{
		{TenantID: "acme", Type: "a", Payload: []byte("1"), ExternalID: "same"},
		{TenantID: "acme", Type: "a", Payload: []byte("1"), IdempotencyKey: "same"},
		{TenantID: "other", Type: "a", Payload: []byte("1"), ExternalID: "same"},
	} {
		a, err := b.Accept(t.Context(), in)
		require.NoError(t, err)
		require.False(t, a.Repeated)
	}
}

// Two processes take the same request at the same time: one event.
func TestAcceptIsIdempotentAcrossProcesses(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	stores := []*storetest.Stores{b.Stores, storetest.OpenStore(t, b.Address)}
	for round := range 20 {
		in := storetest.NewEvent("order.paid")
		in.ExternalID = fmt.Sprintf("round-%d", round)
		var (
			all     sync.WaitGroup
			answers [2]webhook.Accepted
			errs    [2]error
		)
		for i, s := range stores {
			all.Go(func() { answers[i], errs[i] = s.Accept(context.WithoutCancel(t.Context()), in) })
		}
		all.Wait()
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		require.Equal(t, answers[0].Event.ID, answers[1].Event.ID)
		require.NotEqual(t, answers[0].Repeated, answers[1].Repeated)
	}
	require.Equal(t, 20, b.Count(t, "events"))
	require.Equal(t, 20, b.Count(t, "outbox"))
}

// R9: a bad row is refused alone; those that share its flush are stored.
func TestAcceptOfOneBadRowHarmsNoOther(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	var (
		all  sync.WaitGroup
		errs [40]error
	)
	for i := range errs {
		all.Go(func() {
			in := storetest.NewEvent("order.paid")
			if i == 17 {
				in.ExternalID = "a\x00b" // no text of PostgreSQL; the API refuses it long before
			}
			_, errs[i] = b.Accept(context.WithoutCancel(t.Context()), in)
		})
	}
	all.Wait()
	require.Equal(t, webhook.CodeInvalid, webhook.CodeOf(errs[17]), "%v", errs[17])
	for i, err := range errs {
		if i != 17 {
			require.NoError(t, err)
		}
	}
	require.Equal(t, len(errs)-1, b.Count(t, "events"))
}

func TestAcceptManyAtOnceLosesNone(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	const n = 500
	var (
		all sync.WaitGroup
		ids [n]webhook.EventID
	)
	for i := range n {
		all.Go(func() {
			in := storetest.NewEvent("order.paid")
			in.Payload = []byte(fmt.Sprintf(`{"n":%d}`, i))
			if a, err := b.Accept(context.WithoutCancel(t.Context()), in); err == nil {
				ids[i] = a.Event.ID
			}
		})
	}
	all.Wait()
	for i, id := range ids {
		payload, err := b.Payload(t.Context(), "acme", id)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf(`{"n":%d}`, i), string(payload))
	}
	require.Equal(t, n, b.Count(t, "outbox"))
}

func TestPruneIdempotencyKeys(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, key := range []string{"old", "young"} {
		in := storetest.NewEvent("order.paid")
		in.ExternalID, in.IdempotencyKey = key, key
		_, err := b.Accept(t.Context(), in)
		require.NoError(t, err)
	}
	_, err := b.Pool().Exec(t.Context(), `update idempotency_keys set created_at = now() - interval '25 hours' where key = 'old'`)
	require.NoError(t, err)
	pruned, err := b.PruneIdempotencyKeys(t.Context(), 30*24*time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, pruned, "the Idempotency-Key; an external id lives as long as its event")
	pruned, err = b.PruneIdempotencyKeys(t.Context(), 24*time.Hour)
	require.NoError(t, err)
	require.Zero(t, pruned, "its event is still there, however old it is")
	_, err = b.Pool().Exec(t.Context(), `delete from events where external_id = 'old'`)
	require.NoError(t, err)
	pruned, err = b.PruneIdempotencyKeys(t.Context(), 24*time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, pruned)
	require.Equal(t, 2, b.Count(t, "idempotency_keys"))
}

func TestListEvents(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	var ids []webhook.EventID
	for i := range 5 {
		in := storetest.NewEvent([]string{"order.paid", "order.sent"}[i%2])
		in.ExternalID = fmt.Sprintf("x%d", i)
		a, err := b.Accept(t.Context(), in)
		require.NoError(t, err)
		ids = append(ids, a.Event.ID)
	}
	slices.Reverse(ids) // newest first
	list := func(f webhook.EventFilter, p webhook.Page) (found []webhook.EventID) {
		events, _, err := b.ListEvents(t.Context(), "acme", f, p)
		require.NoError(t, err)
		for _, e := range events {
			found = append(found, e.ID)
		}
		return found
	}
	require.Equal(t, ids, list(webhook.EventFilter{}, webhook.Page{Limit: 10}))
	require.Equal(t, ids[:2], list(webhook.EventFilter{}, webhook.Page{Limit: 2}))
	require.Equal(t, ids[2:], list(webhook.EventFilter{}, webhook.Page{Limit: 10, After: ids[1]}))
	require.Equal(t, []webhook.EventID{ids[1], ids[3]}, list(webhook.EventFilter{Type: "order.sent"}, webhook.Page{Limit: 10}))
	require.Equal(t, ids[1:2], list(webhook.EventFilter{ExternalID: "x3"}, webhook.Page{Limit: 10}))
	require.Empty(t, list(webhook.EventFilter{ExternalID: "x9"}, webhook.Page{Limit: 10}))
	require.Empty(t, list(webhook.EventFilter{Since: time.Now().Add(time.Minute)}, webhook.Page{Limit: 10}))
	require.Empty(t, list(webhook.EventFilter{Until: time.Now().Add(-time.Minute)}, webhook.Page{Limit: 10}))
	require.Equal(t, ids, list(webhook.EventFilter{Since: time.Now().Add(-time.Minute), Until: time.Now().Add(time.Minute)}, webhook.Page{Limit: 10}))

	other, _, err := b.ListEvents(t.Context(), "other", webhook.EventFilter{}, webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, other)
	_, _, err = b.Event(t.Context(), "other", ids[0])
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	_, err = b.Payload(t.Context(), "other", ids[0])
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
}

func TestUUIDArraySpellsUUIDs(t *testing.T) {
	t.Parallel()
	a, b := webhook.NewEndpointID(), webhook.NewEndpointID()
	text := events.UUIDArray([]webhook.EndpointID{a, b})
	require.Equal(t, fmt.Sprintf("{%x,%x}", a[:], b[:]), text)
	require.Equal(t, "{}", events.UUIDArray[webhook.EndpointID](nil))
	require.NotContains(t, text, " ")
}
