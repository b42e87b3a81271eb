package postgrestest

import (
	"context"
	"fmt"
	"net"
	"net/url"
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

	"github.com/everpost/everpost/internal/programtest"
)

// NewPgBouncer runs a PgBouncer with so many sessions in front of the database of New, until the test ends, and returns
// the database's address through it. mode is its pool_mode. Without the program the test is skipped, but not in CI.
func NewPgBouncer(t testing.TB, address, mode string, sessions int) (through string) {
	t.Helper()
	program := programtest.Find(t, "pgbouncer", "pgbouncer")
	config, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	// The search_path cannot go through it: it is one of the database.
	execute(t, address, `alter database `+config.Database+` set search_path = `+schema)

	dir := t.TempDir()
	port := freePort(t)
	ini := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(ini, []byte(strings.Join([]string{
		"[databases]",
		fmt.Sprintf("%s = host=%s port=%d dbname=%[1]s user=%[4]s", config.Database, config.Host, config.Port, config.User),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1", "listen_port = " + port, "unix_socket_dir =",
		"auth_type = any",
		"pool_mode = " + mode, "default_pool_size = " + strconv.Itoa(sessions),
		"ignore_startup_parameters = statement_timeout, lock_timeout, idle_in_transaction_session_timeout, enable_seqscan, extra_float_digits",
	}, "\n")+"\n"), 0o600))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	command := exec.CommandContext(ctx, program, "-q", ini) //nolint:gosec // the program of above
	runAsServer(t, command, config.Host, dir, ini)
	var out strings.Builder
	command.Stderr = &out
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		cancel()
		_ = command.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	require.Eventually(t, func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, setUpTimeout, 10*time.Millisecond) //nolint:mnd // often
	return (&url.URL{
		Scheme: "postgres", User: url.User(config.User), Host: net.JoinHostPort("127.0.0.1", port),
		Path: config.Database, RawQuery: "sslmode=disable",
	}).String()
}

// runAsServer makes a program run as the account of the server: root's tests run the server under another one, which
// alone may use its socket, and PgBouncer refuses root.
func runAsServer(t testing.TB, command *exec.Cmd, socketDir string, files ...string) {
	t.Helper()
	info, err := os.Stat(socketDir)
	if err != nil || os.Geteuid() != 0 {
		return
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	for _, file := range files {
		require.NoError(t, os.Chown(file, int(owner.Uid), int(owner.Gid)))
	}
	// The directory of the test's own is below one that only root enters.
	require.NoError(t, os.Chmod(filepath.Dir(files[0]), 0o711)) //nolint:gosec // holds a test's data only
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
}

func freePort(t testing.TB) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}
