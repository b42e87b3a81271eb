package events_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// number sets whether an endpoint's deliveries are numbered.
func number(t *testing.T, b *storetest.Bundle, id webhook.EndpointID, by webhook.OrderingBy) {
	t.Helper()
	_, err := b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", id, func(e *webhook.Endpoint) error {
		e.Ordering.By = by
		return nil
	})
	require.NoError(t, err)
}

// setupNumbered is a bundle whose endpoint numbers.
func setupNumbered(t *testing.T) *storetest.Bundle {
	t.Helper()
	b := storetest.Setup(t)
	number(t, b, b.Subscriber.ID, webhook.OrderingNumber)
	return b
}

func ordered(key string) webhook.NewEvent {
	e := storetest.NewEvent("order.paid")
	e.OrderingKey = key
	return e
}

// numberOf is the number of the delivery to the subscriber.
func numberOf(t *testing.T, b *storetest.Bundle, a webhook.Accepted) int64 {
	t.Helper()
	at := slices.IndexFunc(a.Deliveries, func(s webhook.Start) bool { return s.EndpointID == b.Subscriber.ID })
	require.GreaterOrEqual(t, at, 0)
	require.Equal(t, a.Event.OrderingKey, a.Deliveries[at].Sequence.Key)
	return a.Deliveries[at].Sequence.Number
}

// Each key has its own numbers, and so has what has none. Another endpoint without the setting has none.
func TestLinesAreCountedByKey(t *testing.T) {
	t.Parallel()
	b := setupNumbered(t)
	plain := b.AddEndpoint(t, "order.*")
	for i, test := range []struct {
		key  string
		want int64
	}{{"a", 1}, {"b", 1}, {"a", 2}, {"", 1}, {"a", 3}, {"", 2}, {"B", 1}, {"b", 2}} {
		a, err := b.Accept(t.Context(), ordered(test.key))
		require.NoError(t, err)
		require.Equal(t, test.want, numberOf(t, b, a), i)
		require.Len(t, a.Deliveries, 2)
		e, _, err := b.Event(t.Context(), "acme", a.Event.ID)
		require.NoError(t, err)
		require.Equal(t, test.key, e.OrderingKey)
		require.Equal(t, a.Deliveries[0].Sequence, e.SequenceOf(a.Deliveries[0].EndpointID), "the event has it, too")
		require.True(t, e.SequenceOf(plain.ID).IsZero())
		for _, start := range a.Deliveries {
			claimed, err := b.Claim(t.Context(), webhook.Claim{
				Ref: start.Ref, Progress: webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt}, Claimant: "me", For: time.Minute,
			})
			require.NoError(t, err)
			require.Equal(t, start.Sequence, claimed.Sequence, "and so does whoever sends it")
		}
	}
	require.Equal(t, 4, b.Count(t, "lines"))
	listed, _, err := b.ListEvents(t.Context(), "acme", webhook.EventFilter{}, webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, "b", listed[0].OrderingKey)
	require.Nil(t, listed[0].Sequences)
}

// A batch has the order of its array.
func TestABatchIsNumberedInItsOrder(t *testing.T) {
	t.Parallel()
	b := setupNumbered(t)
	in := webhook.NewBatch{TenantID: "acme"}
	for i := range webhook.MaxBatchEvents {
		in.Events = append(in.Events, ordered(strconv.Itoa(i%3)))
	}
	all, err := b.AcceptBatch(t.Context(), in)
	require.NoError(t, err)
	for i, a := range all {
		require.Equal(t, int64(i/3+1), numberOf(t, b, a))
	}
}

// What takes no number: what was stored before, what is refused, what is filtered, and what waits for a time.
func TestOnlyWhatIsSentTakesANumber(t *testing.T) {
	t.Parallel()
	b := setupNumbered(t)
	next := int64(0)
	taken := func(e webhook.NewEvent) webhook.Accepted {
		next++
		a, err := b.Accept(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, next, numberOf(t, b, a))
		return a
	}
	known := ordered("a")
	known.ExternalID, known.BodySHA256 = "x", sha256.Sum256([]byte("x"))
	first := taken(known)
	again, err := b.Accept(t.Context(), known)
	require.NoError(t, err)
	require.True(t, again.Repeated)
	require.Equal(t, first.Deliveries[0].Sequence, again.Deliveries[0].Sequence, "the answer is the first one")

	refused := ordered("a")
	refused.EndpointIDs = []webhook.EndpointID{b.Subscriber.ID, webhook.NewEndpointID()}
	_, err = b.Accept(t.Context(), refused)
	storetest.RequireCode(t, webhook.CodeInvalid, err)
	later := ordered("a")
	later.DeliverAt = time.Now().Add(time.Hour)
	a, err := b.Accept(t.Context(), later)
	require.NoError(t, err)
	require.True(t, a.Deliveries[0].Sequence.IsZero())
	setFilter(t, b, "acme", b.Subscriber.ID, `{"payload":{"order":{"$ne":17}}}`)
	a, err = b.Accept(t.Context(), ordered("a"))
	require.NoError(t, err)
	require.Empty(t, a.Deliveries)
	setFilter(t, b, "acme", b.Subscriber.ID, "")

	mixed := webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{known, ordered("a")}}
	all, err := b.AcceptBatch(t.Context(), mixed)
	require.NoError(t, err)
	require.True(t, all[0].Repeated)
	next++
	require.Equal(t, next, numberOf(t, b, all[1]))
	taken(ordered("a"))
	number(t, b, b.Subscriber.ID, webhook.OrderingNone)
	a, err = b.Accept(t.Context(), ordered("a"))
	require.NoError(t, err)
	require.True(t, a.Deliveries[0].Sequence.IsZero())
	number(t, b, b.Subscriber.ID, webhook.OrderingNumber)
	taken(ordered("a"))
}

