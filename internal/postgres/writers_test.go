package postgres

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/webhook"
)

// lockRow holds a delivery's row until the function that it returns is called.
func (b *deliveryBundle) lockRow(t *testing.T, id webhook.DeliveryID) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from deliveries where id = $1 for update`, id)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// maxHeavy is more than an item of these tests weighs.
const maxHeavy = 10

// handInTogether hands items in so that one flush gets all of them, and returns what becomes
// of each.
func handInTogether[T interface{ tenant() string }](t *testing.T, op string, flush func(context.Context, []T) error, items []T) []error {
	t.Helper()
	begun, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	w := newWriter(op, len(items)*maxHeavy, func(ctx context.Context, some []T) error {
		held := false
		first.Do(func() { held = true })
		if held {
			close(begun)
			<-goOn
			return nil
		}
		return flush(ctx, some)
	})
	defer w.Stop()
	errs := make([]error, len(items))
	var all sync.WaitGroup
	all.Go(func() { assert.NoError(t, w.Do(t.Context(), items[0])) }) // is not written
	<-begun
	for i, item := range items {
		all.Go(func() { errs[i] = w.Do(t.Context(), item) })
	}
	require.Eventually(t, func() bool { return w.Waiting() == len(items) }, eventually, poll)
	close(goOn)
	all.Wait()
	return errs
}

// R9: a locked row holds up no other.
func TestALockedRowHarmsNoOther(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	const n, locked = 40, 17
	items := make([]*recording, n)
	for i := range items {
		start := b.accept(t)
		_, err := b.RecordStep(t.Context(), stepOf(start, 1, webhook.StateRetrying))
		require.NoError(t, err)
		items[i] = &recording{step: stepOf(start, 2, webhook.StateDelivered)}
	}
	release := b.lockRow(t, items[locked].step.DeliveryID)
	defer release()
	for i, err := range handInTogether(t, "record delivery", b.flushRecords, items) {
		if i == locked {
			require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err), "%v", err)
			continue
		}
		require.NoError(t, err, "%d", i)
		require.Equal(t, webhook.StateDelivered, items[i].standing.State)
	}
}

// An item that is alone waits out what locks a whole table for a moment.
func TestALockedRowIsWaitedForAWhile(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	start := b.accept(t)
	_, err := b.RecordStep(t.Context(), stepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	release := b.lockRow(t, start.DeliveryID)
	flushes := 0
	w := newWriter("record delivery", recordWeight, func(ctx context.Context, items []*recording) error {
		flushes++
		if flushes == 2 {
			release()
		}
		return b.flushRecords(ctx, items)
	})
	defer w.Stop()
	require.NoError(t, w.Do(t.Context(), &recording{step: stepOf(start, 2, webhook.StateDelivered)}))
	require.Equal(t, 2, flushes)
}

// A caller learns what a group commit refuses, and that it may try again.
func TestRefusalsOfAGroupCommit(t *testing.T) {
	t.Parallel()
	for err, words := range map[error]string{groupcommit.ErrFull: "try again shortly", groupcommit.ErrStopped: "stopping"} {
		refused := translateWriter("test", err)
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(refused))
		require.ErrorContains(t, refused, words)
	}
}
