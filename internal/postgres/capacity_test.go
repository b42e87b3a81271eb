package postgres_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
)

func TestADatabaseThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	address := postgrestest.NewEmpty(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	u, err := url.Parse(address)
	require.NoError(t, err)
	name := "latin_" + strings.TrimPrefix(u.Query().Get("search_path"), "test_")
	_, err = conn.Exec(t.Context(), `create database `+name+` encoding 'LATIN1' locale 'C' template template0`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), `drop database `+name+` with (force)`)
		require.NoError(t, err)
		require.NoError(t, conn.Close(context.WithoutCancel(t.Context())))
	})
	u.Path = "/" + name
	query := u.Query()
	query.Del("search_path")
	u.RawQuery = query.Encode()

	var mismatch *postgres.MismatchError
	require.ErrorAs(t, postgres.Migrate(t.Context(), u.String(), slog.New(slog.DiscardHandler)), &mismatch)
	require.Contains(t, mismatch.What, "LATIN1")
	require.ErrorAs(t, storetest.OpenStore(t, u.String()).CheckEncoding(t.Context()), &mismatch)
	s, _ := storetest.SetupStore(t)
	require.NoError(t, s.CheckEncoding(t.Context()))
}

// With few connections callers wait for one, and none is turned away.
func TestFewConnectionsMakeCallersWait(t *testing.T) {
	t.Parallel()
	_, address := storetest.SetupStore(t)
	s, err := storetest.OpenStores(t.Context(), stores.Config{URL: address, MaxConns: 2, Sealer: storetest.NewTestSealer(t), MakeSecret: storetest.TestSecret})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	var group errgroup.Group
	for range 40 {
		group.Go(func() error {
			return s.OfTenant("acme").WithConn(t.Context(), "wait", func(ctx context.Context, db postgres.Querier) error {
				_, err := db.Exec(ctx, `select pg_sleep(0.2)`) // 40 of them on two connections: longer than the old 3 s
				return err
			})
		})
	}
	require.NoError(t, group.Wait())
}

// The locks that are computed from the catalog are those that a statement over all days takes.
func TestLocksOfAListOverAllDays(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	facts, err := s.Facts(t.Context())
	require.NoError(t, err)
	// 12 lists, a year and four days, and the room of standalone: see settings in internal/localpg/server.go and docs/sizing.md.
	require.LessOrEqual(t, 12*369*facts.LocksPerDay, int64(640*200))
	require.Positive(t, facts.Connections)
	tx, err := s.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	_, err = tx.Exec(t.Context(), `
		select count(*) from deliveries d join events e on e.id = d.event_id join attempts a on a.delivery_id = d.id where d.tenant_id = 'acme'`)
	require.NoError(t, err)
	var locks int64
	require.NoError(t, tx.QueryRow(t.Context(), `
		select count(*) from pg_locks where pid = pg_backend_pid() and relation in (
			select c.oid from pg_class c where relispartition)`).Scan(&locks))
	require.Equal(t, facts.LocksPerDay, locks, "there is one partition of each table, the default one")
}