// Processes that store events of one line at the same time give out each number once, without a gap, and each caller who waits gets rising ones.
func TestNumbersHaveNoGapAndNoDuplicate(t *testing.T) {
	t.Parallel()
	b := setupNumbered(t)
	other := b.AddEndpoint(t, "order.*")
	number(t, b, other.ID, webhook.OrderingNumber)
	const callers, each = 8, 25
	another, err := storetest.OpenStores(t.Context(), stores.Config{URL: b.Address, MaxConns: 4, Sealer: storetest.NewTestSealer(t)})
	require.NoError(t, err)
	t.Cleanup(another.Close)
	processes := []*storetest.Stores{b.Stores, another}
	var all [callers][each]webhook.Accepted
	g, ctx := errgroup.WithContext(t.Context())
	for c := range callers {
		g.Go(func() (err error) {
			for i := range each {
				keys := [2]string{"a", "b"}
				in := webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{ordered(keys[c%2]), ordered(keys[1-c%2])}}
				accepted, err := processes[c/2%2].AcceptBatch(ctx, in)
				if err != nil {
					return err
				}
				all[c][i] = accepted[c%2] // of the line a
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	var numbers []int64
	for c := range callers {
		last := int64(0)
		for _, a := range all[c] {
			n := numberOf(t, b, a)
			require.Greater(t, n, last)
			require.Equal(t, "a", a.Event.OrderingKey)
			numbers, last = append(numbers, n), n
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		require.Equal(t, int64(i+1), n)
	}
	require.Len(t, numbers, callers*each)
	require.Equal(t, 4, b.Count(t, "lines"))
}

// A line that another process has locked keeps neither events without numbers waiting nor, after the first look, other lines.
func TestALockedLineIsWaitedForByItsOwnOnly(t *testing.T) {
	t.Parallel()
	b := setupNumbered(t)
	plain := b.AddEndpoint(t, "plain.*")
	_, err := b.Accept(t.Context(), ordered("stuck"))
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), b.Address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from lines for update`)
	require.NoError(t, err)

	stuck := make(chan webhook.Accepted, 1)
	go func() {
		a, err := b.Accept(t.Context(), ordered("stuck"))
		if err == nil {
			stuck <- a
		}
		close(stuck)
	}()
	require.Eventually(t, func() bool { return storetest.WaitsForALock(t, b.Stores) }, storetest.Eventually, storetest.Poll)
	a, err := b.Accept(t.Context(), storetest.NewEvent("plain.x"))
	require.NoError(t, err)
	require.Equal(t, plain.ID, a.Deliveries[0].EndpointID)
	for i := range 3 {
		a, err = b.Accept(t.Context(), ordered("free"))
		require.NoError(t, err)
		require.Equal(t, int64(i+1), numberOf(t, b, a))
	}
	// The locked line is the second of a batch: the first one is as free as before.
	both := make(chan []webhook.Accepted, 1)
	go func() {
		all, err := b.AcceptBatch(t.Context(), webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{ordered("free"), ordered("stuck")}})
		if err == nil {
			both <- all
		}
		close(both)
	}()
	begun := time.Now()
	for range 20 {
		_, err = b.Accept(t.Context(), ordered("free"))
		require.NoError(t, err)
	}
	require.Less(t, time.Since(begun), 20*500*time.Millisecond/2, "most of them wait for no lock timeout")
	require.Empty(t, stuck, "the line is locked")
	require.Empty(t, both)
	require.NoError(t, tx.Rollback(t.Context()))
	a, b2 := <-stuck, <-both
	require.ElementsMatch(t, []int64{2, 3}, []int64{numberOf(t, b, a), numberOf(t, b, b2[1])})
}

// A flush that fails after it has taken numbers gives them back.
func TestARollbackGivesNumbersBack(t *testing.T) {
	t.Parallel()
	b := setupNumbered(t)
	first, err := b.Accept(t.Context(), ordered("a"))
	require.NoError(t, err)
	_, err = b.Pool().Exec(t.Context(), `alter table events add constraint no_canary check (external_id <> 'refused')`)
	require.NoError(t, err)
	in := ordered("a")
	in.ExternalID = "refused"
	_, err = b.AcceptBatch(t.Context(), webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{ordered("a"), ordered("a"), in}})
	require.Error(t, err)
	second, err := b.Accept(t.Context(), ordered("a"))
	require.NoError(t, err)
	require.Equal(t, numberOf(t, b, first)+1, numberOf(t, b, second))
}

// Events without a key get the one at their type's pointer, unless they wait for a time.
func TestKeysOfTheCatalogue(t *testing.T) {
	t.Parallel()
	b := setupNumbered(t)
	pointed := webhook.EventType{Name: "order.paid", OrderingKey: "/order"}
	_, _, err := b.EventTypes.PutEventType(t.Context(), storetest.TestActor(), pointed, webhook.MatchAny)
	require.NoError(t, err)
	later := ordered("")
	later.DeliverAt = time.Now().Add(time.Hour)
	other := storetest.NewEvent("order.paid")
	other.Payload = []byte(`{"order":"x"}`)
	in := webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{ordered(""), ordered("own"), other, ordered(""), later}}
	all, err := b.AcceptBatch(t.Context(), in)
	require.NoError(t, err)
	for i, want := range []webhook.Sequence{{Key: "17", Number: 1}, {Key: "own", Number: 1}, {Key: "x", Number: 1}, {Key: "17", Number: 2}, {}} {
		got := all[i].Deliveries[0].Sequence
		got.Line = 0
		require.Equal(t, want, got, i)
		require.Equal(t, want.Key, all[i].Event.OrderingKey)
	}
	setFilter(t, b, "acme", b.Subscriber.ID, `{"ordering_key":"17"}`)
	a, err := b.Accept(t.Context(), ordered(""))
	require.NoError(t, err)
	require.Len(t, a.Deliveries, 1, "filters see it")
}

// Everpost's own events have no numbers.
func TestOperationalEventsAreNotNumbered(t *testing.T) {
	t.Parallel()
	b := storetest.SetupOperational(t)
	listener := b.ListensTo(t, "acme", "everpost.*")
	number(t, b.Bundle, listener.ID, webhook.OrderingNumber)
	stored, err := b.Notify(t.Context(), []webhook.OperationalEvent{b.Opened("acme")})
	require.NoError(t, err)
	require.Equal(t, listener.ID, stored[0].Deliveries[0].EndpointID)
	require.True(t, stored[0].Deliveries[0].Sequence.IsZero())
	_, err = b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	require.Zero(t, b.Count(t, "lines"))
}

// An idle line goes, and begins again with a higher id.
func TestIdleLinesGo(t *testing.T) {
	t.Parallel()
	b := setupNumbered(t)
	first, err := b.Accept(t.Context(), ordered("a"))
	require.NoError(t, err)
	_, err = b.Accept(t.Context(), ordered("b"))
	require.NoError(t, err)
	b.Exec(t, `update lines set used_on = used_on - 31 where key = (select key from lines order by id limit 1)`)
	removed, err := b.PruneLines(t.Context(), 30*24*time.Hour)
	require.NoError(t, err)
	require.Equal(t, int64(1), removed)
	require.Equal(t, 1, b.Count(t, "lines"))
	again, err := b.Accept(t.Context(), ordered("a"))
	require.NoError(t, err)
	was, is := first.Deliveries[0].Sequence, again.Deliveries[0].Sequence
	require.Equal(t, int64(1), is.Number)
	require.Greater(t, is.Line, was.Line)
	require.WithinDuration(t, time.Now(), time.UnixMicro(is.Line), time.Minute)
}

// An erasure removes the key, and leaves the number.
func TestAnErasureRemovesTheKey(t *testing.T) {
	t.Parallel()
	b := setupNumbered(t)
	a, err := b.Accept(t.Context(), ordered("canary"))
	require.NoError(t, err)
	b.EndIn(t, a.Deliveries[0], webhook.StateDelivered)
	_, _, err = b.ErasePayloads(t.Context(), storetest.TestActor(), "acme", webhook.PayloadErasure{IDs: []webhook.EventID{a.Event.ID}})
	require.NoError(t, err)
	e, _, err := b.Event(t.Context(), "acme", a.Event.ID)
	require.NoError(t, err)
	require.Empty(t, e.OrderingKey)
	require.Equal(t, int64(1), e.SequenceOf(b.Subscriber.ID).Number)
	require.Zero(t, b.CountOf(t, fmt.Sprintf("events where ordering_key is not null and id = '%x'", a.Event.ID[:])))
}
