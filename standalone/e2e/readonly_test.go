package e2e_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/standalone/internal/temporald"
)

// onDatabase connects to a database of a server whose URL leads to another one.
func onDatabase(ctx context.Context, t *testing.T, server, name string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(server)
	require.NoError(t, err)
	config.Database = name
	conn, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	return conn
}

// Temporal answers health checks and cannot write: first whatever it wants to write hangs, as
// when its shards are lost; then its database is read-only, as after a failover to a standby.
// Every event has its 202 all along, the installation says that it is degraded, and goes on by itself.
func TestTemporalThatCannotWrite(t *testing.T) {
	t.Parallel()
	in := ownHome(t)
	database, err := localpg.Start(t.Context(), localpg.Options{Dir: filepath.Join(in.home, "database"), Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		if in.process != nil && in.process.Running() {
			if err := in.stop(); err != nil {
				t.Errorf("stop the instance: %v", err)
			}
		}
		if err := database.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	server := database.URL(localpg.Database)
	in.env = in.env.With(settings{"EVERPOST_DATABASE_URL": server})
	require.NoError(t, in.start(contextFor(t, startPatience)))
	ctx := contextFor(t, 3*patience)
	temporal, other := onDatabase(ctx, t, server, temporald.MainDatabase), onDatabase(ctx, t, server, localpg.Database)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	load := b.stream("w")
	load.waitMore(t, 50)
	_, err = r.WaitFor(ctx, 50)
	require.NoError(t, err)

	lock, err := temporal.Begin(ctx)
	require.NoError(t, err)
	_, err = lock.Exec(ctx, `lock table shards in exclusive mode`) // what Temporal writes, it writes under a lock of a row of it
	require.NoError(t, err)
	in.waitHealth(t, "degraded")
	load.waitMore(t, 300)
	in.waitHealth(t, "degraded")
	require.NoError(t, lock.Rollback(ctx))
	in.waitHealth(t, "ok")
	load.waitMore(t, 50)

	readOnly := func(is string) {
		_, err := other.Exec(ctx, `alter database `+temporald.MainDatabase+` set default_transaction_read_only = `+is)
		require.NoError(t, err)
		_, err = other.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where datname = $1`, temporald.MainDatabase)
		require.NoError(t, err)
	}
	readOnly("on")
	in.waitHealth(t, "degraded")
	load.waitMore(t, 300)
	in.waitHealth(t, "degraded")
	readOnly("off")
	in.waitHealth(t, "ok")
	load.waitMore(t, 50)

	acked := load.end(t)
	_, refused, broken := load.count()
	require.Zero(t, refused, "of %d", len(acked))
	require.Zero(t, broken)
	b.allDelivered(contextFor(t, longRecovery), r, acked)
	require.Equal(t, len(acked), r.Count(), "each once")
	t.Logf("%d events acknowledged, none refused, each sent once", len(acked))
}
