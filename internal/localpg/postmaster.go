package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// pollInterval is how often a file or a process of another parent is checked: there is
	// no way to wait for either.
	pollInterval = 5 * time.Millisecond

	// orphanGrace is how long an orphaned server gets to end after a signal.
	orphanGrace = 10 * time.Second

	// Names of a server's lock files: in its data directory, and next to its socket.
	postmasterFile = "postmaster.pid"
	socketLockFile = ".s.PGSQL." + port + ".lock"
)

// postmaster is the content of the file postmaster.pid, which a server writes into its data
// directory: one value per line (src/include/utils/pidfile.h). The lock file of its socket
// begins in the same way.
type postmaster struct {
	pid       int
	socketDir string
	ready     bool
}

// readPostmaster parses the file; ok is false when it is missing or incomplete.
func readPostmaster(cluster string) (p postmaster, ok bool) {
	const (
		lineSocketDir = 4
		lineStatus    = 7
	)
	text, err := readOwned(cluster, postmasterFile)
	if err != nil {
		return p, false
	}
	lines := strings.Split(string(text), "\n")
	p.pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || p.pid <= 1 { // in single-user mode the id is negative
		return p, false
	}
	if len(lines) > lineSocketDir {
		p.socketDir = lines[lineSocketDir]
	}
	if len(lines) > lineStatus {
		p.ready = strings.TrimSpace(lines[lineStatus]) == "ready"
	}
	return p, true
}

// serves reports whether the process is running and is the server of that cluster.
func (p postmaster) serves(cluster string) bool { return occupantOf(p.pid, cluster) == server }

// program describes a process.
type program struct {
	pid, uid int
	args     []string // empty for zombies and kernel threads
	dead     bool     // a zombie, or about to be one
	killed   bool     // SIGKILL is pending
}

// occupant is the process that a process id in a lock file refers to now. The id alone
// proves nothing: the kernel may reuse it after the server's end, after a reboot, and in a
// new container.
type occupant uint8

const (
	noProcess    occupant = iota // no such process
	dead                         // a zombie, or about to be one
	otherProgram                 // another program, or the server of another cluster
	server                       // a running server of this cluster
	singleUser                   // `postgres --single` on this cluster
	unknown                      // the system does not report it
)

// occupantOf classifies a process with respect to a cluster.
func occupantOf(pid int, cluster string) occupant {
	p, found, err := lookUp(pid)
	switch {
	case err != nil:
		return unknown
	case !found:
		return noProcess
	case p.dead:
		return dead
	}
	return p.roleIn(cluster)
}

// roleIn classifies a running process with respect to a cluster by its command line:
// PostgreSQL's children replace theirs by a title ("postgres: checkpointer"). Only the
// owner of a cluster can serve it (PostgreSQL ensures that), so a process of another user
// is never its server.
func (p program) roleIn(cluster string) occupant {
	if len(p.args) == 0 {
		return otherProgram
	}
	name := filepath.Base(p.args[0])
	if name != "postgres" && name != "postmaster" || p.uid != ownerOfPath(cluster) {
		return otherProgram
	}
	dir, given := dataDirArgument(p.args)
	if !given { // the directory comes from PGDATA: it is the working directory
		if dir = workingDir(p.pid); dir == "" {
			return unknown
		}
	}
	switch {
	case !sameDir(dir, cluster):
		return otherProgram
	case slices.Contains(p.args, "--single") || slices.Contains(p.args, "--boot"):
		return singleUser
	}
	return server
}

// dataDirArgument returns the data directory on a server's command line.
func dataDirArgument(args []string) (dir string, given bool) {
	for i, arg := range args[1:] {
		rest, found := strings.CutPrefix(arg, "-D")
		switch {
		case found && rest != "":
			return rest, true
		case found && i+2 < len(args):
			return args[i+2], true
		}
	}
	return "", false
}

func sameDir(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// endOrphans stops the cluster's servers that are still running, and removes lock files of
// dead ones that would prevent a start. The caller holds the lock, so the process that
// started those servers has ended.
func endOrphans(ctx context.Context, cluster string, log *slog.Logger) error {
	if !exists(cluster) {
		return nil
	}
	for _, pid := range processes() {
		p := postmaster{pid: pid}
		if !p.serves(cluster) {
			continue
		}
		log.WarnContext(ctx, "found PostgreSQL running without its Everpost: stopping it", slog.Int("pid", pid))
		if err := p.end(ctx, cluster); err != nil {
			return err
		}
	}
	return clearLocks(ctx, cluster, cluster, log)
}

// reportsLockFile reports whether a server that ended at once complained about a lock file.
func reportsLockFile(messages string) bool {
	return strings.Contains(messages, "lock file ") &&
		(strings.Contains(messages, " already exists") || strings.Contains(messages, " is empty") || strings.Contains(messages, "bogus data"))
}

// clearLocks removes the lock files of servers that have ended. PostgreSQL refuses to start
// when a lock file contains the id of any process of its user, even a zombie, or cannot be
// read. It recognises by itself that a process does not exist.
//
// The file of a running server of this cluster is never removed. A server in single-user
// mode on this cluster is an error.
func clearLocks(ctx context.Context, cluster, socketDir string, log *slog.Logger) error {
	for _, lock := range []string{filepath.Join(cluster, postmasterFile), filepath.Join(socketDir, socketLockFile)} {
		pid, there := lockHolder(lock)
		if !there {
			continue
		}
		is := otherProgram // a file without an id: its writer died while writing, or is found below
		if pid != 0 {
			is = occupantOf(pid, cluster)
		}
		switch is {
		case noProcess, server, unknown: // PostgreSQL's own check is sufficient
			continue
		case singleUser:
			return fmt.Errorf("the database in %s is in use by PostgreSQL in single-user mode (pid %d): end that, then start again", cluster, pid)
		case dead, otherProgram:
		}
		if pid == 0 && slices.ContainsFunc(processes(), func(pid int) bool {
			is := occupantOf(pid, cluster)
			return is == server || is == singleUser
		}) {
			continue // its server is writing it
		}
		log.InfoContext(ctx, "removing the lock file of a PostgreSQL that has ended", slog.String("file", lock), slog.Int("pid", pid))
		if err := os.Remove(lock); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove what a dead PostgreSQL left behind: %w", err)
		}
	}
	return nil
}

// lockHolder returns the process id in a lock file, 0 when it contains none.
func lockHolder(path string) (pid int, there bool) {
	text, err := readOwned(filepath.Dir(path), filepath.Base(path))
	if errors.Is(err, os.ErrNotExist) {
		return 0, false
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return 0, true
	}
	return max(pid, -pid), true // negative in single-user mode
}

// end stops a server and returns when it has ended.
func (p postmaster) end(ctx context.Context, cluster string) error {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		if err := syscall.Kill(p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the PostgreSQL (pid %d) that still runs in %s: %w", p.pid, cluster, err)
		}
		gone, err := poll(ctx, orphanGrace, func() bool { return !p.serves(cluster) })
		if err != nil {
			return fmt.Errorf("stop the PostgreSQL (pid %d) that still runs in %s: %w", p.pid, cluster, err)
		}
		if gone {
			return nil
		}
	}
	return fmt.Errorf("a PostgreSQL (pid %d) still runs in %s and does not end: end it, then start again", p.pid, cluster)
}

// poll checks a condition until it holds (true), the limit has passed (false), or ctx is
// done (error).
func poll(ctx context.Context, limit time.Duration, condition func() bool) (bool, error) {
	deadline, tick := time.After(limit), time.Tick(pollInterval)
	for !condition() {
		select {
		case <-tick:
		case <-deadline:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}
