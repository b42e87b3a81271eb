package localpg_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/localpg"
)

// A killed server is restarted under the same address, also when its socket is outside the
// cluster's directory.
func TestSupervisedServerIsRestarted(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"short path": openDir(t), "odd path": openDir(t) + "/a b,c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.WithoutCancel(t.Context())
			lock, err := localpg.LockDir(ctx, dir, nil)
			require.NoError(t, err)
			defer lock.Release()
			s, err := localpg.Supervise(ctx, localpg.Options{Dir: dir, Lock: lock, Unsafe: true})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Stop(ctx)) }()
			address := s.URL(localpg.Database)
			backend := func() (pid int, err error) {
				conn, err := pgx.Connect(ctx, address)
				if err != nil {
					return 0, err
				}
				defer func() { _ = conn.Close(ctx) }()
				err = conn.QueryRow(ctx, `select split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int`).Scan(&pid)
				return pid, err
			}
			first, err := backend()
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
			require.Eventually(t, func() bool {
				second, err := backend()
				return err == nil && second != first
			}, 30*time.Second, 20*time.Millisecond)
		})
	}
}
