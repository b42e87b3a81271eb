package postgres_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// stuckLists is a store whose lists of deliveries and of events come to no end before goOn
// is called.
func stuckLists(t *testing.T) (s *storetest.Stores, goOn func()) {
	t.Helper()
	_, address := storetest.SetupStore(t)
	s, err := storetest.OpenStores(t.Context(), stores.Config{URL: address + "&lock_timeout=60s", MaxConns: 12, Sealer: storetest.NewTestSealer(t)})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), `begin; lock table deliveries, events in access exclusive mode`)
	require.NoError(t, err)
	return s, func() {
		_, err := conn.Exec(t.Context(), `rollback`)
		require.NoError(t, err)
	}
}

// Lists that take long leave connections for the intake, and permits for other tenants.
func TestSlowListsLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	s, goOn := stuckLists(t)
	s.Lists().Timeout, s.Lists().Wait = time.Minute, 50*time.Millisecond
	page := webhook.Page{Limit: 10}
	answers := map[string]chan error{}
	ask := func(tenant string, n int) {
		answers[tenant] = make(chan error, n)
		for i := range n {
			go func() {
				var err error
				if i%2 == 0 {
					_, _, err = s.ListDeliveries(t.Context(), tenant, webhook.DeliveryFilter{EventType: "never.seen"}, page)
				} else {
					_, _, err = s.ListEvents(t.Context(), tenant, webhook.EventFilter{Type: "never.seen"}, page)
				}
				answers[tenant] <- err
			}()
		}
	}
	refused := func(tenant string, n int, code webhook.Code) {
		for range n {
			err := <-answers[tenant]
			storetest.RequireCode(t, code, err)
		}
	}
	ask("acme", 20)
	refused("acme", 20-postgres.ListsPerTenant, webhook.CodeRateLimited)
	_, err := s.CreateReplay(t.Context(), storetest.TestActor(), webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters, Asked: 10})
	storetest.RequireCode(t, webhook.CodeRateLimited, err)
	ask("other", 4)
	refused("other", 2, webhook.CodeUnavailable) // six of twelve connections are for lists

	for range 100 { // what taking events needs
		_, err := s.Tenant(t.Context(), "acme")
		require.NoError(t, err)
		_, _, err = storetest.ReadEndpoints(t.Context(), s.Cache(), "acme")
		require.NoError(t, err)
		_, err = s.ListKeys(t.Context(), "acme", page)
		require.NoError(t, err)
	}
	goOn()
	for tenant, n := range map[string]int{"acme": postgres.ListsPerTenant, "other": 2} {
		for range n {
			require.NoError(t, <-answers[tenant])
		}
	}
	require.Zero(t, s.Lists().Running.Tenants())
}

// A list that takes too long says what to narrow. Here a row takes as long to be looked at
// as a very long record does.
func TestAListThatTakesTooLong(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for state, start := range map[webhook.State]webhook.Start{webhook.StateDeadLettered: b.AcceptOne(t), webhook.StateRetrying: b.AcceptOne(t)} {
		step := storetest.StepOf(start, 1, state)
		step.Attempt = storetest.AttemptOf(1, 1, 503)
		_, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err)
	}
	_, err := b.Pool().Exec(t.Context(), `
		update deliveries set reason = 'http_503', last_status = 503;
		create policy slow on deliveries as restrictive to everpost_api using (pg_sleep(60)::text = '');
		create policy slow on events as restrictive to everpost_api using (pg_sleep(60)::text = '');
		create policy slow on audit_log as restrictive to everpost_operator using (pg_sleep(60)::text = '')`)
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, b.Lists().Timeout)
	b.Lists().Timeout = 50 * time.Millisecond
	page, since := webhook.Page{Limit: 10}, time.Now().AddDate(0, 0, -20)
	for name, list := range map[string]func() error{
		"deliveries": func() error {
			_, _, err := b.ListDeliveries(t.Context(), "acme", webhook.DeliveryFilter{}, page)
			return err
		},
		"filtered deliveries": func() error {
			_, _, err := b.ListDeliveries(t.Context(), "acme", webhook.DeliveryFilter{EventType: "order.paid", Since: since}, page)
			return err
		},
		"groups": func() error {
			_, err := b.GroupDeadLetters(t.Context(), "acme", webhook.DeliveryFilter{})
			return err
		},
		"events": func() error {
			_, _, err := b.ListEvents(t.Context(), "acme", webhook.EventFilter{Type: "order.paid"}, page)
			return err
		},
		"audit log": func() error {
			_, err := b.ListAudit(t.Context(), webhook.AuditFilter{Action: "tenant.create"}, page)
			return err
		},
	} {
		err := list()
		storetest.RequireCode(t, webhook.CodeUnavailable, err)
		require.ErrorContains(t, err, "the list took longer than 50ms; give since, or a later since", name)
	}
	var timeout string
	require.NoError(t, b.TenantPool().QueryRow(t.Context(), `show statement_timeout`).Scan(&timeout))
	require.Equal(t, "10s", timeout, "the next user of the connection has the usual one")
}

// A list whose caller has gone leaves nothing behind, and a permit that is released goes to a list that waits.
func TestListLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := postgres.NewListLimit(10)
		var releases []func()
		for range postgres.ListsPerTenant {
			release, err := limit.Acquire(t.Context(), "acme")
			require.NoError(t, err)
			releases = append(releases, release)
		}
		before := time.Now()
		_, err := limit.Acquire(t.Context(), "acme")
		storetest.RequireCode(t, webhook.CodeRateLimited, err)
		require.Equal(t, postgres.ListWait, time.Since(before))

		gone, leave := context.WithCancel(t.Context())
		leave()
		_, err = limit.Acquire(gone, "acme")
		require.ErrorIs(t, err, context.Canceled)

		other, err := limit.Acquire(t.Context(), "other")
		require.NoError(t, err)
		_, err = limit.Acquire(gone, "third")
		require.ErrorIs(t, err, context.Canceled)
		_, err = limit.Acquire(t.Context(), "third")
		storetest.RequireCode(t, webhook.CodeUnavailable, err)

		waiting := make(chan error, 1)
		go func() {
			release, err := limit.Acquire(t.Context(), "third")
			if err == nil {
				release()
			}
			waiting <- err
		}()
		synctest.Wait()
		other()
		require.NoError(t, <-waiting)
		for _, release := range releases {
			release()
		}
		require.Zero(t, limit.Running.Tenants())
	})
}
