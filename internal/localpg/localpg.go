// Package localpg runs a private PostgreSQL server as a child process: it finds the
// installed binaries, creates a cluster in a data directory, starts and supervises the
// server, and stops it when its parent process dies.
//
// The server listens on one Unix socket only and authenticates connections by the operating
// system's user (peer authentication), so it needs neither a password nor a TCP port.
//
// A data directory contains:
//
//	everpost.lock      locked with flock(2) while an Everpost uses the directory; contains its process id
//	VERSION            the version of the directory's layout, an integer
//	postgres/          the cluster
//	postgres.location  instead of postgres/: the absolute path of a cluster in another directory
package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// Database is the database that every new cluster contains for Everpost's own tables.
	Database = "everpost"

	// superuser is the only role of a new cluster; the map in pg_ident.conf lists the
	// accounts that may use it.
	superuser = "everpost"

	// port only names the socket file (".s.PGSQL.5432"): the server does not listen on TCP.
	port = "5432"

	defaultMaxConnections = 200
	defaultFallbackDir    = "/var/lib/everpost"
)

// Options configures a cluster and its server.
type Options struct {
	// Dir is the data directory. It is created when absent. Required.
	Dir string

	// Lock is the caller's lock on Dir. If it is nil, Start locks Dir and Stop unlocks it.
	Lock *Lock

	// Log gets the server's messages and this package's own. Nil discards them.
	Log *slog.Logger

	// MaxConnections is the server's max_connections. Defaults to 200.
	MaxConnections int

	// Settings are further server settings by name; they override this package's.
	Settings map[string]string

	// Env is added to the server's environment, which is otherwise the same for every caller.
	Env []string

	// FallbackDir is where the cluster goes when the caller is root and the account that runs the
	// database cannot enter Dir. Defaults to /var/lib/everpost.
	FallbackDir string

	// socketDir is the directory of the socket when the cluster's own directory is not
	// suitable: a restarted server keeps its address. Empty: a new directory.
	socketDir string

	// Unsafe turns off fsync, full_page_writes and synchronous_commit. For tests: a crash
	// of the machine corrupts the cluster.
	Unsafe bool
}

// withDefaults returns a copy with the defaults filled in.
func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("data directory: not set")
	}
	abs, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("resolve data directory %s: %w", o.Dir, err)
	}
	o.Dir = abs
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = defaultMaxConnections
	}
	if o.MaxConnections < 0 {
		return o, fmt.Errorf("max connections %d: must be positive", o.MaxConnections)
	}
	if o.FallbackDir == "" {
		o.FallbackDir = defaultFallbackDir
	}
	return o, nil
}

// Cluster is a running server. It is safe for concurrent use.
type Cluster struct {
	dir       string
	socketDir string
	log       *slog.Logger
	server    *process
	cleanups  []func() // run in reverse order when the server has ended

	stopping chan struct{} // closed by the first Stop
	died     chan struct{} // closed when the server ended without Stop
	settled  chan struct{} // closed when the server has ended and the cleanups have run
	stopOnce sync.Once
}

// Start creates the cluster of o.Dir when there is none, starts its server and returns when
// the server accepts connections.
//
// It fails, with nothing left running, when PostgreSQL is not installed (ErrNotInstalled),
// when the directory is in use (*InUseError), when a newer Everpost or another major
// release of PostgreSQL created it, or when the server ends before it is ready; that error
// contains the server's last messages. Cancelling ctx ends the start, not a server that has
// been returned.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}

	var cleanups []func()
	defer func() {
		if err != nil {
			runLastToFirst(cleanups)
		}
	}()

	if o.Lock == nil {
		lock, err := LockDir(ctx, o.Dir, o.Log)
		if err != nil {
			return nil, err
		}
		cleanups = append(cleanups, lock.Release)
		o.Lock = lock
	} else if !o.Lock.covers(o.Dir) {
		return nil, fmt.Errorf("start PostgreSQL in %s: the lock is on another directory", o.Dir)
	}

	home, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	socketDir, removeSocketDir, err := home.socketDir(o.socketDir)
	if err != nil {
		return nil, err
	}
	cleanups = append(cleanups, removeSocketDir)

	server, err := home.launch(ctx, o, socketDir)
	if err != nil {
		return nil, err
	}

	c := &Cluster{
		dir:       home.dir,
		socketDir: socketDir,
		log:       o.Log,
		server:    server,
		cleanups:  cleanups,
		stopping:  make(chan struct{}),
		died:      make(chan struct{}),
		settled:   make(chan struct{}),
	}
	go c.watch()
	return c, nil
}

