package localpg_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/localpg"
)

// helperDir, when set, turns the test binary into a helper process that acts as Everpost:
// it starts a cluster in that directory, reports it, and runs until its input ends.
const helperDir = "LOCALPG_TEST_HELPER_DIR"

func TestMain(m *testing.M) {
	if os.Getenv(lazyInit) != "" {
		os.Exit(beLazyInit()) //nolint:forbidigo // here it is a program of its own
	}
	if dir := os.Getenv(helperDir); dir != "" {
		os.Exit(helper(dir)) //nolint:forbidigo // here it is a program of its own
	}
	goleak.VerifyTestMain(m)
}

func helper(dir string) int {
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	c, err := localpg.Start(ctx, localpg.Options{Dir: dir, Log: log, Unsafe: true})
	if err != nil {
		log.Error("start", "error", err)
		return 1
	}
	if err := query(ctx, c, "SELECT 1"); err != nil {
		log.Error("query", "error", err)
		return 1
	}
	fmt.Fprintf(os.Stdout, "ready %d\n", c.PID())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := c.Stop(ctx); err != nil {
		log.Error("stop", "error", err)
		return 1
	}
	return 0
}

func query(ctx context.Context, c *localpg.Cluster, sql string) error {
	conn, err := pgx.Connect(ctx, c.URL(localpg.Database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

func queryInt(t *testing.T, c *localpg.Cluster, sql string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.URL(localpg.Database))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&n))
	return n
}

// openDir returns a directory that the database's user can enter also when the tests run as
// root: t.TempDir's are not accessible to it.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localpg-test-") //nolint:usetesting // the directory above t.TempDir is closed to the database's user
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func start(t *testing.T, o localpg.Options) *localpg.Cluster {
	t.Helper()
	o.Unsafe = true
	c, err := localpg.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_ = c.Stop(ctx)
	})
	return c
}

// alive reports whether a process runs, by the same rule as lookUp: an exiting process does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !exists("/proc/self/stat")
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest) // state, ppid, pgrp, session, tty, tpgid, flags, …
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	const exiting = 0x4 // PF_EXITING (include/linux/sched.h): about to become a zombie
	return fields[0] != "Z" && (err != nil || flags&exiting == 0)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func eventuallyDead(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return !alive(pid) }, 20*time.Second, 5*time.Millisecond)
}

func TestStartStopStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")

	first := start(t, localpg.Options{Dir: dir})
	require.NoError(t, query(t.Context(), first, "CREATE TABLE t AS SELECT 7 AS n"))
	require.Equal(t, filepath.Join(dir, "postgres"), first.Dir())
	address, err := localpg.RunningURL(dir, localpg.Database)
	require.NoError(t, err)
	require.Equal(t, first.URL(localpg.Database), address)
	require.NoError(t, first.Stop(t.Context()))
	_, err = localpg.RunningURL(dir, localpg.Database)
	require.ErrorContains(t, err, "no PostgreSQL runs in "+dir)
	require.False(t, alive(first.PID()))
	require.NoError(t, first.Stop(t.Context()), "stopping twice is harmless")
	select {
	case <-first.Done():
		require.Fail(t, "a stopped server did not end by itself")
	default:
	}

	began := time.Now()
	second := start(t, localpg.Options{Dir: dir, MaxConnections: 33, Settings: map[string]string{"work_mem": "5MB"}})
	t.Logf("warm start: %v", time.Since(began))
	require.Equal(t, 7, queryInt(t, second, "SELECT n FROM t"))
	require.Equal(t, 33, queryInt(t, second, "SELECT current_setting('max_connections')::int"))
	require.Equal(t, 1, queryInt(t, second, "SELECT (current_setting('work_mem') = '5MB')::int"))
}

func TestDefaultsAreDurableAndPrivate(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	c, err := localpg.Start(t.Context(), localpg.Options{Dir: dir})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Stop(context.WithoutCancel(t.Context()))) }()

	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "data_checksums": "on",
		"listen_addresses": "", "max_connections": "200", "server_encoding": "UTF8",
	} {
		require.Equal(t, 1, queryInt(t, c, fmt.Sprintf("SELECT (current_setting('%s') = '%s')::int", setting, want)), setting)
	}
	info, err := os.Stat(c.Dir())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	other, err := pgx.ParseConfig(c.URL(localpg.Database))
	require.NoError(t, err)
	other.User = "postgres"
	_, err = pgx.ConnectConfig(t.Context(), other)
	require.Error(t, err, "the socket knows one role")
}

func TestLongPathsGetTheirSocketElsewhere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), strings.Repeat("d", 60), strings.Repeat("e", 60))
	c := start(t, localpg.Options{Dir: dir})
	require.Equal(t, 1, queryInt(t, c, "SELECT 1"))
	config, err := pgx.ParseConfig(c.URL(localpg.Database))
	require.NoError(t, err)
	require.True(t, exists(config.Host))
	require.NoError(t, c.Stop(t.Context()))
	require.False(t, exists(config.Host), "the socket's directory goes with the server")
}

