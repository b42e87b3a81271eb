// Package temporald runs a whole Temporal server inside this process: frontend, history, matching
// and worker, on a PostgreSQL that it is given.
//
// The server keeps its state in two databases of its own, MainDatabase and VisibilityDatabase,
// which are made when absent and brought up to date at every start. All services listen on
// loopback, the frontend where it is told to.
package temporald

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/temporal"
	"google.golang.org/grpc"
)

const (
	// DefaultShards is the number of history shards of a new installation. More shards let more
	// histories be written side by side and cost memory and queries at rest; 16 suit one machine.
	DefaultShards = 16

	defaultNamespace = "default"

	// defaultRetention is how long closed workflows can be looked at. The record is elsewhere.
	defaultRetention = 24 * time.Hour

	// startAttempts bounds how often a start is tried again because a port that was free a moment
	// ago is taken.
	startAttempts = 3
)

// Options says what to run and on what.
type Options struct {
	// DatabaseURL is a postgres:// URL of the PostgreSQL to use. The database in it is only used to
	// make the two others from. Required.
	DatabaseURL string

	// Listen is the frontend's address, an IP address (or localhost) and a port; port 0 takes a free
	// one. Defaults to 127.0.0.1:0.
	Listen string

	// Namespace is made when absent. Defaults to "default".
	Namespace string

	// Retention is how long closed workflows of the namespace are kept. Defaults to 24 h; Temporal
	// allows no less than 1 h. A changed value takes effect at the next start.
	Retention time.Duration

	// Shards is the number of history shards. It is fixed when the databases are made: 0 takes what
	// they have, or DefaultShards, and any other value that differs from theirs is refused.
	Shards int

	// SearchAttributes are made in the namespace when absent, by name. SQL has room for 10 of type
	// Keyword and 3 of every other type.
	SearchAttributes map[string]enumspb.IndexedValueType

	// Logger gets the server's messages. Nil discards them.
	Logger *slog.Logger

	// LogLevel is the least level that is passed on to Logger. Defaults to slog.LevelWarn.
	LogLevel slog.Leveler

	// StoreFault is asked before each access to the main store; its error is returned instead of the access. For tests.
	StoreFault func() error

	// Interceptor handles the requests to the frontend. For tests.
	Interceptor grpc.UnaryServerInterceptor

	// PruneVisibilityIndexes drops the indexes that the lists of the Web UI and SearchAttributes do
	// not need; see pruneIndexes. Leave it off on databases that others query.
	PruneVisibilityIndexes bool
}

func (o Options) withDefaults() (Options, error) {
	if o.DatabaseURL == "" {
		return o, errors.New("database URL: not set")
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Namespace == "" {
		o.Namespace = defaultNamespace
	}
	if o.Retention == 0 {
		o.Retention = defaultRetention
	}
	if o.Retention < time.Hour {
		return o, fmt.Errorf("retention %v: Temporal keeps closed workflows for at least 1h", o.Retention)
	}
	if o.Shards < 0 || o.Shards > maxShards {
		return o, fmt.Errorf("shards %d: must be between 1 and %d", o.Shards, maxShards)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.LogLevel == nil {
		o.LogLevel = slog.LevelWarn
	}
	return o, nil
}

// maxShards is far beyond what any cluster has; it keeps a slip of the finger from making a cluster
// that can never be shrunk.
const maxShards = 16384

// Server is a running Temporal server. It is safe for concurrent use.
type Server struct {
	server  temporal.Server
	address string
	logger  *logger

	listeners []netip.AddrPort // of all services

	settings *dynamicConfig

	stopOnce sync.Once
	stopped  chan struct{}
	stopErr  error
}

// Start brings the databases up to date, starts the server and returns when it is of use: the
// frontend answers, the history shards are served, and the namespace and its search attributes are
// known. It fails when the address is taken, when the databases cannot be reached, made or updated,
// and when they have another number of shards. Cancelling ctx ends the start, not a server that has
// been returned.
func Start(ctx context.Context, o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	listen, err := parseListen(o.Listen)
	if err != nil {
		return nil, err
	}
	if _, err := findPorts(listen); err != nil {
		return nil, err // before minutes may go into the databases
	}
	dbs, err := openDatabases(ctx, o.DatabaseURL)
	if err != nil {
		return nil, err
	}
	log := newLogger(o.Logger, o.LogLevel)
	if err := dbs.migrate(ctx, log); err != nil {
		return nil, err
	}
	if o.Shards, err = dbs.shards(ctx, o.Shards); err != nil {
		return nil, err
	}

	s, err := startOnFreePorts(o, dbs, listen)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*Server, error) {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), failedStartGrace)
		defer cancel()
		return nil, errors.Join(err, s.Stop(stop))
	}
	columns, err := s.provision(ctx, o)
	if err != nil {
		return fail(err)
	}
	// Not yet: each part has read the namespace on its own and may still hold it as it
	// was before it had search attributes; starts would be refused.
	time.AfterFunc(namespaceKnown, func() { s.settings.provisioned.Store(true) })
	if o.PruneVisibilityIndexes {
		if err := dbs.pruneIndexes(ctx, columns); err != nil {
			return fail(err)
		}
	}
	return s, nil
}