// watch runs the cleanups when the server has ended.
func (c *Cluster) watch() {
	defer close(c.settled)
	<-c.server.done
	c.server.flushOutput()
	runLastToFirst(c.cleanups)
	select {
	case <-c.stopping:
	default:
		c.log.Error("PostgreSQL ended by itself", slog.Any("error", c.server.err))
		close(c.died)
	}
}

// URL returns the connection string of a database of this cluster, in the form that pgx and
// libpq accept. The database need not exist; Database always does.
func (c *Cluster) URL(database string) string { return urlOf(c.socketDir, database) }

// RunningURL is Cluster.URL for a cluster that another process runs in the data directory
// dir.
func RunningURL(dir, database string) (string, error) {
	cluster, err := clusterLocation(dir)
	if err != nil {
		return "", err
	}
	p, ok := readPostmaster(cluster)
	if !ok || !p.ready || !p.serves(cluster) {
		return "", fmt.Errorf("no PostgreSQL runs in %s", dir)
	}
	return urlOf(p.socketDir, database), nil
}

func urlOf(socketDir, database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.User(superuser),
		Path:   "/" + database,
		RawQuery: url.Values{
			"host":    {socketDir},
			"port":    {port},
			"sslmode": {"disable"},
		}.Encode(),
	}
	return u.String()
}

// Dir returns the cluster's own directory, which may be outside Options.Dir (see
// Options.FallbackDir).
func (c *Cluster) Dir() string { return c.dir }

// PID returns the process id of the server's postmaster.
func (c *Cluster) PID() int { return c.server.cmd.Process.Pid }

// Done returns a channel that is closed when the server has ended without a call of Stop.
func (c *Cluster) Done() <-chan struct{} { return c.died }

// How long the server gets to end after each further signal once ctx is done.
const (
	quitGrace = 5 * time.Second
	killGrace = 5 * time.Second
)

// Stop ends the server with SIGINT: it disconnects clients, rolls back open transactions
// and writes a checkpoint. When ctx is done before the server has ended, Stop sends SIGQUIT
// (the next start then recovers from the WAL), and finally SIGKILL. It returns nil when the
// server ended without an error, now or earlier. Further calls wait for the first call's
// result.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopOnce.Do(func() { close(c.stopping) })

	c.server.signal(syscall.SIGINT)
	if waitFor(ctx, c.settled) {
		return c.stopResult()
	}
	c.log.WarnContext(ctx, "PostgreSQL is slow to stop: it will recover at its next start", slog.Int("pid", c.PID()))
	for _, step := range []struct {
		signal syscall.Signal
		grace  time.Duration
	}{{syscall.SIGQUIT, quitGrace}, {syscall.SIGKILL, killGrace}} {
		c.server.signal(step.signal)
		if waitAtMost(step.grace, c.settled) {
			return c.stopResult()
		}
	}
	return fmt.Errorf("stop PostgreSQL (pid %d): it does not end", c.PID())
}

func (c *Cluster) stopResult() error {
	if c.server.err != nil {
		return fmt.Errorf("stop PostgreSQL (pid %d): %w", c.PID(), c.server.err)
	}
	return nil
}

func waitFor(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// waitAtMost waits after a context has already ended.
func waitAtMost(grace time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(grace):
		return false
	}
}

func runLastToFirst(cleanups []func()) {
	for _, cleanup := range slices.Backward(cleanups) {
		cleanup()
	}
}

// exists reports whether path exists; a path that cannot be inspected counts as absent.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
