// Package stores opens a DB: the product's data in PostgreSQL, with one small store per concern.
// These packages hold the only SQL outside migrations:
//
//	package      store           tables that it writes
//	tenants      Tenants         tenants, deleted_tenants
//	keys         Keys            api_keys
//	audit        Audit           audit_log; every store writes it through audit.Write
//	requests     Requests        request_keys; audit.Write writes it too
//	endpoints    Endpoints       endpoints, endpoint_secrets
//	health       EndpointHealth  endpoint_health, circuit_closings, endpoint_trouble
//	events       Events          events, idempotency_keys, lines
//	deliveries   Deliveries      deliveries, attempts, outbox
//	             Outbox          outbox, and the commands of deliveries
//	             Releases        releases, outbox
//	replays      Replays         replays, replay_releases, and new runs of deliveries
//	statistics   Statistics      statistics_minutes, statistics_hours, statistics_writers
//	retention    Retention       removes events, deliveries and attempts, by the day and of tenants, and external ids
//	encryption   Encryption      the sealed columns of endpoints, endpoint_secrets and notification_keys
//	sessions     Sessions        console_links, console_sessions
//	lanes        Lanes           lanes, processes
//	notifications Notifications  notification_…
//	notifications Mails          takes and ends rows of notification_mails, and writes notification_confirmations
//	eventtypes   EventTypes      event_types, event_type_versions
//
// A package writes another's rows through its functions, except that replays opens new runs of
// deliveries itself, many at a time. All share the core, package postgres.
package stores

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/encryption"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/eventtypes"
	"github.com/everpost/everpost/internal/postgres/health"
	"github.com/everpost/everpost/internal/postgres/keys"
	"github.com/everpost/everpost/internal/postgres/lanes"
	"github.com/everpost/everpost/internal/postgres/notifications"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/postgres/requests"
	"github.com/everpost/everpost/internal/postgres/retention"
	"github.com/everpost/everpost/internal/postgres/sessions"
	"github.com/everpost/everpost/internal/postgres/statistics"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Config is what a DB needs.
type Config struct {
	// URL is a connection string, postgres://user@host/database?search_path=schema.
	// What it sets itself (timeouts, application_name) is not overridden. Required.
	URL string

	// MaxConns bounds the pool that serves tenants and operators; a worker's pool has half
	// of it. The group commits have four connections of their own, so that no flood of
	// reads can stop them; the listener uses one more. Defaults to 16.
	MaxConns int32

	// Sealer encrypts endpoint secrets and headers. Without one, methods that need
	// it fail; the command line's key management does not.
	Sealer postgres.Sealer

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

	// KnownTypesOnly refuses events of types that are not in the catalogue, or are archived.
	KnownTypesOnly bool

	// RunningReplays is how many replays run at a time, of all tenants. Defaults to replays.DefaultRunning.
	RunningReplays int

	// RetryPolicy is that of endpoints that have none of their own, nor their tenant.
	// Defaults to retry.Default.
	RetryPolicy retry.Policy

	// Sends says that this process sends to endpoints: while it stores an event, it reads those
	// of the event's endpoints that are not in the cache.
	Sends bool

	// Now is this process's clock, which may be off: see DB.Now. Defaults to time.Now.
	Now func() time.Time

	// Logger is for background work. Defaults to none.
	Logger *slog.Logger

	// Flushes sees the flushes of the group commits events, steps and claims. May be nil.
	Flushes postgres.FlushObserver

	// Notice gets what the server says beside results, such as the plans of auto_explain. It is called by many
	// goroutines. May be nil.
	Notice func(*pgconn.Notice)
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sealer == nil {
		c.Sealer = postgres.NoSealer{}
	}
	if c.MakeSecret == nil {
		c.MakeSecret = func(string) (webhook.NewSecret, error) { return webhook.NewSecret{}, postgres.ErrNoSealer() }
	}
	if c.RetryPolicy.IsZero() {
		c.RetryPolicy = retry.Default()
	}
	return c
}

