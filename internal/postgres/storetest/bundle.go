package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/webhook"
)

// Bundle is a store with a tenant and an endpoint for "order.*".
type Bundle struct {
	*Stores

	Address    string
	Subscriber webhook.Endpoint
}

func Setup(t *testing.T) *Bundle {
	t.Helper()
	s, address := SetupStore(t)
	b := &Bundle{Stores: s, Address: address}
	b.Subscriber = b.AddEndpoint(t, "order.*")
	return b
}

func NewEvent(eventType string) webhook.NewEvent {
	return webhook.NewEvent{TenantID: "acme", Type: eventType, Payload: []byte(`{"order": 17}`)}
}

// AcceptOne stores an event with exactly one delivery.
func (b *Bundle) AcceptOne(t *testing.T) webhook.Start {
	t.Helper()
	a, err := b.Accept(t.Context(), NewEvent("order.paid"))
	require.NoError(t, err)
	require.Len(t, a.Deliveries, 1)
	return a.Deliveries[0]
}

func (b *Bundle) Count(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, b.Pool().QueryRow(t.Context(), `select count(*) from `+table).Scan(&n))
	return n
}

// LockRow holds a delivery's row until the function that it returns is called.
func (b *Bundle) LockRow(t *testing.T, id webhook.DeliveryID) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.Address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from deliveries where id = $1 for update`, id)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// Exec changes rows behind the store's back.
func (b *Bundle) Exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	tag, err := b.Pool().Exec(t.Context(), sql, args...)
	require.NoError(t, err)
	require.Positive(t, tag.RowsAffected(), sql)
}

func (b *Bundle) RequireEmpty(t *testing.T) {
	t.Helper()
	for _, table := range []string{"events", "outbox", "idempotency_keys"} {
		require.Zero(t, b.Count(t, table), table)
	}
}

// Bar makes the database refuse one payload and one event type.
func (b *Bundle) Bar(t *testing.T) {
	t.Helper()
	_, err := b.Pool().Exec(t.Context(), `alter table events add check (payload <> 'barred'); alter table outbox add check (event_type <> 'order.barred')`)
	require.NoError(t, err)
}

func (b *Bundle) CountOf(t *testing.T, what string) (n int) {
	t.Helper()
	require.NoError(t, b.Pool().QueryRow(t.Context(), `select count(*) from `+what).Scan(&n))
	return n
}

func (b *Bundle) CountKeyedEvents(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.Pool().QueryRow(t.Context(), `select count(distinct event_id) from idempotency_keys join events on id = event_id`).Scan(&n))
	return n
}

// WrongStore is another process on the bundle's database whose clock is wrong.
func (b *Bundle) WrongStore(t *testing.T, by time.Duration) *Bundle {
	t.Helper()
	s, err := OpenStores(t.Context(), stores.Config{
		URL: b.Address, MaxConns: 4, Sealer: NewTestSealer(t), MakeSecret: TestSecret, Now: func() time.Time { return time.Now().Add(by) },
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	wrong := &Bundle{Stores: s, Address: b.Address, Subscriber: b.Subscriber}
	require.InDelta(t, by.Seconds(), -time.Since(s.Now()).Seconds(), 5, "the database was not asked yet")
	wrong.AcceptOne(t)
	RequireRelayedIn(t, b.Stores, deliveries.RelayAfter) // it needs no clock for that
	_, err = b.Pool().Exec(t.Context(), `truncate outbox`)
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	return wrong
}

// RequireRelayedIn requires that the relay takes all of the outbox up when so much time has
// passed since now, by the database's clock; what was written a while ago a little earlier.
func RequireRelayedIn(t *testing.T, s *Stores, after time.Duration) {
	t.Helper()
	for _, left := range Query[float64](t, s, `select extract(epoch from relay_at - clock_timestamp())::float8 from outbox`) {
		require.LessOrEqual(t, left, after.Seconds())
		require.Greater(t, left, after.Seconds()-5)
	}
}
