// Package postgres is the record: the product's tables in PostgreSQL and the only
// SQL outside migrations. There is one file per table, a group commit for what
// comes in floods, and caches that LISTEN and NOTIFY keep true.
//
// Every method returns a *webhook.Error for what a caller can do something about;
// translate is where the driver's errors become those.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/migrations"
)

const (
	defaultMaxConns = 16

	connectTimeout   = 5 * time.Second
	keepAlive        = 15 * time.Second // pgx's own is 5 min: too long to notice a dead peer
	statementTimeout = 10 * time.Second
	lockTimeout      = 5 * time.Second

	// A flush carries other people's items: it must not wait long for one row, and
	// having waited it is halved (see groupcommit.Remedy), so that a dozen waits in a row have
	// to fit into flushTimeout. Five of them, an item's own, are longer than a table is
	// locked while a partition is attached or dropped.
	flushStatementTimeout = 5 * time.Second
	flushLockTimeout      = 500 * time.Millisecond

	idleInTxTimeout = 30 * time.Second // a session that forgot its transaction holds locks and snapshots
	maxConnIdle     = 5 * time.Minute
	maxConnLifetime = time.Hour
	lifetimeJitter  = 10 * time.Minute

	acquireTimeout = 3 * time.Second  // wait for a free connection
	callTimeout    = 15 * time.Second // one call with all its statements; longer than any of them
	readyTimeout   = 2 * time.Second

	// A migration may rewrite an index, but must not queue up behind a long
	// transaction: what comes after it in the lock's queue waits too.
	migrateLockTimeout = 10 * time.Second
	migrateConns       = 3 // one holds the lock, one migrates
)

// Sealed is something encrypted with a data key of its own, and that key
// encrypted with the key-encryption key KEKID.
type Sealed struct {
	KEKID      string
	WrappedKey []byte
	Nonce      []byte
	Ciphertext []byte
}

// Sealer encrypts what must not lie in the database as it is. Additional is bound
// to the result: opening with another one fails, so that rows cannot be swapped.
type Sealer interface {
	Seal(ctx context.Context, plaintext, additional string) (Sealed, error)
	Open(ctx context.Context, sealed Sealed, additional string) (plaintext string, err error)
}

// Config is what a Store needs.
type Config struct {
	// URL is a connection string, postgres://user@host/database?search_path=schema.
	// What it sets itself (timeouts, application_name) is not overridden. Required.
	URL string

	// MaxConns bounds the pool of what is done for tenants and operators, and half of it
	// that of a worker's part. The group commits have one connection each of their own
	// (three), so that no flood of reads can stop them; the listener uses one more.
	// Defaults to 16.
	MaxConns int32

	// Sealer encrypts endpoint secrets and headers. Without one, methods that need
	// it fail; the command line's key management does not.
	Sealer Sealer

	// MakeSecret makes a signing secret for a signature scheme. Without one, secrets
	// cannot be rotated, nor schemes changed.
	MakeSecret func(scheme string) (webhook.NewSecret, error)

	// EndpointMoved is told of every endpoint that leads elsewhere now, or has another
	// state, once that is committed, by whichever process, while this one listens. It
	// must be quick. May be nil.
	EndpointMoved func(webhook.EndpointID)

	// OperatorTenant is the tenant whose endpoints are told of every tenant's operational
	// events. Defaults to none.
	OperatorTenant string

	// Limits are those of a tenant that has none of its own. Defaults to none.
	Limits webhook.Limits

	// RetryPolicy is that of endpoints that have none of their own, nor their tenant.
	// Defaults to retry.Default.
	RetryPolicy retry.Policy

	// Sends says that this process sends to endpoints: those of an event are read, if they
	// are not in the cache, while it is being stored.
	Sends bool

	// Now is this process's clock, which may be wrong: see Store.Now. Defaults to time.Now.
	Now func() time.Time

	// Logger gets what happens in the background. Defaults to none.
	Logger *slog.Logger
}

