// Package postgrestest provides tests with a real PostgreSQL: a migrated database of its own
// for each test, on a shared server.
package postgrestest

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/localpg"
)

// URLVariable names the environment variable with the address of a database for tests. The
// role must be allowed to create schemas in it, and databases beside it. Without it, each test process starts a
// server of its own: see Main.
const URLVariable = "EVERPOST_TEST_DATABASE_URL"

const (
	// A test's store, its second store and their listeners, for all packages that run at
	// the same time.
	serverConnections = 300

	setUpTimeout = time.Minute
	stopTimeout  = 20 * time.Second
)

// NewEmpty returns the address of a new schema without any tables: objects that a connection creates without naming a
// schema are created in it. The schema is dropped when the test ends.
func NewEmpty(t testing.TB) string {
	t.Helper()
	base, err := serverURL()
	require.NoError(t, err)

	schema := "test_" + strings.ToLower(rand.Text())
	execute(t, base, `create schema `+schema)
	t.Cleanup(func() { execute(t, base, `drop schema `+schema+` cascade`) })
	return addressOf(t, base, "", schema)
}

// addressOf returns the address of a schema, in another database of the server if one is named.
func addressOf(t testing.TB, base, database, schema string) string {
	t.Helper()
	u, err := url.Parse(base)
	require.NoError(t, err)
	if database != "" {
		u.Path = "/" + database
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

// execute runs one statement on a connection of its own.
func execute(t testing.TB, address, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setUpTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	require.NoError(t, err, statement)
}

// Main wraps a package's tests. After them it stops and removes the private server, if one
// was started, before a check for leaked goroutines:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }
//
// Without Main the server ends with the process, but its directory stays.
func Main(m *testing.M) interface{ Run() int } { return testMain{m} }

type testMain struct{ m *testing.M }

func (t testMain) Run() int {
	code := t.m.Run()
	if err := private.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// serverURL returns the address of the server that the tests of this process share.
func serverURL() (string, error) {
	if given := os.Getenv(URLVariable); given != "" {
		return given, nil
	}
	return private.start()
}

// private is the one server of a test process.
var private server // a global: the tests of a package share nothing else

type server struct {
	mu      sync.Mutex
	started bool
	stopAll func() error
	url     string
	err     error
}

func (s *server) start() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		s.url, s.stopAll, s.err = Start(context.Background(), slog.New(slog.DiscardHandler))
	}
	return s.url, s.err
}

func (s *server) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopAll == nil {
		return nil
	}
	return s.stopAll()
}

const (
	memoryDir  = "/dev/shm" // Linux's file system in memory
	memoryLeft = 6 << 30    // bytes that must be free there for the server to use it
	dirPrefix  = "everpost-test-"
	leftAfter  = 24 * time.Hour // no run of tests takes as long
)

// parentDir is where the server's directory is made: in memory, if there is much, otherwise "", in the temporary directory. Each test makes a
// database of a thousand files and drops it. ext4 looks for inodes that were not deleted just before, which takes more CPU than the tests.
func parentDir() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < memoryLeft { //nolint:gosec // a size
		return ""
	}
	removeLeft()
	return memoryDir
}

// removeLeft removes what test processes that were killed have left in memory.
func removeLeft() {
	left, _ := filepath.Glob(filepath.Join(memoryDir, dirPrefix+"*"))
	for _, dir := range left {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > leftAfter {
			_ = os.RemoveAll(dir)
		}
	}
}

// Start starts a server in a temporary directory, or in memory, without durability, and returns the
// address of its database. stop ends the server and removes the directory. If this process
// is killed, the server ends too, and the directory stays; one in memory is removed by a later Start, after a day.
func Start(ctx context.Context, log *slog.Logger) (address string, stop func() error, err error) {
	dir, err := os.MkdirTemp(parentDir(), dirPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("start a server for tests: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	// For root, the server runs under another account, which must pass through the
	// directory.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // holds a test's data only
		return "", nil, fmt.Errorf("start a server for tests: %w", err)
	}
	cluster, err := localpg.Start(ctx, localpg.Options{Dir: dir, Log: log, MaxConnections: serverConnections, Unsafe: true})
	if err != nil {
		return "", nil, fmt.Errorf("start a server for tests: %w", err)
	}
	return cluster.URL(localpg.Database), func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := cluster.Stop(ctx); err != nil {
			return fmt.Errorf("stop the server for tests: %w", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the server for tests: %w", err)
		}
		return nil
	}, nil
}
