package localpg

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	// layout is the version of what a data directory holds and where. Raise it when an older
	// Everpost would misread a directory that this one has written.
	layout = 1
)

// InUseError says that another process runs on a data directory.
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

// Lock is the right to use a data directory. The kernel takes it back when the process ends,
// however it ends.
type Lock struct {
	dir   string
	files []*os.File // the data directory's own, and that of a cluster which lives elsewhere
}

// LockDir takes the data directory, making it when absent: open for others to pass through when the
// caller is root, because the database runs as another user, and closed otherwise. Files with
// secrets in it must be closed by their own mode.
//
// A server that outlived the Everpost which started it is stopped. LockDir returns *InUseError when
// another Everpost holds the directory, and an error when a newer one has written it.
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
	// Two data directories may name the same cluster when one is a copy of the other.
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

// Release gives the directory back. Calling it again does nothing.
func (l *Lock) Release() {
	for _, f := range l.files {
		// The file stays: whoever waits for it holds the same one. The id in it would mislead.
		_ = f.Truncate(0)
		// Closing alone would leave the lock with a child that is just being started: until it
		// executes its program it shares our open files.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		_ = f.Close()
	}
	l.files = nil
}

func (l *Lock) covers(dir string) bool { return len(l.files) > 0 && l.dir == dir }

// How long a lock is waited for whose holder is on its way out: a process that was killed gives its
// locks back a moment after it has let go of its memory. A holder that lives and was not killed gets
// holderGrace: a signal may be on its way, and so may the end of a process that cannot be seen from
// here, in another container.
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
		holder := &InUseError{Dir: dir, PID: readPID(io.NewSectionReader(f, 0, maxPIDText))}
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

// flock takes the lock, waiting for a holder that is on its way out. The error is
// syscall.EWOULDBLOCK when another process keeps it.
func flock(ctx context.Context, f *os.File) error {
	var err error
	begun := time.Now()
	done, ctxErr := poll(ctx, killedGrace, func() bool {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return true
		}
		return time.Since(begun) > holderGrace && !isLeaving(readPID(io.NewSectionReader(f, 0, maxPIDText)))
	})
	if ctxErr != nil && !done {
		return ctxErr
	}
	return err //nolint:wrapcheck // wrapped by take, which looks at it
}

// isLeaving reports whether a process has ended without having been collected, or was killed.
func isLeaving(pid int) bool {
	if pid == 0 {
		return false
	}
	p, found, err := lookUp(pid)
	return err == nil && found && (p.dead || p.killed)
}

// maxPIDText bounds what is read of a lock file.
const maxPIDText = 32

func readPID(r io.Reader) int {
	text, err := io.ReadAll(io.LimitReader(r, maxPIDText))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// checkLayout refuses a directory of a newer Everpost and marks a fresh one as ours.
func checkLayout(dir string) error {
	path := filepath.Join(dir, layoutFile)
	text, err := os.ReadFile(path) //nolint:gosec // the operator's own directory
	if errors.Is(err, os.ErrNotExist) {
		return writeFileAtomically(path, strconv.Itoa(layout)+"\n")
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

// clusterLocation returns where the cluster of a data directory is, or will be.
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

// writeFileAtomically leaves either the old file or the whole new one, also after a power cut.
func writeFileAtomically(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator's own directory
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
