// Package postgres stores the product's data in PostgreSQL. It holds the only SQL outside
// migrations.
//
// A DB has one small store per concern, and a store's files bear its name:
//
//	Tenants         tenants.go, tenant_*.go           tenants, deleted_tenants
//	Keys            keys.go, key_*.go                 api_keys
//	Audit           audit.go, audit_list.go           audit_log; every store writes it through audit
//	Endpoints       endpoints.go, endpoint_*.go       endpoints, endpoint_secrets
//	EndpointHealth  endpoint_health.go, _circuit.go,  endpoint_health, circuit_closings,
//	                _failures.go, _disable.go         endpoint_trouble
//	Events          events.go, event_*.go             events, idempotency_keys, outbox
//	Deliveries      deliveries.go, delivery_*.go      deliveries, attempts, outbox
//	Outbox          outbox.go, outbox_commands.go     outbox, and the commands of deliveries
//	Held            held.go, held_release.go          outbox
//	Replays         replays.go, replay_*.go           replays, replay_releases, deliveries, outbox
//	Retention       retention.go, retention_*.go      removes events, deliveries and attempts by the day
//	Encryption      encryption_rewrap.go              the sealed columns of endpoints and endpoint_secrets
//
// They share a core (core.go): the pools, the role of each statement (role.go, statements.go),
// the errors (errors.go), the database's clock (clock.go), and the changes that processes
// notify each other of, which keep the caches true (listen.go). Writes of many
// callers are batched in a group commit (writers.go, columns.go).
//
// Every method returns a *webhook.Error when the caller can act on it; translate makes those
// of the driver's errors.
package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Config is what a DB needs.
type Config struct {
	// URL is a connection string, postgres://user@host/database?search_path=schema.
	// What it sets itself (timeouts, application_name) is not overridden. Required.
	URL string

	// MaxConns bounds the pool that serves tenants and operators; a worker's pool has half
	// of it. The group commits have three connections of their own, so that no flood of
	// reads can stop them; the listener uses one more. Defaults to 16.
	MaxConns int32

	// Sealer encrypts endpoint secrets and headers. Without one, methods that need
	// it fail; the command line's key management does not.
	Sealer Sealer

	// MakeSecret makes a signing secret for a signature scheme. Without one, secrets
	// cannot be rotated, nor schemes changed.
	MakeSecret func(scheme string) (webhook.NewSecret, error)

	// EndpointMoved is called for every endpoint whose URL or state has changed, once that is
	// committed, by any process, while this one listens. It must be quick. May be nil.
	EndpointMoved func(webhook.EndpointID)

	// OperatorTenant is the tenant whose endpoints receive every tenant's operational
	// events. Defaults to none.
	OperatorTenant string

	// Limits are those of a tenant that has none of its own. Defaults to none.
	Limits webhook.Limits

	// RetryPolicy is that of endpoints that have none of their own, nor their tenant.
	// Defaults to retry.Default.
	RetryPolicy retry.Policy

	// Sends says that this process sends to endpoints: while an event is being stored, those
	// of its endpoints that are not in the cache are read.
	Sends bool

	// Now is this process's clock, which may be wrong: see DB.Now. Defaults to time.Now.
	Now func() time.Time

	// Logger gets what happens in the background. Defaults to none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
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
	return c
}

// DB is a database and its stores. All are safe for concurrent use.
type DB struct {
	Tenants        *Tenants
	Keys           *Keys
	Audit          *Audit
	Endpoints      *Endpoints
	EndpointHealth *EndpointHealth
	Events         *Events
	Deliveries     *Deliveries
	Outbox         *Outbox
	Held           *Held
	Replays        *Replays
	Retention      *Retention
	Encryption     *Encryption

	core      *core
	quotas    *quotas
	closeOnce sync.Once
}

