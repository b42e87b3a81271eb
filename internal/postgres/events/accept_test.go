package events_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// batchOf is a batch of events with external ids ("": none), whose bodies are their ids.
func batchOf(key string, externals ...string) webhook.NewBatch {
	b := webhook.NewBatch{TenantID: "acme", IdempotencyKey: key, BodySHA256: sha256.Sum256(fmt.Append(nil, externals))}
	for i, external := range externals {
		e := storetest.NewEvent("order.paid")
		e.ExternalID, e.BodySHA256 = external, sha256.Sum256([]byte(external))
		e.Payload = fmt.Appendf(nil, `{"n" : %d}`, i)
		b.Events = append(b.Events, e)
	}
	return b
}

// fieldsOf are the fields that an error names.
func fieldsOf(t *testing.T, err error) []string {
	t.Helper()
	known := &webhook.Error{}
	require.ErrorAs(t, err, &known)
	var names []string
	for _, f := range known.Fields {
		names = append(names, f.Field)
	}
	return names
}

func idsOf(all []webhook.Accepted) []webhook.EventID {
	var ids []webhook.EventID
	for _, a := range all {
		ids = append(ids, a.Event.ID)
	}
	return ids
}

func repeated(all []webhook.Accepted) []bool {
	var which []bool
	for _, a := range all {
		which = append(which, a.Repeated)
	}
	return which
}

func TestAcceptBatchStoresAllInOneTransaction(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	second := b.AddEndpoint(t, "order.paid")
	deliverAt := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	in := batchOf("k", "x", "", "y", "")
	in.Events[1].Type = "invoice.sent"
	in.Events[2].DeliverAt = deliverAt
	in.Events[3].EndpointIDs = []webhook.EndpointID{second.ID}
	all, err := b.AcceptBatch(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false, false}, repeated(all))
	require.Equal(t, []int{2, 0, 2, 1}, []int{len(all[0].Deliveries), len(all[1].Deliveries), len(all[2].Deliveries), len(all[3].Deliveries)})
	require.Equal(t, webhook.ReasonNoMatch, all[1].Event.Reason)
	require.Equal(t, deliverAt.Add(72*time.Hour), all[2].Deliveries[0].GiveUpAt)
	require.True(t, slices.IsSortedFunc(idsOf(all), func(a, b webhook.EventID) int { return slices.Compare(a[:], b[:]) }), "listed in their order")
	for i, a := range all {
		e, deliveries, err := b.Event(t.Context(), "acme", a.Event.ID)
		require.NoError(t, err)
		require.Equal(t, a.Event, e)
		require.Len(t, deliveries, len(a.Deliveries))
		payload, err := b.Payload(t.Context(), "acme", e.ID)
		require.NoError(t, err)
		require.Equal(t, string(in.Events[i].Payload), string(payload))
		require.Equal(t, in.Events[i].Payload, a.Payload)
	}
	var transactions int
	require.NoError(t, b.Pool().QueryRow(t.Context(), `select count(distinct x) from (
		select xmin::text x from events union all select xmin::text from outbox union all select xmin::text from idempotency_keys) r`).Scan(&transactions))
	require.Equal(t, 1, transactions)
}

func TestAcceptBatchIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*webhook.NewBatch)
		code   webhook.Code
		fields []string
	}{
		"unknown endpoints": {func(in *webhook.NewBatch) {
			in.Events[1].EndpointIDs = []webhook.EndpointID{webhook.NewEndpointID()}
			in.Events[2].EndpointIDs = []webhook.EndpointID{webhook.NewEndpointID()}
		}, webhook.CodeInvalid, []string{"events[1].endpoint_ids", "events[2].endpoint_ids"}},
		"no such tenant":        {func(in *webhook.NewBatch) { in.TenantID = "nobody" }, webhook.CodeNotFound, nil},
		"no events":             {func(in *webhook.NewBatch) { in.Events = nil }, webhook.CodeInvalid, []string{"events"}},
		"a key that is no text": {func(in *webhook.NewBatch) { in.Events[2].ExternalID = "a\x00b" }, webhook.CodeInvalid, nil},
		"an event barred":       {func(in *webhook.NewBatch) { in.Events[2].Payload = []byte("barred") }, webhook.CodeInternal, nil},
		"an outbox row barred":  {func(in *webhook.NewBatch) { in.Events[2].Type = "order.barred" }, webhook.CodeInternal, nil},
		"too many deliveries": {func(in *webhook.NewBatch) {
			in.Events = slices.Repeat(in.Events, 1+events.MaxBatchDeliveries/3)
		}, webhook.CodeTooLarge, []string{"events"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			b.Bar(t)
			bad := batchOf("k", "x", "", "y")
			c.change(&bad)
			_, err := b.AcceptBatch(t.Context(), bad)
			require.Equal(t, c.code, webhook.CodeOf(err), "%v", err)
			if c.fields != nil {
				require.Equal(t, c.fields, fieldsOf(t, err))
			}
			b.RequireEmpty(t)
			all, err := b.AcceptBatch(t.Context(), batchOf("k", "x", "", "y"))
			require.NoError(t, err)
			require.Equal(t, []bool{false, false, false}, repeated(all), "the keys are free")
		})
	}
}

