package localpg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The cluster's directory belongs to the account that runs the database, and this process
// may be root. That account may replace any file there by a link, a pipe or a device, so
// this process never follows links in it.

// maxOwnedFile bounds what is read of a file that the database's account can write.
const maxOwnedFile = 64 << 10

// readOwned reads a regular file of a directory that another account owns. It refuses links
// and other kinds of files; a missing file is os.ErrNotExist.
func readOwned(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	// O_NONBLOCK: opening a pipe would block until there is a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // no link is followed
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, linkError(err))
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: %w", path, errNotRegular)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxOwnedFile))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return text, nil
}

var errNotRegular = errors.New("it is not a regular file: remove it")

// linkError replaces ELOOP by a readable error.
func linkError(err error) error {
	if errors.Is(err, syscall.ELOOP) {
		return errors.New("it is a symbolic link: remove it")
	}
	if pathError, ok := errors.AsType[*os.PathError](err); ok {
		return pathError.Err
	}
	return err
}

// writeOwned creates a file that the account owns, in place of whatever has that name in
// dir.
func writeOwned(dir, name, text string, a account) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(dir, name), err)
	}
	defer func() { _ = root.Close() }()
	draft := name + ".everpost"
	err = root.Remove(draft) // left by an interrupted start
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write %s: %w", filepath.Join(dir, name), err)
	}
	f, err := root.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(dir, name), err)
	}
	_, err = f.WriteString(text)
	if a.dropped {
		err = errors.Join(err, f.Chown(a.uid, a.gid))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(draft, name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(dir, name), errors.Join(err, root.Remove(draft)))
	}
	return nil
}

// removeSocketDir removes the socket directory of an earlier server, if this package
// created it: the path comes from a file of the database's account, which must not be able
// to choose another directory.
func removeSocketDir(dir, cluster string) {
	if dir != filepath.Clean(dir) || filepath.Dir(dir) != filepath.Clean(os.TempDir()) || !strings.HasPrefix(filepath.Base(dir), socketDirPrefix) {
		return
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || ownerOf(info) != ownerOfPath(cluster) {
		return
	}
	_ = os.RemoveAll(dir) // follows no links
}

// ownerOf returns the user id of a file's owner, -1 when it is unknown.
func ownerOf(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

func ownerOfPath(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return ownerOf(info)
}
