package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	defaultMaxConns = 16

	connectTimeout   = 5 * time.Second
	keepAlive        = 15 * time.Second // pgx's own is 5 min: too long to notice a dead peer
	statementTimeout = 10 * time.Second
	lockTimeout      = 5 * time.Second

	// A flush carries items of many callers: it must not wait long for one row. After a
	// timeout it is halved (see groupcommit.Remedy), so that a dozen waits in a row have to
	// fit into the time of a batch. Five of them, an item's own, are longer than a table is
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
)

// core is what all stores of a DB share: the pools, each with the role that its work needs,
// the database's clock, and the changes that processes tell each other.
type core struct {
	pool   *pgxpool.Pool // for tenants and operators
	work   *pgxpool.Pool // for a worker
	intake *pgxpool.Pool // of the group commit of events
	writer *pgxpool.Pool // of the group commits of steps and claims
	login  *pgxpool.Pool // with the login's own rights; opens no connection by itself

	log     *slog.Logger
	clock   *clock
	lists   *listLimit
	changes changeBus

	misnamed string // in tests of row-level security: the tenant that ofTenant names, whatever its argument

	life       context.Context //nolint:containedctx // ended by close: what runs in the background has no caller
	end        context.CancelFunc
	background sync.WaitGroup
	listenOnce sync.Once
}

func openCore(ctx context.Context, c Config) (*core, error) {
	s := &core{log: c.Logger, clock: newClock(c.Now, c.Logger)}
	// Not ctx: it ends the opening, and the pools would take it for their own life.
	ctx = context.WithoutCancel(ctx)
	if err := s.openPools(ctx, c); err != nil {
		s.closePools()
		return nil, err
	}
	s.lists = newListLimit(s.pool.Config().MaxConns)
	s.life, s.end = context.WithCancel(ctx)
	return s, nil
}

// openPools makes the pools, each with the role that its work needs.
func (s *core) openPools(ctx context.Context, c Config) error {
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
		{&s.intake, takeRole(writerConfig(config, 1), RoleIngest)},
		{&s.writer, takeRole(writerConfig(config, 2), RoleWorker)}, // steps and claims
		{&s.login, config},
	} {
		if *p.pool, err = pgxpool.NewWithConfig(ctx, p.config); err != nil {
			return fmt.Errorf("open database: %w", err)
		}
	}
	return nil
}

func (s *core) closePools() {
	for _, pool := range s.pools() {
		if pool != nil {
			pool.Close()
		}
	}
}

func (s *core) pools() []*pgxpool.Pool {
	return []*pgxpool.Pool{s.intake, s.writer, s.work, s.pool, s.login}
}

// resetPools makes every later call begin with a connection that is opened after this moment.
// Without it, one that was in use within the last second is used again unchecked.
func (s *core) resetPools() {
	for _, pool := range s.pools() {
		pool.Reset()
	}
}

// now is the time by the database's clock.
func (s *core) now() time.Time { return s.clock.now() }

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

// writerConfig is a pool of group commits: one connection for each writer.
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
