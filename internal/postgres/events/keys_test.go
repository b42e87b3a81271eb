package events_test

import (
	"context"
	"crypto/sha256"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// matched is an item as Accept hands it in.
func matched(t *testing.T, b *storetest.Bundle, e webhook.NewEvent) *events.Posting {
	t.Helper()
	in := &events.Posting{TenantID: e.TenantID, Body: e.BodySHA256}
	in.Add(e, e.IdempotencyKey)
	require.NoError(t, b.Match(t.Context(), in))
	return in
}

// keysEnd ends the time for which Idempotency-Keys are kept.
const keysEnd = `update idempotency_keys set created_at = created_at - interval '1 day'`

func keyed(external, key, body string) webhook.NewEvent {
	e := storetest.NewEvent("order.paid")
	e.ExternalID, e.IdempotencyKey, e.BodySHA256 = external, key, sha256.Sum256([]byte(body))
	return e
}

// Within a process keysUnderWay keeps requests with the same key apart. Should they
// meet in a flush all the same, one is stored and the others are handed in again.
func TestRepetitionsInOneFlushAreOneEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events []webhook.NewEvent
		stale  int   // the index of an item with an old match; -1 for none
		again  []int // these are handed in again
		stored int
	}{
		"same external id":     {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "b")}, -1, []int{1}, 1},
		"same key":             {[]webhook.NewEvent{keyed("", "k", "b"), keyed("", "k", "b")}, -1, []int{1}, 1},
		"another body":         {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "c")}, -1, []int{1}, 1},
		"three":                {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "b"), keyed("x", "", "b")}, -1, []int{1, 2}, 1},
		"one of two keys":      {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "k", "b")}, -1, []int{1}, 1},
		"each key of another":  {[]webhook.NewEvent{keyed("x", "", "b"), keyed("", "k", "b"), keyed("x", "k", "b")}, -1, []int{2}, 2},
		"key of one put aside": {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "k", "b"), keyed("", "k", "b")}, -1, []int{1}, 2},
		"first is stale":       {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "b")}, 0, []int{1}, 0},
		"last is stale":        {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "b")}, 1, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			var items []*events.Posting
			for i, e := range c.events {
				in := matched(t, b, e)
				if i == c.stale {
					in.Version--
				}
				items = append(items, in)
			}
			require.NoError(t, b.FlushPostings(t.Context(), items))
			require.Equal(t, c.stored, b.Count(t, "events"))
			require.Equal(t, c.stored, b.CountKeyedEvents(t), "every key belongs to an event, every event has its key")
			for i, in := range items {
				require.Equal(t, slices.Contains(c.again, i), in.Again, i)
				require.Equal(t, i == c.stale, in.Stale, i)
			}
		})
	}
}

// The item of a client that left is still in the queue: so are its keys.
func TestKeysStayUnderWayAfterTheirClientLeft(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	flushing, goOn := make(chan struct{}), make(chan struct{})
	b.WriteBy(func(ctx context.Context, items []*events.Posting) error {
		close(flushing)
		<-goOn
		return b.FlushPostings(ctx, items)
	})
	e := storetest.NewEvent("order.paid")
	e.ExternalID = "x"
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := b.Accept(ctx, e)
		answered <- err
	}()
	<-flushing
	leave()
	require.ErrorIs(t, <-answered, context.Canceled)
	_, err := b.Accept(t.Context(), e)
	require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err), "its first request is under way")
	close(goOn)
	require.Eventually(t, func() bool {
		key := []events.PostingKey{{Kind: events.KeyExternalID, Key: "x"}}
		if b.InFlight().Enter("acme", key) != nil {
			return false
		}
		b.InFlight().Leave("acme", key)
		return true
	}, storetest.Eventually, storetest.Poll)
	require.Equal(t, 1, b.Count(t, "events"))
}

// Retention may remove an event sooner than its key. An Idempotency-Key is free when its time is over, too.
func TestAKeyWhoseEventIsGoneIsFree(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"the same", "another"} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			e := storetest.NewEvent("order.paid")
			e.ExternalID, e.IdempotencyKey, e.BodySHA256 = "x", "k", sha256.Sum256([]byte("the same"))
			first, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
			_, err = b.Pool().Exec(t.Context(), `delete from events`)
			require.NoError(t, err)
			_, err = b.Accept(t.Context(), e)
			require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err), "a repeated request is not stored again")
			require.Zero(t, b.Count(t, "events"))
			b.Exec(t, keysEnd)
			e.BodySHA256 = sha256.Sum256([]byte(body))
			again, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
			require.False(t, again.Repeated)
			require.NotEqual(t, first.Event.ID, again.Event.ID)
			third, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
			require.True(t, third.Repeated, "the keys are the new event's now")
			require.Equal(t, again.Event.ID, third.Event.ID)
		})
	}
}

// A key that existed when it was to be taken, and is gone when it is read, belongs to no request: the request that wanted it is handed in
// again.
func TestAKeyThatVanishesIsTakenAgain(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	in := matched(t, b, keyed("x", "", "b"))
	keys := events.KeysOf([]*events.Posting{in})
	tx, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, events.ReadKeys(t.Context(), tx, keys))
	require.NoError(t, tx.Rollback(t.Context()))
	require.True(t, in.Again)
}
