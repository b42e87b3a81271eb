package localpg

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Release works while a child is between fork and exec: the child shares the open files of
// its parent, like a duplicate.
func TestReleaseWhileAChildStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := LockDir(t.Context(), dir, nil)
	require.NoError(t, err)
	shared, err := syscall.Dup(int(lock.files[0].Fd()))
	require.NoError(t, err)
	defer func() { _ = syscall.Close(shared) }()

	lock.Release()
	again, err := LockDir(t.Context(), dir, nil)
	require.NoError(t, err)
	again.Release()
}
