package postgres_test

import (
	"crypto/sha256"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

// setupLogin is a store of the owner's and one that logs in with some roles.
func setupLogin(t *testing.T, roles ...string) (owner *walled, its *storetest.Stores) {
	t.Helper()
	owner = setupWall(t)
	_, address := postgrestest.NewLogin(t, owner.Address, roles...)
	return owner, storetest.OpenStore(t, address)
}

func TestALoginOfTheAPIRunsTheAPI(t *testing.T) {
	t.Parallel()
	owner, s := setupLogin(t, postgres.RoleAPI)
	ctx, by := t.Context(), storetest.TestActor()
	require.NoError(t, s.Ready(ctx))
	require.NoError(t, s.Migrated(ctx))
	for role, want := range map[string]bool{postgres.RoleAPI: true, postgres.RoleIngest: true, postgres.RoleOperator: true, postgres.RoleWorker: false} {
		may, err := s.May(ctx, role)
		require.NoError(t, err)
		require.Equal(t, want, may, role)
	}

	// What operators do.
	_, created, err := s.PutTenant(ctx, by, webhook.Tenant{ID: "new", Name: "New"})
	require.NoError(t, err)
	require.True(t, created)
	tenants, err := s.ListTenants(ctx, "", 10, "")
	require.NoError(t, err)
	require.Len(t, tenants, 3)
	secret := sha256.Sum256([]byte("secret"))
	for _, k := range []webhook.Key{
		{ID: webhook.NewKeyID(), Scope: webhook.ScopeOperator, SHA256: secret, CreatedAt: time.Now()},
		{ID: webhook.NewKeyID(), TenantID: "new", Scope: webhook.ScopeAdmin, SHA256: secret, CreatedAt: time.Now()},
	} {
		require.NoError(t, s.CreateKey(ctx, by, k))
		found, err := s.Authenticate(ctx, k.ID, secret)
		require.NoError(t, err)
		require.Equal(t, k.TenantID, found.TenantID)
		require.NoError(t, s.WriteUse(ctx, map[webhook.KeyID]time.Time{k.ID: time.Now()}))
		listed, err := s.ListKeys(ctx, k.TenantID, webhook.Page{Limit: 10})
		require.NoError(t, err)
		require.Len(t, listed, 1)
		require.False(t, listed[0].LastUsedAt.IsZero())
		require.NoError(t, s.RevokeKey(ctx, by, k.TenantID, k.ID))
	}
	require.NoError(t, s.DeleteTenant(ctx, by, "new"))
	entries, err := s.ListAudit(ctx, webhook.AuditFilter{}, webhook.Page{Limit: 100})
	require.NoError(t, err)
	require.Equal(t, "tenant.delete", entries[0].Action)

	// What tenants do.
	accepted, err := s.Accept(ctx, webhook.NewEvent{TenantID: "acme", Type: "order.paid", Payload: []byte(`1`), ExternalID: "three", IdempotencyKey: "k"})
	require.NoError(t, err)
	again, err := s.Accept(ctx, webhook.NewEvent{TenantID: "acme", Type: "order.paid", Payload: []byte(`1`), ExternalID: "three", IdempotencyKey: "k"})
	require.NoError(t, err)
	require.True(t, again.Repeated)
	require.Equal(t, accepted.Event.ID, again.Event.ID)
	require.Equal(t, accepted.Event.PayloadSize, again.Event.PayloadSize)
	require.NoError(t, s.AddStatistics(ctx, statisticsOf("acme", owner.endpoints["acme"].ID)), "what filters say of events")
	for name, read := range owner.reads() {
		found, err := read(ctx, s)
		require.NoError(t, err, name)
		require.False(t, nothing(found), name)
	}
	for name, change := range owner.changes() {
		if name != "DeleteEndpoint" {
			require.NoError(t, change(ctx, s), name)
		}
	}
	require.NoError(t, owner.changes()["DeleteEndpoint"](ctx, s))

	uses, err := s.KEKUses(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, uses)

	worker := webhook.Process{ID: "worker", Address: "10.0.0.1:8082"}
	_, err = owner.Lanes.Renew(ctx, worker, []int{})
	require.NoError(t, err)
	for range 2 {
		fleet, err := s.Lanes.Register(ctx, webhook.Process{ID: "api"})
		require.NoError(t, err)
		require.Len(t, fleet.Processes, 2)
		require.Equal(t, webhook.Lane{Owner: "worker", Epoch: 1}, fleet.Lanes[0])
		require.Empty(t, fleet.Taken)
	}

	// And what it does not.
	worker.ID = "another"
	_, err = s.Lanes.Renew(ctx, worker, []int{})
	require.ErrorContains(t, err, "not a member of everpost_worker")
	for change, want := range map[string]string{
		`insert into processes (id, address, certificate, leaving, seen_until) values ('another', '10.0.0.2:8082', '', false, now())`: "row-level security",
		`update lanes set owner = 'api'`:                          "permission denied",
		`update processes set address = '' where id = 'worker'`:   "permission denied",
		`update processes set leaving = true where id = 'worker'`: "",
		`delete from processes where id = 'worker'`:               "",
	} {
		tx, err := owner.Pool().Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `set local role everpost_operator`)
		require.NoError(t, err)
		changed, err := tx.Exec(ctx, change)
		if want != "" {
			require.ErrorContains(t, err, want, change)
		} else {
			require.NoError(t, err, change)
		}
		require.Zero(t, changed.RowsAffected(), change)
		require.NoError(t, tx.Rollback(ctx))
	}
	_, err = s.TakeStarts(ctx, "test", 10)
	require.ErrorContains(t, err, "not a member of everpost_worker")
	_, err = s.Claim(ctx, storetest.ClaimOf(owner.deliveries["other"], 1, "me", time.Minute))
	require.ErrorContains(t, err, "not a member of everpost_worker")
	_, err = s.Target(ctx, owner.endpoints["other"].ID)
	require.ErrorContains(t, err, "not a member of everpost_worker")
}