// A connection that breaks before the commit leaves nothing behind either.
func TestAcceptBatchOfABrokenConnection(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, err := b.Pool().Exec(t.Context(), `
		create function break_off() returns trigger language plpgsql security definer as
			$$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;
		create trigger break_off after insert on outbox execute function break_off()`)
	require.NoError(t, err)
	_, err = b.AcceptBatch(t.Context(), batchOf("k", "x", "y"))
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err), "%v", err)
	b.RequireEmpty(t)
	_, err = b.Pool().Exec(t.Context(), `drop trigger break_off on outbox`)
	require.NoError(t, err)
	all, err := b.AcceptBatch(t.Context(), batchOf("k", "x", "y"))
	require.NoError(t, err)
	require.Equal(t, []bool{false, false}, repeated(all))
}

// R9: a batch that cannot be stored harms no other request of its flush, and goes as a whole.
func TestAcceptBatchThatIsBarredHarmsNoOther(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.Bar(t)
	bad := batchOf("", "x", "y")
	bad.Events[1].Payload = []byte("barred")
	var items []*events.Posting
	for _, in := range []webhook.NewBatch{batchOf("", "a", "b"), bad, batchOf("", "c")} {
		items = append(items, matchedBatch(t, b, in))
	}
	for i, err := range storetest.HandInTogether(t, "accept event", b.FlushPostings, items) {
		require.Equal(t, i == 1, err != nil, i)
	}
	require.Equal(t, []int{3, 3, 3}, []int{b.Count(t, "events"), b.Count(t, "outbox"), b.Count(t, "idempotency_keys")})
}

func matchedBatch(t *testing.T, b *storetest.Bundle, nb webhook.NewBatch) *events.Posting {
	t.Helper()
	in := events.PostingOf(nb)
	require.NoError(t, b.Match(t.Context(), in))
	return in
}

func TestAcceptBatchWithKnownEvents(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	single := keyed("y", "", "y")
	first, err := b.Accept(t.Context(), single)
	require.NoError(t, err)
	all, err := b.AcceptBatch(t.Context(), batchOf("", "x", "y", "", "z"))
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, false, false}, repeated(all))
	require.Equal(t, first.Event, all[1].Event)
	require.Equal(t, first.Deliveries[0].Ref, all[1].Deliveries[0].Ref)
	require.Equal(t, 4, b.Count(t, "events"))

	again, err := b.Accept(t.Context(), keyed("z", "", "z"))
	require.NoError(t, err)
	require.True(t, again.Repeated, "a batch's event is known to a post of one")
	require.Equal(t, all[3].Event, again.Event)

	// Two are known with another body: both are named, and nothing is stored.
	other := batchOf("k", "new", "x", "y", "z")
	other.Events[1].BodySHA256, other.Events[3].BodySHA256 = [32]byte{1}, [32]byte{2}
	_, err = b.AcceptBatch(t.Context(), other)
	require.Equal(t, webhook.CodeMismatch, webhook.CodeOf(err))
	require.Equal(t, []string{"events[1].external_id", "events[3].external_id"}, fieldsOf(t, err))
	require.Equal(t, []int{4, 3}, []int{b.Count(t, "events"), b.Count(t, "idempotency_keys")})

	// An event that is known is answered also when its endpoint is no more.
	gone := batchOf("", "x", "w")
	gone.Events[0].EndpointIDs = []webhook.EndpointID{webhook.NewEndpointID()}
	mixed, err := b.AcceptBatch(t.Context(), gone)
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, repeated(mixed))
	require.Equal(t, all[0].Event, mixed[0].Event)
}

func TestAcceptBatchWithAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, err := b.Accept(t.Context(), keyed("y", "", "y"))
	require.NoError(t, err)
	for name, externals := range map[string][]string{
		"all new": {"", "a", ""}, "first known": {"y", ""}, "last known": {"", "y"}, "all known": {"y"},
	} {
		first, err := b.AcceptBatch(t.Context(), batchOf(name, externals...))
		require.NoError(t, err, name)
		before := b.Count(t, "events")
		again, err := b.AcceptBatch(t.Context(), batchOf(name, externals...))
		require.NoError(t, err, name)
		require.Equal(t, idsOf(first), idsOf(again), name)
		require.NotContains(t, repeated(again), false, name)
		for i := range first {
			require.Equal(t, first[i].Event, again[i].Event, name)
			require.Equal(t, first[i].Deliveries[0].Ref, again[i].Deliveries[0].Ref, name)
		}
		_, err = b.AcceptBatch(t.Context(), batchOf(name, append(externals, "new")...))
		require.Equal(t, webhook.CodeMismatch, webhook.CodeOf(err), name)
		require.Equal(t, []string{"Idempotency-Key"}, fieldsOf(t, err), name)
		_, err = b.Accept(t.Context(), keyed("", name, "single"))
		require.Equal(t, webhook.CodeMismatch, webhook.CodeOf(err), "%s: one key for batches and single events", name)
		require.Equal(t, before, b.Count(t, "events"), name)
	}
	require.Zero(t, b.CountOf(t, `idempotency_keys where key = 'new'`), "a refused batch gives its keys back")
}

func TestAcceptBatchWhoseKeysAreUnderWay(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for held, field := range map[events.PostingKey]string{
		{Kind: events.KeyExternalID, Key: "y"}: "events[2].external_id", {Kind: events.KeyIdempotency, Key: "k"}: "Idempotency-Key",
	} {
		require.Nil(t, b.InFlight().Enter("acme", []events.PostingKey{held}))
		_, err := b.AcceptBatch(t.Context(), batchOf("k", "x", "", "y"))
		require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err))
		require.Equal(t, []string{field}, fieldsOf(t, err))
		require.Nil(t, b.InFlight().Enter("acme", []events.PostingKey{{Kind: events.KeyExternalID, Key: "x"}}), "of a refused batch no key is under way")
		b.InFlight().Leave("acme", []events.PostingKey{held, {Kind: events.KeyExternalID, Key: "x"}})
	}
	_, err := b.AcceptBatch(t.Context(), batchOf("k", "x", "", "y"))
	require.NoError(t, err)
	require.Empty(t, b.InFlight().Keys)
}

// Matching sees every endpoint that was created before, also one of another process whose notification has not arrived.
func TestAcceptSeesNamedEndpointsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.AcceptOne(t) // fills the cache; there is no listener in this test
	other := &storetest.Bundle{Stores: storetest.OpenStore(t, b.Address)}
	in := batchOf("", "x", "")
	in.Events[1].EndpointIDs = []webhook.EndpointID{other.AddEndpoint(t, "nothing.else").ID}
	all, err := b.AcceptBatch(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, in.Events[1].EndpointIDs, all[1].Event.EndpointIDs)

	alone := storetest.NewEvent("order.paid")
	alone.EndpointIDs = []webhook.EndpointID{other.AddEndpoint(t, "nothing.else").ID}
	a, err := b.Accept(t.Context(), alone)
	require.NoError(t, err)
	require.Equal(t, alone.EndpointIDs, a.Event.EndpointIDs)
	require.Len(t, all[0].Deliveries, 1, "what it did not ask for it does not get")
}

// Retention may remove events sooner than the key of their batch.
func TestAcceptBatchWhoseEventsAreGone(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	in := batchOf("k", "x", "", "y")
	first, err := b.AcceptBatch(t.Context(), in)
	require.NoError(t, err)
	remove := func(ids ...webhook.EventID) {
		_, err := b.Pool().Exec(t.Context(), `delete from events where id = any($1)`, ids)
		require.NoError(t, err)
	}
	remove(first[1].Event.ID)
	_, err = b.AcceptBatch(t.Context(), in)
	require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err), "the answer is not whole, and to store again would send twice")
	require.Equal(t, []string{"Idempotency-Key"}, fieldsOf(t, err))
	require.Equal(t, 2, b.Count(t, "events"))

	remove(first[2].Event.ID)
	in.IdempotencyKey = ""
	again, err := b.AcceptBatch(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []bool{true, false, false}, repeated(again), "an external id whose event is gone is free")

	in.IdempotencyKey = "k"
	remove(append(idsOf(first), idsOf(again)...)...)
	_, err = b.AcceptBatch(t.Context(), in)
	require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err), "its time is not over")
	b.Exec(t, keysEnd)
	third, err := b.AcceptBatch(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false}, repeated(third), "and so is a key all of whose events are")
	fourth, err := b.AcceptBatch(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, idsOf(third), idsOf(fourth), "the keys are the new batch's now")
}
