package postgres

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

// eventually bounds waits for something that takes milliseconds on an idle machine.
const (
	eventually = 20 * time.Second
	poll       = 5 * time.Millisecond
)

// stores is a DB whose stores' methods and fields are at hand.
type stores struct {
	*DB
	*core
	*Tenants
	*Keys
	*Audit
	*Endpoints
	*EndpointHealth
	*Events
	*Deliveries
	*Outbox
	*Held
	*Replays
	*Retention
	*Encryption
}

func openStores(ctx context.Context, c Config) (*stores, error) {
	db, err := Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &stores{
		db, db.core, db.Tenants, db.Keys, db.Audit, db.Endpoints, db.EndpointHealth, db.Events, db.Deliveries, db.Outbox, db.Held,
		db.Replays, db.Retention, db.Encryption,
	}, nil
}

// openStore opens a store that is closed with the test.
func openStore(t *testing.T, address string) *stores {
	t.Helper()
	s, err := openStores(t.Context(), Config{URL: address, MaxConns: 4, Sealer: newTestSealer(t), MakeSecret: testSecret})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// setupStore is a store on a schema of its own with the tenant "acme".
func setupStore(t *testing.T) (*stores, string) {
	t.Helper()
	address := postgrestest.New(t)
	s := openStore(t, address)
	_, _, err := s.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: "acme", Name: "Acme"})
	require.NoError(t, err)
	return s, address
}

func testActor() webhook.Actor {
	return webhook.Actor{KeyID: webhook.NewKeyID(), RequestID: "req-1"}
}

// testSealer seals with AES-GCM under a fixed key, so that two stores of a test
// understand each other.
type testSealer struct{ aead cipher.AEAD }

func newTestSealer(t *testing.T) testSealer {
	t.Helper()
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return testSealer{aead}
}

func (s testSealer) Seal(_ context.Context, plaintext, additional string) (Sealed, error) {
	nonce := make([]byte, s.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return Sealed{}, err
	}
	return Sealed{KEKID: "test", WrappedKey: []byte{1}, Nonce: nonce, Ciphertext: s.aead.Seal(nil, nonce, []byte(plaintext), []byte(additional))}, nil
}

func (s testSealer) Open(_ context.Context, sealed Sealed, additional string) (string, error) {
	text, err := s.aead.Open(nil, sealed.Nonce, sealed.Ciphertext, []byte(additional))
	return string(text), err
}

// query reads the one column of a query.
func query[T any](t *testing.T, s *stores, sql string, args ...any) []T {
	t.Helper()
	rows, err := s.login.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return list
}

func requireCode(t *testing.T, want webhook.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want.String(), webhook.CodeOf(err).String(), err)
}

func TestReady(t *testing.T) {
	t.Parallel()
	s, address := setupStore(t)
	require.NoError(t, s.Ready(t.Context()))

	standby := openStore(t, address+"&default_transaction_read_only=on")
	requireCode(t, webhook.CodeUnavailable, standby.Ready(t.Context()))
	_, _, err := standby.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: "beta"})
	requireCode(t, webhook.CodeUnavailable, err)
}

func TestOpenRefusesABadURLWithoutRepeatingThePassword(t *testing.T) {
	t.Parallel()
	_, err := openStores(t.Context(), Config{URL: "postgres://user:hunter2@host:notaport/db"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestSessionsAreBoundedAndNamed(t *testing.T) {
	t.Parallel()
	s, address := setupStore(t)
	for setting, want := range map[string]string{
		"statement_timeout": "10s", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "30s", "application_name": "everpost",
	} {
		require.Equal(t, []string{want}, query[string](t, s, `select current_setting($1)`, setting), setting)
	}
	own := openStore(t, address+"&statement_timeout=7s")
	require.Equal(t, []string{"7s"}, query[string](t, own, `show statement_timeout`), "what the URL says wins")
}

func TestALostDatabaseIsUnavailableUntilItIsBack(t *testing.T) {
	t.Parallel()
	_, address := setupStore(t)
	w, through := postgrestest.NewProxy(t, address)
	s := openStore(t, through)
	require.NoError(t, s.Ready(t.Context()))

	w.Cut()
	for name, call := range map[string]func() error{
		"ready":  func() error { return s.Ready(t.Context()) },
		"read":   func() error { _, err := s.Tenant(t.Context(), "acme"); return err },
		"write":  func() error { return s.DeleteTenant(t.Context(), testActor(), "acme") },
		"cache":  func() error { _, _, err := s.Endpoints.cache.OfTenant(t.Context(), "acme"); return err },
		"key":    func() error { _, err := s.Authenticate(t.Context(), webhook.NewKeyID(), [32]byte{}); return err },
		"target": func() error { _, err := s.Target(t.Context(), webhook.NewEndpointID()); return err },
	} {
		err := call()
		require.Equal(t, webhook.CodeUnavailable.String(), webhook.CodeOf(err).String(), "%s: %v", name, err)
		e, ok := errors.AsType[*webhook.Error](err)
		require.True(t, ok)
		require.Equal(t, time.Second, e.RetryAfter, name)
	}

	w.Mend()
	require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, eventually, poll)
	_, err := s.Tenant(t.Context(), "acme")
	require.NoError(t, err)
}

func TestASessionThatIsEndedUnderWayIsUnavailable(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	err := s.ofTenant("acme").inTx(t.Context(), "change something", func(ctx context.Context, tx pgx.Tx) error {
		var pid int
		require.NoError(t, tx.QueryRow(ctx, `select pg_backend_pid()`).Scan(&pid))
		_, err := s.login.Exec(ctx, `select pg_terminate_backend($1, 10000)`, pid)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `select 1`)
		return err
	})
	requireCode(t, webhook.CodeUnavailable, err)
	require.ErrorContains(t, err, "change something")
	require.NoError(t, s.Ready(t.Context()))
}

func TestAnExhaustedPoolIsUnavailableAndACallerThatLeftIsNot(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	held := make([]*pgxpool.Conn, 0, 4)
	for range 4 {
		conn, err := s.ofTenant("acme").acquire(t.Context())
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
	requireCode(t, webhook.CodeUnavailable, err)

	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = s.Tenant(gone, "acme")
	require.ErrorIs(t, err, context.Canceled)
	require.NotEqual(t, webhook.CodeUnavailable, webhook.CodeOf(err))
}

func TestAfterCloseEverythingIsUnavailable(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	s.Listen(t.Context())
	s.Close()
	s.Close()
	_, err := s.Tenant(t.Context(), "acme")
	requireCode(t, webhook.CodeUnavailable, err)
	_, _, err = s.Endpoints.cache.OfTenant(t.Context(), "acme")
	requireCode(t, webhook.CodeUnavailable, err)
}

func TestMigrateMakesSchemaAndPartitions(t *testing.T) {
	t.Parallel()
	address := postgrestest.NewEmpty(t)
	logger := slog.New(slog.DiscardHandler)
	require.NoError(t, Migrate(t.Context(), address, logger))
	require.NoError(t, Migrate(t.Context(), address, logger))
	s := openStore(t, address)
	require.Contains(t, query[string](t, s, `select tablename from pg_tables where schemaname = current_schema()`),
		"deliveries_"+time.Now().UTC().Format("20060102"))
}

func TestMigratedSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	require.NoError(t, s.Migrated(t.Context()))
	empty := openStore(t, postgrestest.NewEmpty(t))
	require.ErrorContains(t, empty.Migrated(t.Context()), "run 'everpost migrate'")
}