// Store is the record. It is safe for concurrent use.
type Store struct {
	pool   *pgxpool.Pool // for tenants and operators: see who
	work   *pgxpool.Pool // for a worker's part
	door   *pgxpool.Pool // of the group commit of events
	writer *pgxpool.Pool // of the group commits of records and claims
	login  *pgxpool.Pool // in the login's own name; opens no connection by itself
	sealer Sealer
	log    *slog.Logger
	clock  *clock

	makeSecret     func(scheme string) (webhook.NewSecret, error)
	endpointMoved  func(webhook.EndpointID) // may be nil
	operatorTenant string                   // "" for none
	sends          bool
	retryPolicy    retry.Policy // of the installation

	misnamed string // in tests of the wall: the tenant that ofTenant names, whichever it was asked for

	endpointCache *EndpointCache
	keyCache      *KeyCache
	lists         *listTurns
	quotas        *quotas
	heard         heartbeat

	ingest   *groupcommit.Writer[*intake]
	records  *groupcommit.Writer[*recording]
	claims   *groupcommit.Writer[*claiming]
	inFlight keysUnderWay

	leftOpen chan struct{} // asks Maintain to look for what a deleted endpoint left open

	life       context.Context //nolint:containedctx // ended by Close: what runs in the background has no caller
	end        context.CancelFunc
	background sync.WaitGroup
	listenOnce sync.Once
	closeOnce  sync.Once
}

// Open makes a Store. It does not wait for the database: while that is away every
// method returns CodeUnavailable, and Ready says so. An error means that the
// configuration is unusable.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sealer == nil {
		c.Sealer = noSealer{}
	}
	if c.MakeSecret == nil {
		c.MakeSecret = func(string) (webhook.NewSecret, error) { return webhook.NewSecret{}, errNoSealer() }
	}
	if c.RetryPolicy.IsZero() {
		c.RetryPolicy = retry.Default()
	}
	s := &Store{
		sealer: c.Sealer, makeSecret: c.MakeSecret, log: c.Logger, endpointMoved: c.EndpointMoved, operatorTenant: c.OperatorTenant, sends: c.Sends,
		retryPolicy: c.RetryPolicy, clock: newClock(c.Now, c.Logger),
		inFlight: keysUnderWay{keys: map[string]struct{}{}}, leftOpen: make(chan struct{}, 1),
	}
	// Not ctx: it ends the opening, and the pools would take it for their own life.
	if err := s.openPools(context.WithoutCancel(ctx), c); err != nil {
		s.closePools()
		return nil, err
	}
	s.lists = newListTurns(s.pool.Config().MaxConns)
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.endpointCache = newEndpointCache(s)
	s.keyCache = newKeyCache(s)
	s.quotas = newQuotas(s, c.Limits)
	s.openWriters()
	return s, nil
}

// openPools makes the pools, each with the role that its work needs.
func (s *Store) openPools(ctx context.Context, c Config) error {
	config, err := poolConfig(c)
	if err != nil {
		return err
	}
	work := config.Copy()
	work.MaxConns = max(2, config.MaxConns/2) //nolint:mnd // half
	for _, p := range []struct {
		pool   **pgxpool.Pool
		config *pgxpool.Config
	}{
		{&s.pool, takeRole(config.Copy(), RoleAPI, RoleWorker)},
		{&s.work, takeRole(work, RoleWorker)},
		{&s.door, takeRole(writerConfig(config, 1), RoleIngest)},
		{&s.writer, takeRole(writerConfig(config, 2), RoleWorker)},
		{&s.login, config},
	} {
		if *p.pool, err = pgxpool.NewWithConfig(ctx, p.config); err != nil {
			return fmt.Errorf("open database: %w", err)
		}
	}
	return nil
}

func (s *Store) closePools() {
	for _, pool := range s.pools() {
		if pool != nil {
			pool.Close()
		}
	}
}

func (s *Store) pools() []*pgxpool.Pool {
	return []*pgxpool.Pool{s.door, s.writer, s.work, s.pool, s.login}
}

// resetPools has every call begin with a connection that was opened after this moment. One
// that was in use within the last second is not looked at before it is used again.
func (s *Store) resetPools() {
	for _, pool := range s.pools() {
		pool.Reset()
	}
}

// Weights of the items in one flush of each group commit.
const (
	intakeWeight = 100
	recordWeight = 200
	claimWeight  = 200
)

func (s *Store) openWriters() {
	s.ingest = newWriter("accept event", intakeWeight, s.flushIntake)
	s.records = newWriter("record delivery", recordWeight, s.flushRecords)
	s.claims = newWriter("claim attempt", claimWeight, s.flushClaims)
}

// Close writes what was handed in, ends what runs in the background and closes
// every connection. Calls under way finish first; later ones fail.
func (s *Store) Close() {
	s.closeOnce.Do(func() {
		s.ingest.Stop()
		s.claims.Stop()
		s.records.Stop()
		s.end()
		s.background.Wait()
		s.endpointCache.close()
		s.keyCache.close()
		s.quotas.close()
		s.closePools()
	})
}