func TestALoginOfTheWorkerDoesAWorkersPart(t *testing.T) {
	t.Parallel()
	owner, s := setupLogin(t, postgres.RoleWorker)
	ctx := t.Context()
	require.NoError(t, s.Ready(ctx))
	require.NoError(t, s.Migrated(ctx))

	e, d := owner.endpoints["acme"], owner.deliveries["acme"]
	_, err := s.Endpoints.Cache().Target(ctx, e.ID)
	require.NoError(t, err)
	_, err = activate(t, s, e)
	require.NoError(t, err)
	accepted, err := owner.Accept(ctx, webhook.NewEvent{TenantID: "acme", Type: "order.paid", Payload: []byte(`1`), EndpointIDs: []webhook.EndpointID{e.ID}})
	require.NoError(t, err)
	start := accepted.Deliveries[0]
	begun, err := s.Claim(ctx, storetest.ClaimOf(start, 0, "me", time.Minute))
	require.NoError(t, err)
	require.True(t, begun.Granted)
	step := storetest.StepOf(start, 1, webhook.StateDelivered)
	step.Attempt = storetest.AttemptOf(1, 1, 200)
	_, err = s.RecordStep(ctx, step)
	require.NoError(t, err)
	_, err = s.Reopen(ctx, d.Ref, 1, "because")
	require.NoError(t, err)

	_, err = owner.Pool().Exec(ctx, `update outbox set relay_at = now()`)
	require.NoError(t, err)
	starts, err := s.TakeStarts(ctx, "test", 10)
	require.NoError(t, err)
	require.NotEmpty(t, starts)
	_, err = s.Notify(ctx, []webhook.OperationalEvent{{Type: webhook.EventRetryStorm, TenantID: "acme", Endpoint: &e, At: time.Now()}})
	require.NoError(t, err)
	_, err = s.CountFailures(ctx, []webhook.EndpointFailures{{EndpointID: e.ID, Gone: time.Now().Add(time.Minute)}})
	require.NoError(t, err)
	why, err := s.DisableFailing(ctx, "acme", e.ID)
	require.NoError(t, err)
	require.NotEmpty(t, why)
	_, _, err = s.AutoReplay(ctx, "acme", e.ID, time.Now().Add(-time.Hour))
	require.NoError(t, err)

	for name, do := range map[string]func() error{
		"TakeCommands":    func() error { _, err := s.TakeCommands(ctx, 10); return err },
		"Overdue":         func() error { _, _, err := s.Overdue(ctx, webhook.Cursor{}, time.Hour, 10); return err },
		"Expired":         func() error { _, _, err := s.Expired(ctx, time.Hour, webhook.Cursor{}, time.Hour, 10); return err },
		"CircuitClosings": func() error { _, err := s.CircuitClosings(ctx, []webhook.EndpointID{e.ID}); return err },
		"TakeOver":        func() error { _, err := s.TakeOver(ctx, "a", "b", nil); return err },
		"ReleaseExpired":  func() error { _, err := s.ReleaseExpired(ctx, 10); return err },
		"StartRoom":       func() error { _, err := s.StartRoom(ctx, []int{1}); return err },
		"DueReleases":     func() error { _, err := s.DueReleases(ctx, []int{1}, 10); return err },
		"TakeTurn":        func() error { _, err := s.TakeTurn(ctx, webhook.ReleaseTurn{EndpointID: e.ID, Limit: 10}); return err },
		"Postpone":        func() error { return s.Postpone(ctx, []webhook.PostponedRelease{{EndpointID: e.ID}}) },
		"ReleaseDepth":    func() error { _, _, err := s.ReleaseDepth(ctx); return err },
		"AnalyzeGrown":    func() error { _, err := s.AnalyzeGrown(ctx); return err },
		"TakeReplays":     func() error { _, err := s.TakeReplays(ctx, 10); return err },
		"ReleaseReplay": func() error {
			_, err := s.ReleaseReplay(ctx, webhook.ReplayBatch{ID: owner.replays["acme"].ID, Seq: 1, Limit: 10, Now: time.Now()})
			return err
		},
		"ReplayOutcomes": func() error { _, err := s.ReplayOutcomes(ctx, owner.replays["acme"].ID, time.Now(), 10); return err },
		"StepReplay": func() error {
			_, err := s.StepReplay(ctx, webhook.ReplayStep{ID: owner.replays["other"].ID, Seq: 9, State: webhook.ReplayCompleted})
			return err
		},
		"PruneReplays":      func() error { _, err := s.PruneReplays(ctx, 0); return err },
		"PruneTenants":      func() error { _, err := s.PruneDeletedTenants(ctx); return err },
		"PruneAuditLog":     func() error { _, err := s.PruneAuditLog(ctx, 365*24*time.Hour); return err },
		"PruneSecrets":      func() error { _, err := s.PruneSecrets(ctx); return err },
		"PruneKeys":         func() error { _, err := s.PruneIdempotencyKeys(ctx, 0); return err },
		"FailingEndpoints":  func() error { _, err := s.FailingEndpoints(ctx); return err },
		"WriteObservations": func() error { return s.WriteObservations(ctx, "me", nil) },
		"OutboxDepth":       func() error { _, _, err := s.OutboxDepth(ctx); return err },
		"HeldDepth":         func() error { _, _, err := s.HeldDepth(ctx); return err },
		"RetryDepth":        func() error { _, err := s.RetryDepth(ctx); return err },
		"ReplayRate":        func() error { _, err := s.ReplayRate(ctx); return err },
		"AdmitReplays":      func() error { return s.AdmitReplays(ctx) },
		"KEKUses":           func() error { _, err := s.KEKUses(ctx); return err },
		"CancelRemaining":   func() error { return s.CancelRemaining(ctx) },
		"AddStatistics":     func() error { return s.AddStatistics(ctx, statisticsOf("bcme", e.ID)) },
		"RetainStatistics":  func() error { _, err := s.RetainStatistics(ctx, time.Now()); return err },
		"EnsurePartitions":  func() error { return s.EnsurePartitions(ctx, time.Now().AddDate(0, 0, 30)) },
	} {
		require.NoError(t, do(), name)
	}
	_, err = owner.Pool().Exec(ctx, `update tenants set retention = '{"payloads": 1, "attempts": 1, "deliveries": 1}' where id = 'acme'`)
	require.NoError(t, err)
	own, err := s.RetainTenants(ctx, time.Now().AddDate(0, 0, 2))
	require.NoError(t, err)
	for _, removed := range []int64{own.Payloads, own.Attempts, own.Deliveries, own.Events} {
		require.Positive(t, removed)
	}
	old := time.Now().AddDate(0, 0, -30)
	require.NoError(t, s.EnsurePartitions(ctx, old))
	gone, err := s.Retain(ctx, time.Now(), 20*24*time.Hour)
	require.NoError(t, err)
	require.Positive(t, gone.Days)
	dropped, err := s.RetainStatistics(ctx, time.Now())
	require.NoError(t, err)
	require.Positive(t, dropped)
	require.NotContains(t, storetest.PartitionsOf(t, owner.Stores, "events"), "events_"+old.UTC().Format("20060102"))

	// What is not a worker's.
	for name, err := range map[string]error{
		"PutTenant": func() error {
			_, _, err := s.PutTenant(ctx, storetest.TestActor(), webhook.Tenant{ID: "new"})
			return err
		}(),
		"CreateKey": s.CreateKey(ctx, storetest.TestActor(),
			webhook.Key{ID: webhook.NewKeyID(), TenantID: "acme", Scope: webhook.ScopeAdmin, CreatedAt: time.Now()}),
		"ListKeys":  func() error { _, err := s.ListKeys(ctx, "acme", webhook.Page{Limit: 1}); return err }(),
		"ListAudit": func() error { _, err := s.ListAudit(ctx, webhook.AuditFilter{}, webhook.Page{Limit: 1}); return err }(),
	} {
		require.ErrorContains(t, err, "permission denied", name)
	}
}

