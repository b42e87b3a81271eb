package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

func TestReady(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	require.NoError(t, s.Ready(t.Context()))

	standby := storetest.OpenStore(t, address+"&default_transaction_read_only=on")
	storetest.RequireCode(t, webhook.CodeUnavailable, standby.Ready(t.Context()))
	_, _, err := standby.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "beta"})
	storetest.RequireCode(t, webhook.CodeUnavailable, err)
}

func TestOpenRefusesABadURLWithoutRepeatingThePassword(t *testing.T) {
	t.Parallel()
	_, err := storetest.OpenStores(t.Context(), stores.Config{URL: "postgres://user:hunter2@host:notaport/db"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestSessionsAreBoundedAndNamed(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	for setting, want := range map[string]string{
		"statement_timeout": "10s", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "30s", "application_name": "everpost",
	} {
		require.Equal(t, []string{want}, storetest.Query[string](t, s, `select current_setting($1)`, setting), setting)
	}
	var idle string
	require.NoError(t, s.EventsPool.QueryRow(t.Context(), `show idle_in_transaction_session_timeout`).Scan(&idle))
	require.Equal(t, "5s", idle, "what a process that stands still has locked is free again soon")
	own := storetest.OpenStore(t, address+"&statement_timeout=7s")
	require.Equal(t, []string{"7s"}, storetest.Query[string](t, own, `show statement_timeout`), "what the URL says wins")
}

func TestALostDatabaseIsUnavailableUntilItIsBack(t *testing.T) {
	t.Parallel()
	_, address := storetest.SetupStore(t)
	w, through := postgrestest.NewProxy(t, address)
	s := storetest.OpenStore(t, through)
	require.NoError(t, s.Ready(t.Context()))

	w.Cut()
	for name, call := range map[string]func() error{
		"ready":  func() error { return s.Ready(t.Context()) },
		"read":   func() error { _, err := s.Tenant(t.Context(), "acme"); return err },
		"write":  func() error { return s.DeleteTenant(t.Context(), storetest.TestActor(), "acme") },
		"cache":  func() error { _, err := s.Endpoints.Cache().OfTenant(t.Context(), "acme"); return err },
		"key":    func() error { _, err := s.Authenticate(t.Context(), webhook.NewKeyID(), [32]byte{}); return err },
		"target": func() error { _, err := s.Target(t.Context(), webhook.NewEndpointID()); return err },
	} {
		err := call()
		require.Equal(t, webhook.CodeUnavailable.String(), webhook.CodeOf(err).String(), "%s: %v", name, err)
		e, ok := errors.AsType[*webhook.Error](err)
		require.True(t, ok)
		require.Equal(t, time.Second, e.RetryAfter, name)
	}

	w.Restore()
	require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, storetest.Eventually, storetest.Poll)
	_, err := s.Tenant(t.Context(), "acme")
	require.NoError(t, err)
}

// leaveIdle uses three connections of the tenants' pool at once, and releases them.
func leaveIdle(t *testing.T, s *storetest.Stores) {
	t.Helper()
	var used []*pgxpool.Conn
	for range 3 {
		conn, err := s.TenantPool().Acquire(t.Context())
		require.NoError(t, err)
		used = append(used, conn)
	}
	for _, conn := range used {
		conn.Release()
	}
	require.Positive(t, s.TenantPool().Stat().IdleConns())
}

// After a short outage callers get new connections, even if no call noticed it.
func TestConnectionsOfBeforeAnOutageAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	_, address := storetest.SetupStore(t)
	w, through := postgrestest.NewProxy(t, address)
	s := storetest.OpenStore(t, through)
	for range 2 { // the second outage follows the first closely
		leaveIdle(t, s)
		w.Cut()
		<-time.After(250 * time.Millisecond) // shorter than the 1 s after which pgx checks a connection
		w.Restore()
		_, err := s.Tenant(t.Context(), "acme")
		require.NoError(t, err)
	}
}

func TestASessionThatIsEndedUnderWayIsUnavailable(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	err := s.OfTenant("acme").InTx(t.Context(), "change something", func(ctx context.Context, tx pgx.Tx) error {
		var pid int
		require.NoError(t, tx.QueryRow(ctx, `select pg_backend_pid()`).Scan(&pid))
		_, err := s.Pool().Exec(ctx, `select pg_terminate_backend($1, 10000)`, pid)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `select 1`)
		return err
	})
	storetest.RequireCode(t, webhook.CodeUnavailable, err)
	require.ErrorContains(t, err, "change something")
	require.NoError(t, s.Ready(t.Context()))
}

func TestAnExhaustedPoolIsUnavailableAndACallerThatLeftIsNot(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	held := make([]*pgxpool.Conn, 0, 4)
	for range 4 {
		conn, err := s.OfTenant("acme").Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, conn)
	}
	defer func() {
		for _, conn := range held {
			conn.Release()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Tenant(ctx, "acme")
	storetest.RequireCode(t, webhook.CodeUnavailable, err)

	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = s.Tenant(gone, "acme")
	require.ErrorIs(t, err, context.Canceled)
	require.NotEqual(t, webhook.CodeUnavailable, webhook.CodeOf(err))
}

func TestAfterCloseEverythingIsUnavailable(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	s.Listen(t.Context())
	s.Close()
	s.Close()
	_, err := s.Tenant(t.Context(), "acme")
	storetest.RequireCode(t, webhook.CodeUnavailable, err)
	_, err = s.Endpoints.Cache().OfTenant(t.Context(), "acme")
	storetest.RequireCode(t, webhook.CodeUnavailable, err)
}

func TestMigrateMakesSchemaAndPartitions(t *testing.T) {
	t.Parallel()
	address := postgrestest.NewEmpty(t)
	logger := slog.New(slog.DiscardHandler)
	require.NoError(t, postgres.Migrate(t.Context(), address, logger))
	require.NoError(t, postgres.Migrate(t.Context(), address, logger))
	s := storetest.OpenStore(t, address)
	require.Contains(t, storetest.Query[string](t, s, `select tablename from pg_tables where schemaname = current_schema()`),
		"deliveries_"+time.Now().UTC().Format("20060102"))
}

func TestMigratedSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	require.NoError(t, s.Migrated(t.Context()))
	empty := storetest.OpenStore(t, postgrestest.NewEmpty(t))
	require.ErrorContains(t, empty.Migrated(t.Context()), "run 'everpost migrate'")
}

// Callers that use all connections do not make the process look unready.
func TestReadyHasAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	pool := s.TenantPool()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(conn.Release)
	}
	_, err := s.Tenant(t.Context(), "acme")
	storetest.RequireCode(t, webhook.CodeUnavailable, err)
	require.NoError(t, s.Ready(t.Context()))
}