// DB is a database and its stores. All are safe for concurrent use.
type DB struct {
	Tenants        *tenants.Tenants
	Keys           *keys.Keys
	Audit          *audit.Audit
	Endpoints      *endpoints.Endpoints
	EndpointHealth *health.EndpointHealth
	Events         *events.Events
	Operational    *events.Operational
	Deliveries     *deliveries.Deliveries
	Outbox         *deliveries.Outbox
	Releases       *deliveries.Releases
	Replays        *replays.Replays
	Retention      *retention.Retention
	Encryption     *encryption.Encryption
	Statistics     *statistics.Statistics
	Sessions       *sessions.Sessions
	Lanes          *lanes.Lanes
	Requests       *requests.Requests
	Notifications  *notifications.Notifications
	Mails          *notifications.Mails
	EventTypes     *eventtypes.EventTypes

	*postgres.Core

	quotas    *tenants.Quotas
	closeOnce sync.Once
}

// Open makes a DB. It does not wait for the database: while that is away, every method
// and Ready return CodeUnavailable. An error means that the configuration is unusable.
func Open(ctx context.Context, c Config) (*DB, error) {
	c = c.withDefaults()
	s, err := postgres.Open(ctx, postgres.Config{
		URL: c.URL, MaxConns: c.MaxConns, EndpointMoved: c.EndpointMoved, Now: c.Now, Logger: c.Logger, Flushes: c.Flushes, Notice: c.Notice,
	})
	if err != nil {
		return nil, err
	}
	db := &DB{
		Core: s, quotas: tenants.NewQuotas(s, c.Limits),
		Keys: keys.New(s), Audit: audit.New(s), Outbox: deliveries.NewOutbox(s), Releases: deliveries.NewReleases(s), Encryption: encryption.New(s),
		Statistics: statistics.New(s), Sessions: sessions.New(s), Lanes: lanes.New(s), Requests: requests.New(s, c.Sealer),
	}
	db.EventTypes = eventtypes.New(s, eventtypes.Config{KnownOnly: c.KnownTypesOnly})
	read := endpoints.NewReader(s, c.Sealer, c.RetryPolicy)
	cache := endpoints.NewCache(read)
	db.Tenants = tenants.New(s, db.quotas)
	db.Deliveries = deliveries.New(s, read)
	db.Events = events.New(s, events.Config{
		Endpoints: read, Cache: cache, Quotas: db.quotas, Deliveries: db.Deliveries, Sends: c.Sends, Types: db.EventTypes,
	})
	db.Operational = events.NewOperational(s, db.Events, db.Tenants, c.OperatorTenant)
	db.Endpoints = endpoints.New(endpoints.Config{
		Reader: read, Cache: cache, Quotas: db.quotas, Events: stateNotes{db.Operational}, Deliveries: db.Deliveries, Releases: db.Releases,
		Failures: health.FailureRecord{}, MakeSecret: c.MakeSecret,
	})
	db.EndpointHealth = health.New(s, db.Endpoints)
	db.Notifications = notifications.New(s, notifications.Config{
		Endpoints: db.Endpoints, Events: db.Operational, OperatorTenant: c.OperatorTenant, RetryPolicy: c.RetryPolicy, Sealer: c.Sealer,
	})
	db.Mails = notifications.NewMails(db.Notifications)
	db.Replays = replays.New(s, db.Operational, db.quotas, c.RetryPolicy,
		replays.Limits{Tenant: c.Limits.RunningReplays, Overall: c.RunningReplays})
	db.Retention = retention.New(s, db.Deliveries)
	return db, nil
}

// Close writes what is queued, ends background work and closes every connection. Calls
// under way finish first; later ones fail.
func (db *DB) Close() {
	db.closeOnce.Do(func() {
		db.Events.Close()
		db.Deliveries.Close()
		db.Stop()
		db.Endpoints.Cache().Close()
		db.Keys.Close()
		db.quotas.Close()
		db.EventTypes.Close()
		db.ClosePools()
	})
}

// Listen listens for the changes of all processes, and writes when keys were last used, in
// the background until ctx ends or Close. It reconnects by itself. Without it the caches
// still work, with a short time to live.
func (db *DB) Listen(ctx context.Context) { db.StartListening(ctx, db.Keys.UseLoop) }

// stateNotes writes, with a change of an endpoint's state, its operational event and what people may have to be told of it.
type stateNotes struct{ events *events.Operational }

func (n stateNotes) NoteState(ctx context.Context, tx pgx.Tx, e *webhook.Endpoint) error {
	if err := notifications.NoteState(ctx, tx, e); err != nil {
		return err
	}
	return n.events.NoteState(ctx, tx, e)
}