// activate makes an endpoint active that was made paused.
func activate(t *testing.T, s *storetest.Stores, e webhook.Endpoint) (webhook.Endpoint, error) {
	t.Helper()
	return s.UpdateEndpoint(t.Context(), storetest.TestActor(), e.TenantID, e.ID, func(e *webhook.Endpoint) error {
		e.State, e.AutoReplay = webhook.EndpointActive, true
		return nil
	})
}

func TestALoginWithoutRolesIsToldSo(t *testing.T) {
	t.Parallel()
	owner, s := setupLogin(t)
	err := s.Ready(t.Context())
	require.ErrorContains(t, err, "is not a member of everpost_api or everpost_worker: grant it, see docs/security-database.md")
	_, err = s.Tenant(t.Context(), "acme")
	require.Error(t, err)
	require.Len(t, storetest.Query[string](t, owner.Stores, `select id from tenants`), 2)
}

// Logins come and go while the roles stay: the next one goes on.
func TestARotatedLoginGoesOn(t *testing.T) {
	t.Parallel()
	owner, address := storetest.SetupStore(t)
	first, its := postgrestest.NewLogin(t, address, postgres.RoleAPI)
	s, err := storetest.OpenStores(t.Context(), stores.Config{URL: its, MaxConns: 4, Sealer: storetest.NewTestSealer(t), MakeSecret: storetest.TestSecret})
	require.NoError(t, err)
	e := storetest.CreateEndpoint(t, s, "acme")

	_, next := postgrestest.NewLogin(t, address, postgres.RoleAPI)
	_, err = owner.Pool().Exec(t.Context(), `revoke everpost_api from `+pgx.Identifier{first}.Sanitize())
	require.NoError(t, err)
	s.Close()
	stale := storetest.OpenStore(t, its)
	require.ErrorContains(t, stale.Ready(t.Context()), "is not a member")

	s = storetest.OpenStore(t, next)
	require.NoError(t, s.Ready(t.Context()))
	found, err := s.Endpoint(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, e.URL, found.URL)
}

