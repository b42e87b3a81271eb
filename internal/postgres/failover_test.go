package postgres_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

// failoverPatience is how long writers may take to find the primary: a second between two rounds, and a new connection.
const failoverPatience = 5 * time.Second

// writes makes a change with each of the pools that write.
func writes(t *testing.T, s *storetest.Stores, id string) error {
	t.Helper()
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "acme", Name: id})
	if err != nil {
		return err
	}
	_, err = s.Accept(t.Context(), storetest.NewEvent("order.paid"))
	if err != nil {
		return err
	}
	return s.Ready(t.Context())
}

func setupPair(t *testing.T) *postgrestest.Pair {
	t.Helper()
	p := postgrestest.NewPair(t)
	require.NoError(t, postgres.Migrate(t.Context(), p.Primary, slog.New(slog.DiscardHandler)))
	s := storetest.OpenStore(t, p.Primary)
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "acme"})
	require.NoError(t, err)
	return p
}

// The address leads to a standby for a while, and back to the primary while the sessions of the meantime stay open.
func TestWritersComeBackFromAStandby(t *testing.T) {
	t.Parallel()
	p := setupPair(t)
	forwarder, through := postgrestest.NewProxy(t, p.Primary)
	s := storetest.OpenStore(t, through+"&application_name=failover")
	storetest.Listen(t, s)
	require.NoError(t, writes(t, s, "before"))

	forwarder.Lead(t, p.Standby)
	forwarder.Cut()
	forwarder.Restore()
	standby := storetest.OpenStore(t, p.Standby)
	sessions := func() int {
		return storetest.Query[int](t, standby, `select count(*) from pg_stat_activity where application_name like 'failover%'`)[0]
	}
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline) || sessions() == 0; {
		storetest.RequireCode(t, webhook.CodeUnavailable, writes(t, s, "meanwhile"))
	}
	require.False(t, s.Listening(), "a standby notifies nobody")

	forwarder.Lead(t, p.Primary)
	require.Eventually(t, func() bool { return writes(t, s, "after") == nil }, failoverPatience, storetest.Poll)
	require.Eventually(t, s.Listening, 2*failoverPatience, storetest.Poll)
	require.Eventually(t, func() bool { return sessions() == 0 }, 2*failoverPatience, storetest.Poll, "sessions that only read leave the standby, too")
}

// A read-only process is not ready and gets no requests: that alone has to bring it back.
func TestReadinessComesBackFromAStandby(t *testing.T) {
	t.Parallel()
	p := setupPair(t)
	forwarder, through := postgrestest.NewProxy(t, p.Standby)
	s := storetest.OpenStore(t, through)
	storetest.RequireCode(t, webhook.CodeUnavailable, s.Ready(t.Context()))
	forwarder.Lead(t, p.Primary)
	require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, failoverPatience, storetest.Poll)
}

func TestSeveralHostsAndTargetSessionAttributes(t *testing.T) {
	t.Parallel()
	p := setupPair(t)
	// The standby comes first, so that the attribute decides.
	hosts := strings.Replace(p.Standby, "@", "@"+hostOf(t, p.Standby)+",", 1)
	hosts = strings.Replace(hosts, ","+hostOf(t, p.Standby), ","+hostOf(t, p.Primary), 1) + "&target_session_attrs=read-write"
	require.NoError(t, postgres.CheckEncryption(hosts))
	s := storetest.OpenStore(t, hosts)
	storetest.Listen(t, s)
	require.NoError(t, s.CheckSessions(t.Context()))
	require.NoError(t, writes(t, s, "before"))
	p.KillPrimary(t)
	require.Eventually(t, func() bool { return writes(t, s, "after") == nil }, 2*failoverPatience, storetest.Poll)
	require.Eventually(t, s.Listening, 2*failoverPatience, storetest.Poll)
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	_, rest, found := strings.Cut(address, "@")
	require.True(t, found)
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// A database that is read-only by a setting answers every write like a standby: that must not open a connection for each.
func TestRoundsAreASecondApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r postgres.Rounds
		begun := 0
		for range 100 {
			if r.Begin() {
				begun++
			}
			advance(postgres.RoundEvery / 10)
		}
		require.Equal(t, 10, begun)
	})
}

func TestAReadOnlyDatabaseOpensOneRoundOfSessionsASecond(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	readOnly := storetest.OpenStore(t, address+"&default_transaction_read_only=on")
	begun := time.Now()
	for range 50 {
		_, _, err := readOnly.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "acme", Name: "x"})
		storetest.RequireCode(t, webhook.CodeUnavailable, err)
	}
	rounds := int64(time.Since(begun)/postgres.RoundEvery) + 1
	require.LessOrEqual(t, readOnly.TenantPool().Stat().NewConnsCount(), 2*(rounds+1))
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "acme", Name: "y"})
	require.NoError(t, err)
}