// Open makes a DB. It does not wait for the database: while that is away every
// method returns CodeUnavailable, and Ready says so. An error means that the
// configuration is unusable.
func Open(ctx context.Context, c Config) (*DB, error) {
	c = c.withDefaults()
	s, err := openCore(ctx, c)
	if err != nil {
		return nil, err
	}
	s.subscribe(endpointMoved(c.EndpointMoved))
	db := &DB{
		core: s, quotas: newQuotas(s, c.Limits),
		Keys: newKeys(s), Audit: &Audit{s}, Outbox: &Outbox{s}, Held: &Held{s}, Encryption: &Encryption{s},
	}
	read := endpointReader{core: s, sealer: c.Sealer, retryPolicy: c.RetryPolicy}
	cache := newEndpointCache(read)
	db.Tenants = &Tenants{core: s, quotas: db.quotas}
	db.Deliveries = newDeliveries(s, read)
	db.Events = newEvents(s, eventsConfig{
		endpoints: read, cache: cache, quotas: db.quotas, tenants: db.Tenants, deliveries: db.Deliveries,
		operatorTenant: c.OperatorTenant, sends: c.Sends,
	})
	db.Endpoints = &Endpoints{
		endpointReader: read, cache: cache, quotas: db.quotas, events: db.Events, deliveries: db.Deliveries, makeSecret: c.MakeSecret,
	}
	db.EndpointHealth = &EndpointHealth{core: s, endpoints: db.Endpoints}
	db.Replays = &Replays{core: s, events: db.Events, retryPolicy: c.RetryPolicy}
	db.Retention = &Retention{core: s, deliveries: db.Deliveries}
	return db, nil
}

// Close writes what was handed in, ends what runs in the background and closes
// every connection. Calls under way finish first; later ones fail.
func (db *DB) Close() {
	db.closeOnce.Do(func() {
		db.Events.close()
		db.Deliveries.close()
		db.core.end()
		db.core.background.Wait()
		db.Endpoints.cache.close()
		db.Keys.cache.close()
		db.quotas.close()
		db.core.closePools()
	})
}

// Pool is a pool of connections with the rights of the login itself, for tests. The stores
// do not use it.
func (db *DB) Pool() *pgxpool.Pool { return db.core.login }

// ConnectionsUsed is the number of connections in use.
func (db *DB) ConnectionsUsed() (n int) {
	for _, pool := range db.core.pools() {
		if pool != db.core.login {
			n += int(pool.Stat().AcquiredConns())
		}
	}
	return n
}

// Now is the time by the database's clock, as exactly as a round trip tells. Until the
// database was asked first, by Ready or Listen, it is the process's own time.
func (db *DB) Now() time.Time { return db.core.now() }

// ClockOffset is how far this process's clock is ahead of the database's.
func (db *DB) ClockOffset() time.Duration { return db.core.clock.offset() }

// May reports whether the login may take a role. A login with RoleAPI also has RoleOperator
// and RoleIngest, one with RoleWorker has RoleIngest.
func (db *DB) May(ctx context.Context, role string) (bool, error) { return db.core.may(ctx, role) }

// Ready returns nil when the database answers and takes writes; CodeUnavailable
// otherwise, also for a standby. It also looks at the database's clock: see Now.
func (db *DB) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var readOnly string
	if err := db.core.pool.QueryRow(ctx, `show transaction_read_only`).Scan(&readOnly); err != nil {
		return translate("check database", err)
	}
	if err := db.core.clock.ask(ctx, db.core.pool); err != nil {
		return translate("check database", err)
	}
	if readOnly != "off" {
		return unavailable("check database", errors.New("the database is read-only: a standby?"))
	}
	return nil
}

// Listen begins to hear the changes of every process, and to write when keys were
// last used; it returns at once. It goes on until ctx ends or Close, reconnecting
// for as long as it takes. Without it the caches still work, with a short
// time to live.
func (db *DB) Listen(ctx context.Context) {
	db.core.listenOnce.Do(func() {
		ctx, cancel := context.WithCancel(ctx)
		context.AfterFunc(db.core.life, cancel) //nolint:contextcheck // whichever ends first
		db.core.background.Go(func() { db.core.listenLoop(ctx) })
		db.core.background.Go(func() { db.Keys.useLoop(ctx) })
	})
}

// Listening reports whether changes made by other processes are being heard.
func (db *DB) Listening() bool { return db.core.changes.heard.alive() }