// An owner that may not make roles migrates when they are there, and works in those that
// it was given.
func TestAnOwnerThatMayMakeNoRoles(t *testing.T) {
	t.Parallel()
	postgrestest.New(t) // makes the roles
	address := postgrestest.NewEmpty(t)
	superuser := storetest.OpenStore(t, address)
	name, its := postgrestest.NewLogin(t, address)
	u, err := url.Parse(address)
	require.NoError(t, err)
	schema := pgx.Identifier{u.Query().Get("search_path")}.Sanitize()
	_, err = superuser.Pool().Exec(t.Context(), `alter schema `+schema+` owner to `+pgx.Identifier{name}.Sanitize())
	require.NoError(t, err)

	require.NoError(t, postgres.Migrate(t.Context(), its, superuser.Log))
	s := storetest.OpenStore(t, its)
	require.ErrorContains(t, s.Ready(t.Context()), "is not a member of everpost_api")
	_, err = superuser.Pool().Exec(t.Context(), `grant everpost_api, everpost_worker to `+pgx.Identifier{name}.Sanitize())
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	_, _, err = s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "acme", Name: "Acme"})
	require.NoError(t, err)
	require.NoError(t, s.EnsurePartitions(t.Context(), time.Now().AddDate(0, 0, 9)))
	require.Equal(t, []string{name}, storetest.Query[string](t, superuser, `
		select distinct tableowner::text from pg_tables where schemaname = $1 and tablename like 'events%'`, strings.Trim(schema, `"`)))
}
