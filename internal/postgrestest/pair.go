package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/programtest"
)

// Pair is a primary and its hot standby, on servers of their own without durability.
type Pair struct {
	Primary, Standby string // addresses of an empty database

	primary *exec.Cmd
}

// pairPoll is how often a starting server is asked.
const pairPoll = 20 * time.Millisecond

// NewPair starts a primary and a standby that follows it by streaming replication. They end with the test.
func NewPair(t testing.TB) *Pair {
	t.Helper()
	base, err := serverURL()
	require.NoError(t, err)
	bin, socketDir := programs(t, base)
	dir := t.TempDir()
	// It is below one that only root enters.
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711)) //nolint:gosec // holds a test's data only
	run := func(name string, args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), filepath.Join(bin, name), args...) //nolint:gosec // a program of PostgreSQL
		command.Dir = dir
		require.NoError(t, programtest.RunAs(command, socketDir, dir))
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
	p := &Pair{}
	start := func(name string) (address string, server *exec.Cmd) {
		t.Helper()
		port, err := programtest.FreePort(t.Context())
		require.NoError(t, err)
		args := []string{
			"-D", filepath.Join(dir, name), "-p", port, "-h", "127.0.0.1",
			"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB",
		}
		server = exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, "postgres"), args...) //nolint:gosec // a program of PostgreSQL
		server.Dir = dir
		require.NoError(t, programtest.RunAs(server, socketDir, dir))
		var out strings.Builder
		server.Stdout, server.Stderr = &out, &out
		require.NoError(t, server.Start())
		t.Cleanup(func() {
			_ = server.Process.Signal(syscall.SIGQUIT)
			_ = server.Wait()
			if t.Failed() {
				t.Log(name, out.String())
			}
		})
		address = (&url.URL{Scheme: "postgres", User: url.User("everpost"), Host: "127.0.0.1:" + port, Path: "postgres", RawQuery: "sslmode=disable"}).String()
		require.Eventually(t, func() bool {
			conn, err := pgx.Connect(t.Context(), address)
			if err == nil {
				_ = conn.Close(t.Context())
			}
			return err == nil
		}, setUpTimeout, pairPoll, name)
		return address, server
	}
	run("initdb", "--pgdata=primary", "--username=everpost", "--encoding=UTF8", "--locale=C", "--auth=trust", "--no-sync")
	p.Primary, p.primary = start("primary")
	run("pg_basebackup", "--dbname="+p.Primary, "--pgdata=standby", "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	p.Standby, _ = start("standby")
	return p
}

// KillPrimary ends the primary as a crash does, and makes the standby the primary.
func (p *Pair) KillPrimary(t testing.TB) {
	t.Helper()
	require.NoError(t, p.primary.Process.Signal(syscall.SIGQUIT))
	execute(t, p.Standby, `select pg_promote()`)
}

// programs returns the directory of the server's programs, and of its socket.
func programs(t testing.TB, base string) (bin, socketDir string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), base)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	require.NoError(t, conn.QueryRow(t.Context(), `select setting from pg_config where name = 'BINDIR'`).Scan(&bin))
	if _, err := os.Stat(filepath.Join(bin, "initdb")); errors.Is(err, os.ErrNotExist) {
		require.NoError(t, fmt.Errorf("the server of %s runs elsewhere: its programs are needed here", URLVariable))
	}
	return bin, conn.Config().Host
}
