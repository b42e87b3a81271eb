package programtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// PgBouncer is a pooler in front of a database.
type PgBouncer struct {
	Program string // its path: see Find and Look
	Dir     string // for its configuration; the owner of Server must be able to enter it
	Server  string // a file or directory of the server or its process; root runs PgBouncer as its owner, because PgBouncer refuses root

	Host           string // of the server, or the directory of its socket
	Port           uint16
	Database, User string
	Mode           string // pool_mode
	Sessions       int    // with the server
}

// pgBouncerSoon is how long PgBouncer may take until it listens.
const pgBouncerSoon = time.Minute

// Start runs PgBouncer until ctx ends, and returns its address when it listens, and a channel that is closed when it has ended.
func (b *PgBouncer) Start(ctx context.Context) (address string, ended <-chan struct{}, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	port, err := FreePort(ctx)
	if err != nil {
		return "", nil, err
	}
	address = net.JoinHostPort("127.0.0.1", port)
	ini := filepath.Join(b.Dir, "pgbouncer-"+port+".ini")
	text := strings.Join([]string{
		"[databases]",
		fmt.Sprintf("%s = host=%s port=%d dbname=%[1]s user=%[4]s", b.Database, b.Host, b.Port, b.User),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1", "listen_port = " + port, "unix_socket_dir =",
		"auth_type = any", "log_connections = 0", "log_disconnections = 0", "log_stats = 0",
		"pool_mode = " + b.Mode, "default_pool_size = " + strconv.Itoa(b.Sessions),
		"ignore_startup_parameters = statement_timeout, lock_timeout, idle_in_transaction_session_timeout, enable_seqscan, jit, extra_float_digits",
	}, "\n") + "\n"
	if err := os.WriteFile(ini, []byte(text), 0o600); err != nil {
		return "", nil, fmt.Errorf("configure PgBouncer: %w", err)
	}
	command := exec.CommandContext(ctx, b.Program, ini) //nolint:gosec // a program of this machine
	var said strings.Builder
	command.Stderr = &said
	if err := RunAs(command, b.Server, ini); err != nil {
		return "", nil, err
	}
	if err := command.Start(); err != nil {
		return "", nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	over := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(over)
	}()
	if err := awaitListener(ctx, address, over); err != nil {
		cancel() // it is read when it has ended
		<-over
		return "", nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return address, over, nil
}

// awaitListener waits until something listens at an address.
func awaitListener(ctx context.Context, address string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, pgBouncerSoon)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ended:
			return fmt.Errorf("PgBouncer has ended, and does not listen: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("PgBouncer does not listen: %w", err)
		case <-time.After(10 * time.Millisecond): //nolint:mnd // often
		}
	}
}
