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
	lockFile     = "everpost.lock"
	layoutFile   = "VERSION"
	locationFile = "postgres.location"
	clusterDir   = "postgres"

	// layout is the version of the data directory's layout. Raise it when an older Everpost
	// would misread a directory that this one has written.
	layout = 1
)

// InUseError reports that another process uses a data directory.
type InUseError struct {
	Dir string
	PID int // 0 when it is not known
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory %s is in use by another everpost", e.Dir)
	}
	return fmt.Sprintf("data directory %s is in use by another everpost (pid %d)", e.Dir, e.PID)
}

// Lock is an exclusive lock on a data directory. The kernel releases it when the process
// ends.
type Lock struct {
	dir   string
	files []*os.File // lock files of the data directory and of a cluster outside it
}

// LockDir locks the data directory and creates it when absent. If the caller is root, other
// users may pass through it, because the database runs as another user; otherwise only the
// owner may. Files with secrets in it need a restrictive mode of their own.
//
// LockDir stops a server that outlived the Everpost that started it. It returns *InUseError
// when another Everpost has the lock, and an error when a newer version has written the
// directory.
func LockDir(ctx context.Context, dir string, log *slog.Logger) (_ *Lock, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve data directory %s: %w", dir, err)
	}
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}

	l := &Lock{dir: dir}
	defer func() {
		if err != nil {
			l.Release()
		}
	}()
	if err := l.take(ctx, dir); err != nil {
		return nil, err
	}
	if err := checkLayout(dir); err != nil {
		return nil, err
	}
	cluster, err := clusterLocation(dir)
	if err != nil {
		return nil, err
	}
	// Two data directories may refer to the same cluster when one is a copy of the other.
	if filepath.Dir(cluster) != dir && exists(filepath.Dir(cluster)) {
		if err := l.take(ctx, filepath.Dir(cluster)); err != nil {
			return nil, err
		}
	}
	last, known := readPostmaster(cluster)
	if err := endOrphans(ctx, cluster, log); err != nil {
		return nil, err
	}
	if known {
		removeSocketDir(last.socketDir, cluster)
	}
	return l, nil
}

// Release releases the lock. Calling it again does nothing.
func (l *Lock) Release() {
	for _, f := range l.files {
		// Keep the file: processes that wait for the lock have it open. Remove the process
		// id, which is no longer valid.
		_ = f.Truncate(0)
		// Closing alone would leave the lock with a child that is being started: it shares
		// this process's open files until it executes its program.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		_ = f.Close()
	}
	l.files = nil
}

func (l *Lock) covers(dir string) bool { return len(l.files) > 0 && l.dir == dir }

// How long take waits for a lock whose holder is ending: the kernel releases a killed
// process's locks a moment after its memory. A holder that is alive and not killed gets
// holderGrace: a signal may be pending, or the process may be ending unseen in another
// container.
const (
	killedGrace = 10 * time.Second
	holderGrace = 250 * time.Millisecond
)

// take locks the lock file of dir and writes this process's id into it.
func (l *Lock) take(ctx context.Context, dir string) error {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600) //nolint:gosec // the operator's own directory
	if err != nil {
		return fmt.Errorf("lock data directory: %s: %w", path, linkError(err))
	}
	if err := flock(ctx, f); err != nil {
		holder := &InUseError{Dir: dir, PID: readPID(f)}
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return holder
		}
		return fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	l.files = append(l.files, f)
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// flock takes the lock. It waits for a holder that is ending. The error is
// syscall.EWOULDBLOCK when another process keeps the lock.
func flock(ctx context.Context, f *os.File) error {
	var err error
	started := time.Now()
	done, ctxErr := poll(ctx, killedGrace, func() bool {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return true
		}
		return time.Since(started) > holderGrace && !isEnding(readPID(f))
	})
	if ctxErr != nil && !done {
		return ctxErr
	}
	return err //nolint:wrapcheck // take inspects and wraps it
}

// isEnding reports whether a process is a zombie or has a pending SIGKILL.
func isEnding(pid int) bool {
	if pid == 0 {
		return false
	}
	p, found, err := lookUp(pid)
	return err == nil && found && (p.dead || p.killed)
}

// readPID returns the process id in a lock file, 0 if there is none.
func readPID(f *os.File) int {
	text := make([]byte, 32) // longer than any process id
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// checkLayout refuses a directory of a newer Everpost and writes the layout into a new one.
func checkLayout(dir string) error {
	path := filepath.Join(dir, layoutFile)
	text, err := os.ReadFile(path) //nolint:gosec // the operator's own directory
	if errors.Is(err, os.ErrNotExist) {
		return ReplaceFile(path, strconv.Itoa(layout)+"\n", 0o644)
	}
	if err != nil {
		return fmt.Errorf("read layout of data directory: %w", err)
	}
	found, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("data directory %s: %s holds %q instead of a number: it is not Everpost's, or damaged",
			dir, layoutFile, strings.TrimSpace(string(text)))
	}
	if found > layout {
		return fmt.Errorf("data directory %s was written by a newer Everpost (layout %d, this one knows %d): run that version, or another directory",
			dir, found, layout)
	}
	return nil
}

// clusterLocation returns the path of a data directory's cluster, whether or not it exists.
func clusterLocation(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, locationFile)) //nolint:gosec // the operator's own directory
	if errors.Is(err, os.ErrNotExist) {
		return filepath.Join(dir, clusterDir), nil
	}
	if err != nil {
		return "", fmt.Errorf("find the database of data directory: %w", err)
	}
	location := strings.TrimSpace(string(text))
	if !filepath.IsAbs(location) {
		return "", fmt.Errorf("data directory %s: %s holds %q instead of an absolute path", dir, locationFile, location)
	}
	return location, nil
}