func TestOddPath(t *testing.T) {
	t.Parallel()
	c := start(t, localpg.Options{Dir: filepath.Join(openDir(t), `a "b", c'd%20&e`)})
	require.Equal(t, 1, queryInt(t, c, "SELECT 1"))
}

func TestCrashIsNoticed(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	c := start(t, localpg.Options{Dir: dir})
	require.NoError(t, syscall.Kill(c.PID(), syscall.SIGKILL))
	select {
	case <-c.Done():
	case <-time.After(20 * time.Second):
		require.Fail(t, "the crash was not noticed")
	}
	require.Error(t, c.Stop(t.Context()))

	again := start(t, localpg.Options{Dir: dir})
	require.Equal(t, 1, queryInt(t, again, "SELECT 1"))
}

func TestStopDoesNotWaitForClients(t *testing.T) {
	t.Parallel()
	c := start(t, localpg.Options{Dir: openDir(t)})
	conn, err := pgx.Connect(t.Context(), c.URL(localpg.Database))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	require.NoError(t, c.Stop(t.Context()))
	require.Error(t, conn.Ping(t.Context()))
}

func TestStopWithoutTimeStillStops(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	c := start(t, localpg.Options{Dir: dir})
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_ = c.Stop(done) // with or without an error: the test is a race
	require.False(t, alive(c.PID()))
	require.Equal(t, 1, queryInt(t, start(t, localpg.Options{Dir: dir}), "SELECT 1"))
}

func TestDirIsInUse(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	c := start(t, localpg.Options{Dir: dir})

	_, err := localpg.Start(t.Context(), localpg.Options{Dir: dir, Unsafe: true})
	require.EqualError(t, err, fmt.Sprintf("data directory %s is in use by another everpost (pid %d)", dir, os.Getpid()))
	var inUse *localpg.InUseError
	require.ErrorAs(t, err, &inUse)
	require.True(t, alive(c.PID()), "a refused start does not stop the running server")
	require.Equal(t, 1, queryInt(t, c, "SELECT 1"))
}

func TestCallersLock(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	lock, err := localpg.LockDir(t.Context(), dir, nil)
	require.NoError(t, err)
	defer lock.Release()

	_, err = localpg.Start(t.Context(), localpg.Options{Dir: openDir(t), Lock: lock})
	require.ErrorContains(t, err, "the lock is on another directory")

	c := start(t, localpg.Options{Dir: dir, Lock: lock})
	require.NoError(t, c.Stop(t.Context()))
	_, err = localpg.LockDir(t.Context(), dir, nil)
	require.Error(t, err, "Stop gives back only a lock that Start took")
	lock.Release()
	lock, err = localpg.LockDir(t.Context(), dir, nil)
	require.NoError(t, err)
	lock.Release()
}

func TestRefusedDirectories(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"newer Everpost", map[string]string{"VERSION": "2\n"}, "was written by a newer Everpost (layout 2, this one knows 1)"},
		{"not Everpost's", map[string]string{"VERSION": "v0.3"}, `VERSION holds "v0.3" instead of a number`},
		{"another PostgreSQL", map[string]string{"postgres/PG_VERSION": "9\n"}, "was made by PostgreSQL 9, found only PostgreSQL"},
		{"database gone", map[string]string{"postgres.location": "/nonexistent/x/postgres"}, "should be in /nonexistent/x, which does not exist"},
		{"relative location", map[string]string{"postgres.location": "x"}, "instead of an absolute path"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := openDir(t)
			for name, text := range test.files {
				path := filepath.Join(dir, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			}
			_, err := localpg.Start(t.Context(), localpg.Options{Dir: dir, Unsafe: true})
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
			lock, err := localpg.LockDir(t.Context(), dir, nil)
			if err == nil {
				lock.Release()
			}
			var inUse *localpg.InUseError
			require.NotErrorAs(t, err, &inUse, "a refused start gives the lock back")
		})
	}
}

func TestBrokenSettingIsNamed(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	_, err := localpg.Start(t.Context(), localpg.Options{Dir: dir, Unsafe: true, Settings: map[string]string{"shared_buffers": "lots"}})
	require.ErrorContains(t, err, "shared_buffers")
	require.Equal(t, 1, queryInt(t, start(t, localpg.Options{Dir: dir}), "SELECT 1"), "the next start is not harmed")
}

func TestInterruptedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	// The times fall into different steps: finding the binaries, trying the directory, initdb, which
	// takes longer than any of them.
	for _, ms := range []int{3, 10, 20, 30, 50, 100} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
		_, err := localpg.Start(ctx, localpg.Options{Dir: dir, Unsafe: true})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, exists(filepath.Join(dir, "postgres")))
	}
	require.Equal(t, 1, queryInt(t, start(t, localpg.Options{Dir: dir}), "SELECT 1"))
}

