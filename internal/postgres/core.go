// Package postgres holds what the stores in the packages below it share: the connection pools
// (core.go), the role and the transaction of each statement (role.go, statements.go), the errors
// (errors.go), the database's clock (clock.go), the notifications of changes, which keep the caches
// up to date (listen.go), the group commits (groupcommit.go, columns.go), lists (filter.go,
// list_limit.go) and partitions (partitions.go). Package stores opens the stores.
//
// Every method of a store returns a *webhook.Error when the caller can act on it; Translate makes
// one from an error of the driver.
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

	"github.com/everpost/everpost/internal/webhook"
)

const (
	defaultMaxConns = 16

	connectTimeout   = 5 * time.Second
	keepAlive        = 15 * time.Second // pgx's own is 5 min: too long to notice a dead peer
	statementTimeout = 10 * time.Second
	lockTimeout      = 5 * time.Second

	// A flush carries items of many callers, so it must not wait long for one row. After a
	// timeout the items that wait for a lock are written apart (see groupcommit.Apart); where they cannot be found, it is
	// halved: a dozen waits in a row have to fit into
	// the time of a batch. Five of them, for a single item, take longer than a table is
	// locked while a partition is attached or dropped.
	flushStatementTimeout = 5 * time.Second
	flushLockTimeout      = 500 * time.Millisecond

	idleInTxTimeout   = 30 * time.Second // a session that forgot its transaction holds locks and snapshots
	ingestIdleTimeout = 5 * time.Second
	maxConnIdle       = 5 * time.Minute
	maxConnLifetime   = time.Hour
	lifetimeJitter    = 10 * time.Minute
	uncheckedIdle     = 200 * time.Millisecond // shorter than a restart of a server takes; pgx's own is 1 s

	acquireTimeout = 10 * time.Second // wait for a free connection: few connections make callers wait, and not fail
	callTimeout    = 15 * time.Second // one call with all its statements; longer than any of them
	readyTimeout   = 2 * time.Second
)

// Core is what all stores of a DB share: the pools, each with the role that its work needs,
// the database's clock, and the notifications of changes between processes.
type Core struct {
	pool       *pgxpool.Pool // for tenants and operators
	WorkPool   *pgxpool.Pool // for a worker
	EventsPool *pgxpool.Pool // of the group commits of events
	StepPool   *pgxpool.Pool // of the group commits of steps and claims
	StepTurn   sync.Mutex    // held by what writes those of them that wait for a lock
	login      *pgxpool.Pool // with the login's own rights; opens no connection by itself
	probe      *pgxpool.Pool // of Ready: one connection that nothing else uses

	Log      *slog.Logger
	clock    *clock
	readOnly rounds // of all pools, begun by Ready
	lists    *listLimit
	changes  changeBus
	flushes  FlushObserver // nil: nobody observes

	misnamed string // in tests of row-level security: the tenant that OfTenant names, whatever its argument

	life       context.Context //nolint:containedctx // ended by Stop: background work has no caller
	end        context.CancelFunc
	background sync.WaitGroup
	listenOnce sync.Once
}

// Config is what a core needs: see the fields of stores.Config.
type Config struct {
	URL           string
	MaxConns      int32
	EndpointMoved func(webhook.EndpointID)
	Now           func() time.Time
	Logger        *slog.Logger
	Flushes       FlushObserver
	Notice        func(*pgconn.Notice)
}

// Open makes a core. It does not wait for the database.
func Open(ctx context.Context, c Config) (*Core, error) {
	s := &Core{Log: c.Logger, clock: newClock(c.Now, c.Logger), flushes: c.Flushes}
	// Without the cancellation of ctx, which ends the opening: the pools live longer.
	ctx = context.WithoutCancel(ctx)
	if err := s.openPools(ctx, c); err != nil {
		s.ClosePools()
		return nil, err
	}
	s.lists = newListLimit(s.pool.Config().MaxConns)
	s.life, s.end = context.WithCancel(ctx)
	s.Subscribe(endpointMoved(c.EndpointMoved))
	return s, nil
}

// openPools makes the pools, each with the role that its work needs.
func (s *Core) openPools(ctx context.Context, c Config) error {
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
		{&s.WorkPool, takeRole(work, RoleWorker)},
		{&s.EventsPool, takeRole(ingestConfig(config), RoleIngest)},
		{&s.StepPool, takeRole(writerConfig(config, 3), RoleWorker)}, // steps, claims, and those of them that wait for a lock
		{&s.login, config.Copy()},
		{&s.probe, probeConfig(config)},
	} {
		if *p.pool, err = pgxpool.NewWithConfig(ctx, inRounds(p.config, &rounds{})); err != nil {
			return fmt.Errorf("open database: %w", err)
		}
	}
	return nil
}

// Stop ends what runs in the background.
func (s *Core) Stop() {
	s.end()
	s.background.Wait()
}

