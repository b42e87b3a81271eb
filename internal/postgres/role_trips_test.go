package postgres_test

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

	"github.com/everpost/everpost/internal/postgres/storetest"
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
	b := storetest.Setup(t)
	b.AcceptOne(t)
	start := b.AcceptOne(t)
	event := storetest.NewEvent("order.paid")
	attempt := func(seq int) webhook.Step {
		step := storetest.StepOf(start, seq, webhook.StateRetrying)
		step.Attempt = storetest.AttemptOf(seq, 1, 503)
		return step
	}
	claim := func(seq int) func() {
		return func() {
			begun, err := b.Claim(t.Context(), storetest.ClaimOf(start, seq, "me", time.Minute))
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
		_, err := b.Endpoint(t.Context(), "acme", b.Subscriber.ID)
		require.NoError(t, err)
	}
	tx := func() {
		require.NoError(t, b.OfTenant("acme").InTx(t.Context(), "do nothing", func(context.Context, pgx.Tx) error { return nil }))
	}
	claim(0)() // statements are prepared at their first use
	record(1)()
	read()
	keyed := storetest.NewEvent("order.paid")
	keyed.ExternalID = "order-1"
	_, err := b.Accept(t.Context(), keyed)
	require.NoError(t, err)
	keyed.ExternalID = "order-2"
	for _, e := range []webhook.NewEvent{event, keyed} {
		require.Equal(t, 2, trips(t, b.EventsPool, func() {
			_, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
		}))
	}
	again := func() {
		a, err := b.Accept(t.Context(), keyed)
		require.NoError(t, err)
		require.True(t, a.Repeated)
	}
	again()
	require.Equal(t, 4, trips(t, b.EventsPool, again), "take keys, read whose they are, read those events, commit")
	require.Equal(t, 1, trips(t, b.StepPool, claim(1)))
	require.Equal(t, 1, trips(t, b.StepPool, record(2)))
	require.Equal(t, 1, trips(t, b.TenantPool(), read))
	// A begin that sets something is one message with two answers.
	require.Equal(t, 2, trips(t, b.TenantPool(), tx), "begin, commit")
}