func TestLogsHoldNoRows(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := start(t, localpg.Options{Dir: openDir(t), Log: log})
	require.NoError(t, query(t.Context(), c, "CREATE TABLE t (n text UNIQUE)"))
	require.NoError(t, query(t.Context(), c, "INSERT INTO t VALUES ('canary')"))
	require.Error(t, query(t.Context(), c, "INSERT INTO t VALUES ('canary')"))
	require.NoError(t, c.Stop(t.Context()))
	require.Contains(t, logged.String(), "duplicate key")
	require.NotContains(t, logged.String(), "canary")
	require.NotContains(t, logged.String(), "level=ERROR")
}

// everpost is the helper process.
type everpost struct {
	cmd      *exec.Cmd
	stdin    io.Closer
	postgres int
	stderr   *bytes.Buffer
}

func startEverpost(t *testing.T, dir string, binary string, credential *syscall.Credential) everpost {
	t.Helper()
	e := everpost{stderr: new(bytes.Buffer)}
	e.cmd = exec.CommandContext(t.Context(), binary)
	e.cmd.Env = append(os.Environ(), helperDir+"="+dir)
	e.cmd.Stderr = e.stderr
	e.cmd.Dir = "/"
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	stdin, err := e.cmd.StdinPipe()
	require.NoError(t, err)
	e.stdin = stdin
	stdout, err := e.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, e.cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = e.cmd.Wait()
		require.NoError(t, err, e.stderr.String())
	}
	_, err = fmt.Sscanf(line, "ready %d\n", &e.postgres)
	require.NoError(t, err)
	return e
}

func TestKilledParentLeavesNoServer(t *testing.T) {
	t.Parallel()
	if !exists("/proc/self/stat") {
		t.Skip("only Linux ends a child with its parent")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	dir := openDir(t)
	e := startEverpost(t, dir, self, nil)
	require.True(t, alive(e.postgres))
	require.NoError(t, e.cmd.Process.Kill())
	require.Error(t, e.cmd.Wait())
	eventuallyDead(t, e.postgres)
	require.Equal(t, 1, queryInt(t, start(t, localpg.Options{Dir: dir}), "SELECT 1"))
}

// TestKilledParentAtOnce does not wait until the orphan has ended: the next start must.
func TestKilledParentAtOnce(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := openDir(t)
	for range 3 {
		e := startEverpost(t, dir, self, nil)
		require.NoError(t, e.cmd.Process.Kill())
		require.Error(t, e.cmd.Wait())
	}
	require.Equal(t, 1, queryInt(t, start(t, localpg.Options{Dir: dir}), "SELECT 1"))
}

func TestTerminalInterruptDoesNotReachTheServer(t *testing.T) {
	t.Parallel()
	c := start(t, localpg.Options{Dir: openDir(t)})
	group, err := syscall.Getpgid(c.PID())
	require.NoError(t, err)
	require.Equal(t, c.PID(), group)
}

func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the other tests do this already")
	}
	const nobody = 65534
	self, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	dir := openDir(t)
	binary := filepath.Join(dir, "everpost")
	require.NoError(t, os.WriteFile(binary, program, 0o755))
	data := filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.Chown(data, nobody, nobody))

	for range 2 {
		e := startEverpost(t, data, binary, &syscall.Credential{Uid: nobody, Gid: nobody})
		info, err := os.Stat(filepath.Join(data, "postgres"))
		require.NoError(t, err)
		stat, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		require.EqualValues(t, nobody, stat.Uid)
		require.NoError(t, e.stdin.Close())
		require.NoError(t, e.cmd.Wait(), e.stderr.String())
		require.False(t, alive(e.postgres))
	}
}

func TestRootUnderAClosedDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	closed := openDir(t)
	require.NoError(t, os.Chmod(closed, 0o700))
	fallback := filepath.Join(openDir(t), "fallback")
	dir := filepath.Join(closed, "data")
	var logged bytes.Buffer
	o := localpg.Options{Dir: dir, FallbackDir: fallback, Log: slog.New(slog.NewTextHandler(&logged, nil))}

	c := start(t, o)
	require.Equal(t, fallback, filepath.Dir(filepath.Dir(c.Dir())))
	require.Equal(t, 1, strings.Count(logged.String(), "the database lives elsewhere"))
	require.NoError(t, query(t.Context(), c, "CREATE TABLE t AS SELECT 7 AS n"))

	// A copy of the data directory refers to the same cluster.
	duplicate := filepath.Join(openDir(t), "copy")
	require.NoError(t, os.CopyFS(duplicate, os.DirFS(dir)))
	_, err := localpg.LockDir(t.Context(), duplicate, nil)
	var inUse *localpg.InUseError
	require.ErrorAs(t, err, &inUse)
	require.NoError(t, c.Stop(t.Context()))

	// The cluster is still found after the directory's mode has been changed.
	require.NoError(t, os.Chmod(closed, 0o755))
	require.Equal(t, 7, queryInt(t, start(t, o), "SELECT n FROM t"))
}
