// Package localpg runs a private PostgreSQL server as a child process: it finds the installed
// binaries, makes a cluster in a data directory, starts and watches the server, and leaves none
// behind when its parent dies.
//
// The server is reachable over one Unix socket only and trusts the operating system's word on who
// connects (peer authentication), so there is no password to keep and no port to be taken.
//
// What a data directory holds:
//
//	everpost.lock      held with flock(2) while an Everpost runs here; its text is that process's id
//	VERSION            the layout of this directory, an integer
//	postgres/          the cluster
//	postgres.location  instead of postgres/, the absolute path of a cluster that lives elsewhere
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
	// Database is the database that every new cluster holds for its owner's own tables.
	Database = "everpost"

	// superuser is the only role of the cluster; the map in pg_ident.conf says who may use it.
	superuser = "everpost"

	// port only names the socket file (".s.PGSQL.5432"): the server does not listen on TCP.
	port = "5432"

	defaultMaxConnections = 200
	defaultFallbackDir    = "/var/lib/everpost"
)

// Options says where a cluster lives and how it is run.
type Options struct {
	// Dir is the data directory. It is made when absent. Required.
	Dir string

	// Lock is the caller's lock on Dir. Nil: Start takes the lock and Stop gives it back.
	Lock *Lock

	// Log gets what the server says and what this package decides. Nil discards it.
	Log *slog.Logger

	// MaxConnections is the server's max_connections. Defaults to 200.
	MaxConnections int

	// Settings are further server settings by name; they win over the ones set here.
	Settings map[string]string

	// BinDir is the directory of initdb and postgres. Defaults to what Find finds, or, for an
	// existing cluster, to the installed release that made it.
	BinDir string

	// FallbackDir is where the cluster goes when the caller is root and the account that runs the
	// database cannot enter Dir. Defaults to /var/lib/everpost.
	FallbackDir string

	// socketDir is where the socket goes when it cannot lie in the cluster's own
	// directory: a server that takes another one's place keeps its address. Empty:
	// a new directory.
	socketDir string

	// Unsafe turns off every wait for the disk. For tests: a crash of the machine ruins the cluster.
	Unsafe bool
}

// withDefaults returns a copy in which every optional field has its value.
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
	cleanups  []func() // run last to first once the server has ended

	stopping chan struct{} // closed by the first Stop
	died     chan struct{} // closed when the server ended although nobody stopped it
	settled  chan struct{} // closed when the server has ended and the cleanups have run
	stopOnce sync.Once
}

// Start makes the cluster of o.Dir when there is none, starts its server and returns when it
// accepts connections.
//
// It fails, with nothing left running, when PostgreSQL is not installed (ErrNotInstalled), when the
// directory is in use (*InUseError), was made by a newer Everpost or by another major release of
// PostgreSQL, or when the server ends before it is ready; then the error carries its last words.
// Cancelling ctx ends the start, not a server that has been returned.
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

// watch is the owner of what the server leaves behind; it ends with the server.
func (c *Cluster) watch() {
	defer close(c.settled)
	<-c.server.done
	c.server.drain()
	runLastToFirst(c.cleanups)
	select {
	case <-c.stopping:
	default:
		c.log.Error("PostgreSQL ended by itself", slog.Any("error", c.server.err))
		close(c.died)
	}
}

// URL returns the connection string of a database of this cluster, in the form that pgx and libpq
// read. The database need not exist; Database always does.
func (c *Cluster) URL(database string) string { return urlOf(c.socketDir, database) }

// RunningURL is URL of the cluster that another process runs in the data directory dir.
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

// Dir returns the cluster's own directory, which is not under Options.Dir when it had to move.
func (c *Cluster) Dir() string { return c.dir }

// PID returns the process id of the server's postmaster.
func (c *Cluster) PID() int { return c.server.cmd.Process.Pid }

// Done returns a channel that is closed when the server has ended although nobody called Stop.
func (c *Cluster) Done() <-chan struct{} { return c.died }

// Err says why the server ended by itself. It is nil until Done is closed.
func (c *Cluster) Err() error {
	select {
	case <-c.died:
		return fmt.Errorf("PostgreSQL in %s ended by itself: %w", c.dir, c.server.err)
	default:
		return nil
	}
}

// How long the server gets to obey each further signal once ctx is done.
const (
	quitGrace = 5 * time.Second
	killGrace = 5 * time.Second
)

// Stop ends the server: clients are disconnected, open transactions rolled back, a checkpoint is
// written (SIGINT). When ctx is done before that has happened the server is told to drop everything
// (SIGQUIT; the next start then recovers from its log), and at last killed. It returns nil when the
// server ended in good order, now or earlier. Calling it again waits for the first call's result.
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

// waitAtMost is for waits after a context has ended already.
func waitAtMost(grace time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func runLastToFirst(cleanups []func()) {
	for _, cleanup := range slices.Backward(cleanups) {
		cleanup()
	}
}

// exists reports whether path names something; what cannot be looked at counts as absent.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