// namespaceKnown is how long after its making every part of the server has read the
// namespace again; each does so every 2 s (system.namespaceCacheRefreshInterval).
const namespaceKnown = 5 * time.Second

// failedStartGrace bounds the stop of a server that never was of use.
const failedStartGrace = 15 * time.Second

// Address returns the frontend's address, to be dialled from this machine.
func (s *Server) Address() string { return s.address }

// Listeners returns where the server's services listen.
func (s *Server) Listeners() []netip.AddrPort { return s.listeners }

// Done returns a channel that is closed when a part of the server has given up by itself, which it
// does when it cannot go on without harm. Err then says why. The rest should be stopped.
func (s *Server) Done() <-chan struct{} { return s.logger.failed() }

// Err says why the server gave up. It is nil until Done is closed.
func (s *Server) Err() error { return s.logger.failure() }

// Stop ends the server; requests under way get a second to finish. It returns an error when that
// has not happened before ctx is done; the server then goes on stopping. Calling it again waits for
// the first call's result.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		s.logger.quieten()
		go func() {
			defer close(s.stopped)
			s.stopErr = s.server.Stop()
		}()
	})
	select {
	case <-s.stopped:
		if s.stopErr != nil {
			return fmt.Errorf("stop Temporal: %w", s.stopErr)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop Temporal: %w", ctx.Err())
	}
}

// startOnFreePorts starts the services. The server binds its ports itself, by number, so a port
// found free can be lost to another process in between; then it is tried again with others, unless
// it is the one that was asked for.
func startOnFreePorts(o Options, dbs *databases, listen net.TCPAddr) (*Server, error) {
	for attempt := 1; ; attempt++ {
		ports, err := findPorts(listen)
		if err != nil {
			return nil, err
		}
		s, err := startServices(o, dbs, ports)
		if err == nil || attempt == startAttempts || !isAddressInUse(err) {
			return s, err
		}
	}
}

// startServices builds and starts the server. That is done in a goroutine of its own, because a
// fatal error of the server ends the one that it is in; see logger.Fatal.
func startServices(o Options, dbs *databases, ports ports) (*Server, error) {
	log := newLogger(o.Logger, o.LogLevel)
	s := &Server{address: ports.dial(), listeners: ports.listeners(), logger: log, settings: newDynamicConfig(), stopped: make(chan struct{})}
	var err error
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		if s.server, err = buildServer(o, dbs, ports, s.settings, log); err == nil {
			err = s.server.Start()
		}
	}()
	<-finished
	if failure := log.failure(); failure != nil {
		err = failure
	}
	if err != nil {
		return nil, fmt.Errorf("start Temporal: %w", err)
	}
	return s, nil
}

func buildServer(o Options, dbs *databases, ports ports, settings *dynamicConfig, log *logger) (_ temporal.Server, err error) {
	log.state.building.Store(true)
	defer log.state.building.Store(false)
	defer func() {
		failure := log.failure()
		if r := recover(); r != nil && failure == nil {
			panic(r) // not ours
		}
		err = errors.Join(err, failure)
	}()
	options := []temporal.ServerOption{
		temporal.WithConfig(serverConfig(dbs, ports, o)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(ports.hosts()),
		temporal.WithDynamicConfigClient(settings),
		temporal.WithLogger(log),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
			return authorization.NewNoopClaimMapper()
		}),
	}
	if o.Interceptor != nil {
		options = append(options, temporal.WithChainedFrontendGrpcInterceptors(o.Interceptor))
	}
	return temporal.NewServer(options...) //nolint:wrapcheck // startServices wraps it
}

// parseListen reads an address to listen on.
func parseListen(s string) (net.TCPAddr, error) {
	host, portText, err := net.SplitHostPort(s)
	if err != nil {
		return net.TCPAddr{}, fmt.Errorf("Temporal's address %s: %w", s, err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return net.TCPAddr{}, fmt.Errorf("Temporal's address %s: want an IP address and a port", s)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return net.TCPAddr{}, fmt.Errorf("Temporal's address %s: %w", s, err)
	}
	return net.TCPAddr{IP: ip, Port: int(port)}, nil
}
