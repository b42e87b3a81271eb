// Package storetest opens stores for tests, on a schema of their own, with tenants, endpoints and deliveries in them.
package storetest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/encryption"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/health"
	"github.com/everpost/everpost/internal/postgres/keys"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/postgres/requests"
	"github.com/everpost/everpost/internal/postgres/retention"
	"github.com/everpost/everpost/internal/postgres/sessions"
	"github.com/everpost/everpost/internal/postgres/statistics"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

// Eventually bounds waits for something that takes milliseconds on an idle machine.
const Eventually = 20 * time.Second

// Poll is the time between two looks of such a wait.
const Poll = 5 * time.Millisecond

// Stores is a DB whose stores' methods and fields are at hand.
type Stores struct {
	*stores.DB
	*postgres.Core
	*tenants.Tenants
	*keys.Keys
	*audit.Audit
	*endpoints.Endpoints
	*health.EndpointHealth
	*events.Events
	*events.Operational
	*deliveries.Deliveries
	*deliveries.Outbox
	*deliveries.Releases
	*replays.Replays
	*retention.Retention
	*encryption.Encryption
	*statistics.Statistics
	*sessions.Sessions
	*requests.Requests
}

// Close closes the DB.
func (s *Stores) Close() { s.DB.Close() }

// OpenStores opens a DB.
func OpenStores(ctx context.Context, c stores.Config) (*Stores, error) {
	db, err := stores.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Stores{
		db, db.Core, db.Tenants, db.Keys, db.Audit, db.Endpoints, db.EndpointHealth, db.Events, db.Operational, db.Deliveries, db.Outbox, db.Releases,
		db.Replays, db.Retention, db.Encryption, db.Statistics, db.Sessions, db.Requests,
	}, nil
}

// OpenStore opens a store that is closed with the test.
func OpenStore(t *testing.T, address string) *Stores {
	t.Helper()
	s, err := OpenStores(t.Context(), stores.Config{URL: address, MaxConns: 4, Sealer: NewTestSealer(t), MakeSecret: TestSecret})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// SetupStore is a store on a schema of its own with the tenant "acme".
func SetupStore(t *testing.T) (*Stores, string) {
	t.Helper()
	address := postgrestest.New(t)
	s := OpenStore(t, address)
	_, _, err := s.PutTenant(t.Context(), TestActor(), webhook.Tenant{ID: "acme", Name: "Acme"})
	require.NoError(t, err)
	return s, address
}

// TestActor makes the changes of tests.
func TestActor() webhook.Actor {
	return webhook.Actor{KeyID: webhook.NewKeyID(), RequestID: "req-1"}
}

// TestSealer seals with AES-GCM under a fixed key, so that two stores of a test
// understand each other.
type TestSealer struct{ aead cipher.AEAD }

// Seal implements postgres.Sealer.
func (s TestSealer) Seal(_ context.Context, plaintext, additional string) (postgres.Sealed, error) {
	nonce := make([]byte, s.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return postgres.Sealed{}, err
	}
	return postgres.Sealed{KEKID: "test", WrappedKey: []byte{1}, Nonce: nonce, Ciphertext: s.aead.Seal(nil, nonce, []byte(plaintext), []byte(additional))}, nil
}

// Open implements postgres.Sealer.
func (s TestSealer) Open(_ context.Context, sealed postgres.Sealed, additional string) (string, error) {
	text, err := s.aead.Open(nil, sealed.Nonce, sealed.Ciphertext, []byte(additional))
	return string(text), err
}

// NewTestSealer makes a TestSealer.
func NewTestSealer(t *testing.T) TestSealer {
	t.Helper()
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return TestSealer{aead}
}

// Query reads the one column of a query.
func Query[T any](t *testing.T, s *Stores, sql string, args ...any) []T {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), sql, args...)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return list
}

// LocksHere are the rows of pg_locks that belong to the current database, as an expression for
// FROM. Test databases are copies of one, so a table has the same oid in all of them.
const LocksHere = `(select pid, relation, mode, granted from pg_locks where database = (select oid from pg_database where datname = current_database()))`

// AwaitTableLock returns when a session waits for a lock on the table.
func AwaitTableLock(t *testing.T, pool *pgxpool.Pool, table string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), `
			select count(*) > 0 from `+LocksHere+` l where not granted and relation = $1::regclass`, table).Scan(&waits)
		return err == nil && waits
	}, Eventually, Poll)
}

// AttachPartition runs do while the partition of this day, named the_day, is being attached to
// the table: do finds the DEFAULT partition locked, and the attachment is committed before do returns.
func AttachPartition(t *testing.T, s *Stores, table string, do func() error) {
	t.Helper()
	today := time.Now().UTC().Truncate(postgres.Day)
	tx, err := s.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `create table the_day (like `+table+` including all);
		alter table `+table+` attach partition the_day for values from ('`+postgres.IDsFrom(today.Add(-postgres.Day)).String()+`')
			to ('`+postgres.IDsFrom(today.Add(2*postgres.Day)).String()+`')`)
	require.NoError(t, err)

	done := make(chan error, 1)
	go func() { done <- do() }()
	AwaitTableLock(t, s.Pool(), table+"_default")
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
}

// RequireCode requires an error of a code.
func RequireCode(t *testing.T, want webhook.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want.String(), webhook.CodeOf(err).String(), err)
}

// TestSecret makes secrets that are told apart by the number at their end.
func TestSecret(scheme string) (webhook.NewSecret, error) {
	n := strconv.FormatInt(madeSecrets.Add(1), 10)
	if scheme == webhook.SignatureV1a {
		return webhook.NewSecret{Secret: "whsk_" + n, PublicKey: "whpk_" + n}, nil
	}
	return webhook.NewSecret{Secret: "whsec_" + n}, nil
}
