package postgres

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// matched is an item as Accept hands it in.
func (b *deliveryBundle) matched(t *testing.T, e webhook.NewEvent) *intake {
	t.Helper()
	in := &intake{event: e}
	if e.ExternalID != "" {
		in.keys = append(in.keys, intakeKey{keyExternalID, e.ExternalID})
	}
	if e.IdempotencyKey != "" {
		in.keys = append(in.keys, intakeKey{keyIdempotency, e.IdempotencyKey})
	}
	require.NoError(t, b.match(t.Context(), in))
	return in
}

// A client that timed out and repeats its request can have both in one flush.
func TestRepetitionsInOneFlushAreOneEvent(t *testing.T) {
	t.Parallel()
	keyed := func(external, key, body string) webhook.NewEvent {
		e := newEvent("order.paid")
		e.ExternalID, e.IdempotencyKey, e.BodySHA256 = external, key, sha256.Sum256([]byte(body))
		return e
	}
	for name, c := range map[string]struct {
		events   []webhook.NewEvent
		stale    int // this one's match is old; -1: none
		of       int // whose event the last item's earlier is
		mismatch bool
		stored   int
	}{
		"same external id":      {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "b")}, -1, 0, false, 1},
		"same key":              {[]webhook.NewEvent{keyed("", "k", "b"), keyed("", "k", "b")}, -1, 0, false, 1},
		"another body":          {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "c")}, -1, 0, true, 1},
		"three":                 {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "b"), keyed("x", "", "b")}, -1, 0, false, 1},
		"one of two keys":       {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "k", "b")}, -1, 0, false, 1},
		"each key of another":   {[]webhook.NewEvent{keyed("x", "", "b"), keyed("", "k", "b"), keyed("x", "k", "b")}, -1, 1, false, 2},
		"key of one not stored": {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "k", "b"), keyed("", "k", "b")}, -1, -1, false, 2},
		"first is stale":        {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "b")}, 0, -1, false, 1},
		"last is stale":         {[]webhook.NewEvent{keyed("x", "", "b"), keyed("x", "", "b")}, 1, -1, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupDelivery(t)
			var items []*intake
			for i, e := range c.events {
				in := b.matched(t, e)
				if i == c.stale {
					in.version--
				}
				items = append(items, in)
			}
			require.NoError(t, b.flushIntake(t.Context(), items))
			require.Equal(t, c.stored, b.count(t, "events"))
			last := items[len(items)-1]
			require.Equal(t, c.mismatch, last.mismatch)
			want := webhook.EventID{}
			if c.of >= 0 {
				want = items[c.of].id
			}
			require.Equal(t, want, last.earlier)
			require.Equal(t, c.stored, b.countKeyedEvents(t), "every key belongs to an event, every event has its key")
		})
	}
}

func (b *deliveryBundle) countKeyedEvents(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), `select count(distinct event_id) from idempotency_keys join events on id = event_id`).Scan(&n))
	return n
}

func TestARepetitionOfARefusedItemIsMatchedAgain(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	e := newEvent("order.paid")
	e.ExternalID = "known"
	_, err := b.Accept(t.Context(), e)
	require.NoError(t, err)
	first := e
	first.IdempotencyKey = "k" // refused for the other key
	second := newEvent("order.paid")
	second.IdempotencyKey = "k"
	items := []*intake{b.matched(t, first), b.matched(t, second)}
	require.NoError(t, b.flushIntake(t.Context(), items))
	require.False(t, items[0].earlier.IsZero())
	require.True(t, items[1].stale)
	require.Equal(t, 1, b.count(t, "events"))
}

// The item of a client that left is still in the queue: so are its keys.
func TestKeysStayUnderWayAfterTheirClientLeft(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	flushing, goOn := make(chan struct{}), make(chan struct{})
	b.ingest.stop()
	b.ingest = newCommitter("accept event", intakeWidth, 1, func(ctx context.Context, items []*intake) error {
		close(flushing)
		<-goOn
		return b.flushIntake(ctx, items)
	})
	e := newEvent("order.paid")
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
		free := b.inFlight.enter("acme", []intakeKey{{keyExternalID, "x"}})
		if free {
			b.inFlight.leave("acme", []intakeKey{{keyExternalID, "x"}})
		}
		return free
	}, eventually, poll)
	require.Equal(t, 1, b.count(t, "events"))
}

// Retention may remove an event sooner than its key.
func TestAKeyWhoseEventIsGoneIsFree(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"the same", "another"} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			b := setupDelivery(t)
			e := newEvent("order.paid")
			e.ExternalID, e.IdempotencyKey, e.BodySHA256 = "x", "k", sha256.Sum256([]byte("the same"))
			first, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
			_, err = b.pool.Exec(t.Context(), `delete from events`)
			require.NoError(t, err)
			e.BodySHA256 = sha256.Sum256([]byte(body))
			again, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
			require.False(t, again.Replayed)
			require.NotEqual(t, first.Event.ID, again.Event.ID)
			third, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
			require.True(t, third.Replayed, "the keys are the new event's now")
			require.Equal(t, again.Event.ID, third.Event.ID)
		})
	}
}
