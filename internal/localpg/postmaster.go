package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// pollInterval is how often a file or a foreign process is looked at again: neither can be
	// waited for.
	pollInterval = 5 * time.Millisecond

	// orphanGrace is how long an orphaned server gets to obey a signal.
	orphanGrace = 10 * time.Second
)

// postmaster is what a server writes about itself into postmaster.pid in its data directory: one
// value per line (src/include/utils/pidfile.h).
type postmaster struct {
	pid       int
	socketDir string
	ready     bool
}

// readPostmaster returns the file's content; ok is false when there is none, or only a beginning.
func readPostmaster(cluster string) (p postmaster, ok bool) {
	const (
		linePID       = 0
		lineSocketDir = 4
		lineStatus    = 7
	)
	text, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid")) //nolint:gosec // the operator's own directory
	if err != nil {
		return p, false
	}
	lines := strings.Split(string(text), "\n")
	p.pid, err = strconv.Atoi(strings.TrimSpace(lines[linePID]))
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

// serves reports whether the process is alive and is the server of that cluster: its id may belong
// to anyone after a reboot or in a new container.
func (p postmaster) serves(cluster string) bool {
	args := commandLine(p.pid)
	if len(args) == 0 || !strings.HasPrefix(filepath.Base(args[0]), "post") { // postgres, postmaster
		return false
	}
	for i, arg := range args[:len(args)-1] {
		if arg == "-D" && sameDir(args[i+1], cluster) {
			return true
		}
	}
	return false
}

func sameDir(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// endOrphan stops a server of the cluster that is still running, and removes what a dead one left
// behind if that would keep the next from starting. The caller holds the lock, so whoever started
// the server is gone.
func endOrphan(ctx context.Context, cluster string, log *slog.Logger) error {
	p, ok := readPostmaster(cluster)
	if !ok {
		return nil
	}
	if p.serves(cluster) {
		log.WarnContext(ctx, "found PostgreSQL running without its Everpost: stopping it", slog.Int("pid", p.pid))
		if err := p.end(ctx, cluster); err != nil {
			return err
		}
	} else if syscall.Kill(p.pid, 0) == nil {
		// The server believes a file that names any live process of its user. This process is another.
		if err := os.Remove(filepath.Join(cluster, "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove what a dead PostgreSQL left behind: %w", err)
		}
	}
	if strings.HasPrefix(p.socketDir, filepath.Join(os.TempDir(), socketDirPrefix)) {
		_ = os.RemoveAll(p.socketDir)
	}
	return nil
}

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
