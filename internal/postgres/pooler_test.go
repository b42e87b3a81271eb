package postgres_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestAPoolerThatSharesSessionsIsRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "statement"} {
		for _, sessions := range []int{1, 4, 20} {
			t.Run(fmt.Sprintf("%s mode, %d sessions", mode, sessions), func(t *testing.T) {
				t.Parallel()
				through := postgrestest.NewPgBouncer(t, postgrestest.New(t), mode, sessions)
				s := storetest.OpenStore(t, through+"&default_query_exec_mode=cache_describe")
				started := time.Now()
				require.ErrorIs(t, s.CheckSessions(t.Context()), postgres.ErrPooled)
				require.Less(t, time.Since(started), postgres.PoolerTimeout)
				require.ErrorIs(t, postgres.Migrate(t.Context(), through, slog.New(slog.DiscardHandler)), postgres.ErrPooled)
			})
		}
	}
}

func TestAPoolerInSessionModeMayBeUsed(t *testing.T) {
	t.Parallel()
	through := postgrestest.NewPgBouncer(t, postgrestest.New(t), "session", 30)
	s := storetest.OpenStore(t, through)
	require.NoError(t, s.CheckSessions(t.Context()))
	require.NoError(t, s.Migrated(t.Context()))
	storetest.Listen(t, s)
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "acme"})
	require.NoError(t, err)
	storetest.CreateEndpoint(t, s, "acme")
}

func TestADirectConnectionHasASessionOfItsOwn(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	require.NoError(t, s.CheckSessions(t.Context()))
	_, few := postgrestest.NewLogin(t, address, postgres.RoleAPI)
	require.NoError(t, storetest.OpenStore(t, few).CheckSessions(t.Context()))
}
