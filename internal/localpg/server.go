package localpg

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// readyTimeout bounds the wait for a server that neither ends nor becomes ready.
// Recovery after a crash replays at most max_wal_size of WAL.
const readyTimeout = 5 * time.Minute

// writeAccess writes the access rules. Over the socket, the account of this process and the
// server's account may connect as the superuser. Other logins, if the operator creates any,
// need their password. It is written at every start, because this process's account may
// change.
func (h home) writeAccess() error {
	self, err := userName(os.Geteuid())
	if err != nil {
		return err
	}
	users := []string{self, h.account.name}
	slices.Sort(users)
	var ident strings.Builder
	for _, name := range slices.Compact(users) {
		fmt.Fprintf(&ident, "everpost %q %s\n", name, superuser)
	}
	for name, text := range map[string]string{
		"pg_hba.conf": "local all " + superuser + " peer map=everpost\n" +
			"local all all scram-sha-256\n", //nolint:dupword // databases, users
		"pg_ident.conf": ident.String(),
	} {
		if err := writeOwned(h.dir, name, text, h.account); err != nil {
			return fmt.Errorf("access rules of the database: %w", err)
		}
	}
	return nil
}

// settings returns the server's settings. They are passed on its command line, so its
// configuration files have no effect on them.
func settings(o Options, socketDir string) map[string]string {
	s := map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": `"` + strings.ReplaceAll(socketDir, `"`, `""`) + `"`,
		"unix_socket_permissions": "0700",
		"max_connections":         strconv.Itoa(o.MaxConnections),
		"shared_buffers":          "512MB",
		// A statement locks every partition that it may read, with all its indexes. 12 lists at once over a year need 106,000 of
		// these locks (docs/sizing.md), and there is room for this number times max_connections, at 300 bytes each.
		"max_locks_per_transaction": "640",
		"max_wal_size":              "4GB",
		"checkpoint_timeout":        "15min", // after a checkpoint the first change of each page logs the whole page
		"jit":                       "off",   // compiling takes longer than short statements gain

		"log_destination":   "stderr",
		"logging_collector": "off",
		"log_line_prefix":   "",
		"log_timezone":      "UTC",
		"timezone":          "UTC",
		// Details and statements quote rows, and rows contain payloads, which must not be
		// logged.
		"log_error_verbosity":     "terse",
		"log_min_error_statement": "panic",
	}
	if o.Unsafe {
		s["fsync"], s["full_page_writes"], s["synchronous_commit"] = "off", "off", "off"
	}
	maps.Copy(s, o.Settings)
	return s
}

// launch starts the server and waits until it accepts connections. It retries while a
// killed predecessor still exists: a session of it may be attached to the shared memory, or
// the kernel may still have its process.
func (h home) launch(ctx context.Context, o Options, socketDir string) (*process, error) {
	if err := h.writeAccess(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var (
		server   *process
		messages string
		err      error
	)
	// The last attempt's error is returned, whether or not poll timed out.
	_, _ = poll(ctx, orphanGrace, func() bool {
		if err = clearLocks(ctx, h.dir, socketDir, o.Log); err != nil {
			return true
		}
		server, messages, err = h.launchOnce(ctx, o, socketDir)
		if reportsLockFile(messages) {
			if orphanErr := endOrphans(ctx, h.dir, o.Log); orphanErr != nil {
				err = orphanErr
				return true
			}
			return false
		}
		return !strings.Contains(messages, "pre-existing shared memory block")
	})
	return server, err
}

func (h home) launchOnce(ctx context.Context, o Options, socketDir string) (_ *process, lastMessages string, _ error) {
	args := []string{"-D", h.dir}
	s := settings(o, socketDir)
	for _, name := range slices.Sorted(maps.Keys(s)) {
		args = append(args, "-c", name+"="+s[name])
	}
	// Not bound to ctx: ctx ends the start, and the server must outlive it.
	cmd := exec.Command(h.bin.path("postgres"), args...) //nolint:gosec,noctx // a path this package put together; see above
	cmd.Dir = "/"
	cmd.Env = append(serverEnvironment(), o.Env...)
	cmd.SysProcAttr = childAttributes(h.account, syscall.SIGINT)

	// Use an own pipe: with a pipe of exec's, Wait would also wait for every session that
	// still has the write end when the postmaster was killed.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	messages := &serverLog{log: o.Log, pipe: read, done: make(chan struct{})}
	go messages.follow() //nolint:contextcheck // runs as long as the server
	server, err := startProcess(cmd)
	_ = write.Close()
	if err != nil {
		<-messages.done
		return nil, "", err
	}
	server.output = messages

	ready, err := poll(ctx, readyTimeout, func() bool {
		select {
		case <-server.done:
			return true
		default:
		}
		p, ok := readPostmaster(h.dir)
		return ok && p.ready && p.pid == cmd.Process.Pid
	})
	select {
	case <-server.done:
		server.flushOutput()
		last := messages.lastMessages()
		reason := last
		if last == "" && server.err != nil {
			reason = server.err.Error()
		}
		return nil, last, fmt.Errorf("start PostgreSQL in %s: it ended at once: %s", h.dir, reason)
	default:
	}
	if err == nil && ready {
		return server, "", nil
	}
	if err == nil {
		err = context.DeadlineExceeded
	}
	server.endNow()
	server.flushOutput()
	return nil, "", fmt.Errorf("start PostgreSQL in %s: wait until it is ready: %w", h.dir, err)
}
