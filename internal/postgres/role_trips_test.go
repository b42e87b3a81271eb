package postgres

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// trips counts the round trips on all idle connections of a pool while do runs.
func trips(t *testing.T, pool *pgxpool.Pool, do func()) int {
	t.Helper()
	var said bytes.Buffer
	each := func(fn func(*pgproto3.Frontend)) {
		all := pool.AcquireAllIdle(t.Context())
		require.Len(t, all, 1, "one connection, so that nothing is written side by side")
		fn(all[0].Conn().PgConn().Frontend())
		all[0].Release()
	}
	each(func(f *pgproto3.Frontend) { f.Trace(&said, pgproto3.TracerOptions{SuppressTimestamps: true}) })
	do()
	each(func(f *pgproto3.Frontend) { f.Untrace() })
	return strings.Count(said.String(), "B\tReadyForQuery")
}

// What is set for the wall travels with what it is set for; the group commits set nothing.
func TestTheWallTakesNoRoundTrip(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	b.accept(t)
	start := b.accept(t)
	event := newEvent("order.paid")
	attempt := func(seq int) webhook.Step {
		step := stepOf(start, seq, webhook.StateRetrying)
		step.Attempt = attemptOf(seq, 1, 503)
		return step
	}
	claim := func(seq int) func() {
		return func() {
			begun, err := b.Claim(t.Context(), claimOf(start, seq, "me", time.Minute))
			require.NoError(t, err)
			require.True(t, begun.Granted)
		}
	}
	record := func(seq int) func() {
		return func() {
			_, err := b.RecordStep(t.Context(), attempt(seq))
			require.NoError(t, err)
		}
	}
	read := func() {
		_, err := b.Endpoint(t.Context(), "acme", b.endpoint.ID)
		require.NoError(t, err)
	}
	tx := func() {
		require.NoError(t, b.ofTenant("acme").inTx(t.Context(), "do nothing", func(context.Context, pgx.Tx) error { return nil }))
	}
	claim(0)() // statements are prepared at their first use
	record(1)()
	read()
	keyed := newEvent("order.paid")
	keyed.ExternalID = "order-1"
	_, err := b.Accept(t.Context(), keyed)
	require.NoError(t, err)
	keyed.ExternalID = "order-2"
	for _, e := range []webhook.NewEvent{event, keyed} {
		require.Equal(t, 1, trips(t, b.intake, func() {
			_, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
		}))
	}
	again := func() {
		a, err := b.Accept(t.Context(), keyed)
		require.NoError(t, err)
		require.True(t, a.Replayed)
	}
	again()
	require.Equal(t, 5, trips(t, b.intake, again), "try, take keys, read whose they are, read those events, commit")
	require.Equal(t, 1, trips(t, b.writer, claim(1)))
	require.Equal(t, 1, trips(t, b.writer, record(2)))
	require.Equal(t, 1, trips(t, b.pool, read))
	// A begin that sets something is one message with two answers.
	require.Equal(t, 2, trips(t, b.pool, tx), "begin, commit")
}
