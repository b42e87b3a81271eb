package temporald_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/standalone/internal/temporald"
)

func nothing(workflow.Context) error { return nil }

// BenchmarkWorkflow runs workflows that do nothing, 64 side by side, with fsync on: what is left is
// what a workflow costs, most of it the rows of its visibility.
func BenchmarkWorkflow(b *testing.B) {
	for _, prune := range []bool{false, true} {
		b.Run(fmt.Sprintf("prune=%t", prune), func(b *testing.B) {
			dir, err := os.MkdirTemp("", "temporald-bench-") //nolint:usetesting // the directory above TempDir is closed to the database's user
			require.NoError(b, err)
			defer func() { _ = os.RemoveAll(dir) }()
			require.NoError(b, os.Chmod(dir, 0o755))
			pg, err := localpg.Start(b.Context(), localpg.Options{Dir: dir})
			require.NoError(b, err)
			defer func() { require.NoError(b, pg.Stop(context.WithoutCancel(b.Context()))) }()
			s, err := temporald.Start(b.Context(), temporald.Options{
				DatabaseURL: pg.URL(localpg.Database), SearchAttributes: attributes(), PruneVisibilityIndexes: prune,
			})
			require.NoError(b, err)
			defer func() { require.NoError(b, s.Stop(context.WithoutCancel(b.Context()))) }()
			c, err := client.Dial(client.Options{
				HostPort: s.Address(), Logger: slog.New(slog.DiscardHandler),
				ConnectionOptions: client.ConnectionOptions{GrpcCompression: &client.GrpcCompressionNone{}},
			})
			require.NoError(b, err)
			defer c.Close()
			w := worker.New(c, queue, worker.Options{})
			w.RegisterWorkflow(nothing)
			require.NoError(b, w.Start())
			defer w.Stop()

			var id atomic.Int64
			tenant := temporal.NewSearchAttributes(temporal.NewSearchAttributeKeyKeyword("TenantId").ValueSet("acme"))
			b.SetParallelism(32) // times GOMAXPROCS
			before := serverCPU(b, pg.PID())
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					run, err := c.ExecuteWorkflow(b.Context(), client.StartWorkflowOptions{
						ID: fmt.Sprintf("w/%d", id.Add(1)), TaskQueue: queue, EnableEagerStart: true, TypedSearchAttributes: tenant,
					}, nothing)
					if err == nil {
						err = run.Get(b.Context(), nil)
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(1000*(serverCPU(b, pg.PID())-before)/float64(b.N), "ms-PostgreSQL-CPU/op")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "workflows/s")
		})
	}
}

// serverCPU returns the seconds of processor time that a PostgreSQL and all its sessions, past and
// present, have used. It needs /proc.
func serverCPU(b *testing.B, postmaster int) (seconds float64) {
	b.Helper()
	const ticksPerSecond = 100 // USER_HZ, the same on every Linux
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(b, err)
	for _, path := range processes {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		require.NoError(b, err)
		_, rest, _ := strings.Cut(string(text), ") ")
		var (
			state                        string
			parent                       int
			skip                         [9]int64
			user, system, waitedU, waitS float64
		)
		_, err = fmt.Sscan(rest, &state, &parent, &skip[0], &skip[1], &skip[2], &skip[3], &skip[4],
			&skip[5], &skip[6], &skip[7], &skip[8], &user, &system, &waitedU, &waitS)
		require.NoError(b, err)
		switch {
		case pid == postmaster:
			seconds += (user + system + waitedU + waitS) / ticksPerSecond
		case parent == postmaster:
			seconds += (user + system) / ticksPerSecond
		}
	}
	return seconds
}
