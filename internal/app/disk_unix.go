//go:build unix

package app

import (
	"os"
	"syscall"
)

// freeSpace returns the bytes that a directory's file system has free for ordinary users.
func freeSpace(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return fs.Bavail * uint64(fs.Bsize), nil //nolint:gosec // positive
}