// ClosePools closes every connection.
func (s *Core) ClosePools() {
	for _, pool := range s.pools() {
		if pool != nil {
			pool.Close()
		}
	}
}

func (s *Core) pools() []*pgxpool.Pool {
	return []*pgxpool.Pool{s.EventsPool, s.StepPool, s.WorkPool, s.pool, s.login, s.probe}
}

// resetPools makes every later call begin with a connection that is opened after this moment, also if an
// earlier one was in use a moment ago and would be used again unchecked.
func (s *Core) resetPools() {
	for _, pool := range s.pools() {
		pool.Reset()
	}
}

// Now is the time by the database's clock, to the precision of a round trip. Before the first
// reading, by Ready or Listen, it is the process's own time.
func (s *Core) Now() time.Time { return s.clock.now() }

// IDShift is what new ids add to this process's clock, so that they carry the database's time.
func (s *Core) IDShift() time.Duration { return s.clock.idShift() }

// ClockOffset is how far this process's clock is ahead of the database's.
func (s *Core) ClockOffset() time.Duration { return s.clock.offset() }

// Pool is a pool of connections with the rights of the login itself, for tests. The stores
// do not use it.
func (s *Core) Pool() *pgxpool.Pool { return s.login }

// ConnectionsUsed is the number of connections in use.
func (s *Core) ConnectionsUsed() (n int) {
	for _, pool := range s.pools() {
		if pool != s.login {
			n += int(pool.Stat().AcquiredConns())
		}
	}
	return n
}

// Ready returns nil when the database answers and takes writes; CodeUnavailable
// otherwise, also for a standby. It has a connection of its own, so it does not depend on what callers of the
// stores do. It also reads the database's clock: see Now.
func (s *Core) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var readOnly string
	if err := s.probe.QueryRow(ctx, `show transaction_read_only`).Scan(&readOnly); err != nil {
		return Translate("check database", err)
	}
	if err := s.clock.ask(ctx, s.probe); err != nil {
		return Translate("check database", err)
	}
	if readOnly != "off" {
		if s.readOnly.begin() {
			s.resetPools() // new connections may lead to the primary
		}
		return unavailable("check database", errors.New("the database is read-only: a standby?"))
	}
	return nil
}

// TakeList waits until the tenant may run a list: see listLimit.acquire.
func (s *Core) TakeList(ctx context.Context, tenantID string) (release func(), err error) {
	return s.lists.acquire(ctx, tenantID)
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
	// A connection that the server closed while it was idle must not fail a call. It costs a round trip.
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > uncheckedIdle }

	config.ConnConfig.ConnectTimeout = connectTimeout
	if c.Notice != nil {
		config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { c.Notice(n) }
	}
	dialer := &net.Dialer{KeepAlive: keepAlive, Timeout: connectTimeout}
	config.ConnConfig.DialFunc = dialer.DialContext
	params := config.ConnConfig.RuntimeParams
	for name, value := range map[string]string{
		"application_name":                    "everpost",
		"client_encoding":                     "UTF8", // the default is the database's, which may be another one
		"statement_timeout":                   Milliseconds(statementTimeout),
		"lock_timeout":                        Milliseconds(lockTimeout),
		"idle_in_transaction_session_timeout": Milliseconds(idleInTxTimeout),
		// Plans are cached. One made while a table or a day's partition is nearly empty would scan it, and be kept when that is full.
		// An index serves every row that is looked up.
		"enable_seqscan": "off",
		// Where a small table has no other way, a scan costs so much then that it would be compiled each time, which takes longer than it.
		"jit": "off",
	} {
		if _, set := params[name]; !set {
			params[name] = value
		}
	}
	return config, nil
}

// probeConfig is the pool of Ready.
func probeConfig(of *pgxpool.Config) *pgxpool.Config {
	config := takeRole(of.Copy(), RoleAPI, RoleWorker)
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	return config
}

// writerConfig is a pool of group commits: one connection for each writer.
func writerConfig(of *pgxpool.Config, conns int32) *pgxpool.Config {
	config := of.Copy()
	config.MaxConns = conns
	config.MinConns, config.MinIdleConns = 0, 0
	config.ConnConfig.RuntimeParams["statement_timeout"] = Milliseconds(flushStatementTimeout)
	config.ConnConfig.RuntimeParams["lock_timeout"] = Milliseconds(flushLockTimeout)
	return config
}

// ingestConfig is the pool of the group commits of events. Its transactions hold lines and keys that other processes wait for, and have no pause: a
// process that stands still in the middle of one lets go after a while.
func ingestConfig(of *pgxpool.Config) *pgxpool.Config {
	config := writerConfig(of, 3) //nolint:mnd // events, those with numbers, and those of them that wait for a lock
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = Milliseconds(ingestIdleTimeout)
	return config
}

// Milliseconds is a duration as PostgreSQL's settings take it.
func Milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
