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
	// pollInterval is how often a file or a foreign process is looked at again: neither can be
	// waited for.
	pollInterval = 5 * time.Millisecond

	// orphanGrace is how long an orphaned server gets to obey a signal, and one that was killed to
	// be gone.
	orphanGrace = 10 * time.Second

	// Names of a server's lock files: in its data directory, and beside its socket.
	postmasterFile = "postmaster.pid"
	socketLockFile = ".s.PGSQL." + port + ".lock"
)

// postmaster is what a server writes about itself into postmaster.pid in its data directory: one
// value per line (src/include/utils/pidfile.h). The lock file of its socket begins in the same way.
type postmaster struct {
	pid       int
	socketDir string
	ready     bool
}

// readPostmaster returns the file's content; ok is false when there is none, or only a beginning.
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
	if err != nil || p.pid <= 1 { // a server in single-user mode writes its id with a minus
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

// serves reports whether the process is alive and is the server of that cluster.
func (p postmaster) serves(cluster string) bool { return occupantOf(p.pid, cluster) == server }

// program is what the system tells of a process.
type program struct {
	pid, uid int
	args     []string // none of a process that has ended, or of the kernel's own
	dead     bool     // it has ended, or is ending, and nobody has collected it yet
	killed   bool     // SIGKILL waits for it
}

// occupant is what a process id in a lock file stands for now. An id alone says nothing: the kernel
// gives it to another process after the server's end, after a reboot, and in a new container.
type occupant uint8

const (
	nobody     occupant = iota // no such process
	dead                       // a process that has ended or was killed, and was not collected yet
	stranger                   // another program, or the server of another cluster
	server                     // a living server of this cluster
	singleUser                 // somebody works on this cluster with `postgres --single`
	unknown                    // the system does not tell
)

// occupantOf says what a process is to a cluster.
func occupantOf(pid int, cluster string) occupant {
	p, found, err := lookUp(pid)
	switch {
	case err != nil:
		return unknown
	case !found:
		return nobody
	case p.dead:
		return dead
	}
	return p.roleIn(cluster)
}

// roleIn says what a living process is to a cluster. It goes by the command line: PostgreSQL's
// children replace theirs by a title ("postgres: checkpointer"). Only the owner of a cluster can
// serve it (PostgreSQL itself sees to that), so nobody else can pass for a server by a name.
func (p program) roleIn(cluster string) occupant {
	if len(p.args) == 0 {
		return stranger
	}
	name := filepath.Base(p.args[0])
	if name != "postgres" && name != "postmaster" || p.uid != ownerOfPath(cluster) {
		return stranger
	}
	dir, given := dataDirArgument(p.args)
	if !given { // from PGDATA: it is in it
		if dir = workingDir(p.pid); dir == "" {
			return unknown
		}
	}
	switch {
	case !sameDir(dir, cluster):
		return stranger
	case slices.Contains(p.args, "--single") || slices.Contains(p.args, "--boot"):
		return singleUser
	}
	return server
}

// dataDirArgument returns the data directory that a server's command line names.
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

// endOrphans stops the servers of the cluster that are still running, and removes what dead ones
// left behind if that would keep the next from starting. The caller holds the lock, so whoever
// started those servers is gone.
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

// saysLocked reports whether a server that ended at once complained of a lock file.
func saysLocked(words string) bool {
	return strings.Contains(words, "lock file ") &&
		(strings.Contains(words, " already exists") || strings.Contains(words, " is empty") || strings.Contains(words, "bogus data"))
}

// clearLocks removes the lock files of servers that are no more. PostgreSQL believes a lock file
// that names any process of its user, also one that has ended and was not collected by its parent,
// and one that it cannot read. It knows by itself that a process is not there.
//
// The file of a living server of this cluster is never removed; that of somebody who works on the
// cluster in single-user mode is an error.
func clearLocks(ctx context.Context, cluster, socketDir string, log *slog.Logger) error {
	for _, lock := range []string{filepath.Join(cluster, postmasterFile), filepath.Join(socketDir, socketLockFile)} {
		pid, there := lockHolder(lock)
		if !there {
			continue
		}
		is := stranger // of a file without an id: its writer died over it, or else is seen below
		if pid != 0 {
			is = occupantOf(pid, cluster)
		}
		switch is {
		case nobody, server, unknown: // PostgreSQL's own look is as good
			continue
		case singleUser:
			return fmt.Errorf("the database in %s is in use by PostgreSQL in single-user mode (pid %d): end that, then start again", cluster, pid)
		case dead, stranger:
		}
		if pid == 0 && slices.ContainsFunc(processes(), func(pid int) bool {
			is := occupantOf(pid, cluster)
			return is == server || is == singleUser
		}) {
			continue // its server has just begun to write it
		}
		log.InfoContext(ctx, "removing the lock file of a PostgreSQL that is no more", slog.String("file", lock), slog.Int("pid", pid))
		if err := os.Remove(lock); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove what a dead PostgreSQL left behind: %w", err)
		}
	}
	return nil
}

// lockHolder returns the process id in a lock file, 0 when it holds none.
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
	return max(pid, -pid), true // in single-user mode it has a minus
}

// end stops a server, and returns when it runs no more.
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

// poll looks at a condition until it holds (true), the time is up (false), or ctx is done (error).
func poll(ctx context.Context, limit time.Duration, condition func() bool) (bool, error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}