// Pool is a pool of connections in the name of the login itself, for what has no method
// here: tests. The store does not use it.
func (s *Store) Pool() *pgxpool.Pool { return s.login }

// ConnectionsUsed is how many connections are in use.
func (s *Store) ConnectionsUsed() (n int) {
	for _, pool := range []*pgxpool.Pool{s.door, s.writer, s.work, s.pool} {
		n += int(pool.Stat().AcquiredConns())
	}
	return n
}

// EndpointCache is the store's cache of endpoints.
func (s *Store) EndpointCache() *EndpointCache { return s.endpointCache }

// Ready returns nil when the database answers and takes writes; CodeUnavailable
// otherwise, also for a standby. It also looks at the database's clock: see Now.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var readOnly string
	if err := s.pool.QueryRow(ctx, `show transaction_read_only`).Scan(&readOnly); err != nil {
		return translate("check database", err)
	}
	if err := s.clock.ask(ctx, s.pool); err != nil {
		return translate("check database", err)
	}
	if readOnly != "off" {
		return unavailable("check database", errors.New("the database is read-only: a standby?"))
	}
	return nil
}

// Migrated returns nil when the database has the tables that this release needs. It
// says what to do otherwise: a database of an older release is to be migrated, one of
// a newer release needs that release.
func (s *Store) Migrated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	db := stdlib.OpenDBFromPool(s.pool)
	defer func() { _ = db.Close() }()
	current, newest, err := migrations.Version(ctx, db)
	if errors.Is(err, migrations.ErrNewer) {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" {
		return errors.New("the database is of a release before roles, or its schema is not the login's: run 'everpost migrate'")
	}
	if err != nil {
		return translate("look at the database's version", err)
	}
	if current < newest {
		return fmt.Errorf("the database is at version %d and has to be at %d: run 'everpost migrate'", current, newest)
	}
	return nil
}

// Migrate brings the database of a connection string up to date and makes the
// partitions of the days around today. Several processes may call it at once.
func Migrate(ctx context.Context, url string, logger *slog.Logger) error {
	config, err := poolConfig(Config{URL: url, MaxConns: migrateConns})
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["statement_timeout"] = "0"
	config.ConnConfig.RuntimeParams["lock_timeout"] = milliseconds(migrateLockTimeout)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()

	if err := migrations.Up(ctx, db, logger); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	return ensurePartitions(ctx, pool, logger, time.Now())
}

func poolConfig(c Config) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", err) // pgx leaves the password out
	}
	config.MaxConns = c.MaxConns
	if config.MaxConns <= 0 {
		config.MaxConns = defaultMaxConns
	}
	config.MaxConnIdleTime = maxConnIdle
	config.MaxConnLifetime = maxConnLifetime
	config.MaxConnLifetimeJitter = lifetimeJitter

	config.ConnConfig.ConnectTimeout = connectTimeout
	dialer := &net.Dialer{KeepAlive: keepAlive, Timeout: connectTimeout}
	config.ConnConfig.DialFunc = dialer.DialContext
	params := config.ConnConfig.RuntimeParams
	for name, value := range map[string]string{
		"application_name":                    "everpost",
		"statement_timeout":                   milliseconds(statementTimeout),
		"lock_timeout":                        milliseconds(lockTimeout),
		"idle_in_transaction_session_timeout": milliseconds(idleInTxTimeout),
	} {
		if _, set := params[name]; !set {
			params[name] = value
		}
	}
	return config, nil
}

// writerConfig is a pool of group commits: a connection for each writer.
func writerConfig(of *pgxpool.Config, conns int32) *pgxpool.Config {
	config := of.Copy()
	config.MaxConns = conns
	config.MinConns, config.MinIdleConns = 0, 0
	config.ConnConfig.RuntimeParams["statement_timeout"] = milliseconds(flushStatementTimeout)
	config.ConnConfig.RuntimeParams["lock_timeout"] = milliseconds(flushLockTimeout)
	// A plan is made when the tables may be nearly empty, where reading a whole one seems cheap,
	// and kept when they are full. Every row that a group commit looks for has an index.
	config.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
	return config
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// noSealer stands in where no secrets are to be read or written.
type noSealer struct{}

func (noSealer) Seal(context.Context, string, string) (Sealed, error) { return Sealed{}, errNoSealer() }
func (noSealer) Open(context.Context, Sealed, string) (string, error) { return "", errNoSealer() }

func errNoSealer() error {
	return &webhook.Error{Code: webhook.CodeInternal, Message: "no key-encryption key is configured"}
}
