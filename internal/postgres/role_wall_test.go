package postgres_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// reads are all that is read for a tenant, of acme: what it finds there, or an error.
func (w *walled) reads() map[string]func(context.Context, *storetest.Stores) (any, error) {
	e, d := w.endpoints["acme"].ID, w.deliveries["acme"]
	page := webhook.Page{Limit: 10}
	return map[string]func(context.Context, *storetest.Stores) (any, error){
		"Tenant":        func(ctx context.Context, s *storetest.Stores) (any, error) { return s.Tenant(ctx, "acme") },
		"TenantLimits":  func(ctx context.Context, s *storetest.Stores) (any, error) { return s.TenantLimits(ctx, "acme") },
		"ListKeys":      func(ctx context.Context, s *storetest.Stores) (any, error) { return s.ListKeys(ctx, "acme", page) },
		"Endpoint":      func(ctx context.Context, s *storetest.Stores) (any, error) { return s.Endpoint(ctx, "acme", e) },
		"ListEndpoints": func(ctx context.Context, s *storetest.Stores) (any, error) { return s.ListEndpoints(ctx, "acme", page) },
		"TargetOf":      func(ctx context.Context, s *storetest.Stores) (any, error) { return s.TargetOf(ctx, "acme", e) },
		"Attempts": func(ctx context.Context, s *storetest.Stores) (any, error) {
			return s.Attempts(ctx, "acme", d.DeliveryID, 10, 0)
		},
		"Delivery": func(ctx context.Context, s *storetest.Stores) (any, error) {
			return s.Delivery(ctx, "acme", d.DeliveryID)
		},
		"Payload": func(ctx context.Context, s *storetest.Stores) (any, error) { return s.Payload(ctx, "acme", d.EventID) },
		"Replay": func(ctx context.Context, s *storetest.Stores) (any, error) {
			return s.Replay(ctx, "acme", w.replays["acme"].ID)
		},
		"ListReplays": func(ctx context.Context, s *storetest.Stores) (any, error) { return s.ListReplays(ctx, "acme", page) },
		"ListDeliveries": func(ctx context.Context, s *storetest.Stores) (any, error) {
			found, _, err := s.ListDeliveries(ctx, "acme", webhook.DeliveryFilter{}, page)
			return found, err
		},
		"GroupDeadLetters": func(ctx context.Context, s *storetest.Stores) (any, error) {
			found, err := s.GroupDeadLetters(ctx, "acme", webhook.DeliveryFilter{})
			return found.Groups, err
		},
		"CountReplay": func(ctx context.Context, s *storetest.Stores) (any, error) {
			return s.CountReplay(ctx, webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters})
		},
		"ListEvents": func(ctx context.Context, s *storetest.Stores) (any, error) {
			found, _, err := s.ListEvents(ctx, "acme", webhook.EventFilter{}, page)
			return found, err
		},
		"ListEvents by external id": func(ctx context.Context, s *storetest.Stores) (any, error) {
			found, _, err := s.ListEvents(ctx, "acme", webhook.EventFilter{ExternalID: "one"}, page)
			return found, err
		},
		"EndpointsOf": func(ctx context.Context, s *storetest.Stores) (any, error) {
			endpoints, _, err := storetest.ReadEndpoints(ctx, s.Cache(), "acme")
			return endpoints, err
		},
		"Event": func(ctx context.Context, s *storetest.Stores) (any, error) {
			_, deliveries, err := s.Event(ctx, "acme", d.EventID)
			return deliveries, err
		},
		"Health": func(ctx context.Context, s *storetest.Stores) (any, error) {
			_, seen, err := s.Health(ctx, "acme", e, "")
			return seen, err
		},
		"ReadStatistics": func(ctx context.Context, s *storetest.Stores) (any, error) {
			now := time.Now()
			return s.ReadStatistics(ctx, webhook.StatisticsQuery{
				TenantID: "acme", EndpointID: e, Since: now.Add(-time.Hour), Until: now.Add(time.Hour), Step: time.Minute,
			})
		},
		"ObservationsOf": func(ctx context.Context, s *storetest.Stores) (any, error) {
			seen, err := s.ObservationsOf(ctx, "acme", []webhook.EndpointID{e}, "")
			return seen[e], err
		},
	}
}

// changes are all that is changed for a tenant, of acme.
func (w *walled) changes() map[string]func(context.Context, *storetest.Stores) error {
	e, d, by := w.endpoints["acme"], w.deliveries["acme"], storetest.TestActor()
	return map[string]func(context.Context, *storetest.Stores) error{
		"CreateKey": func(ctx context.Context, s *storetest.Stores) error {
			return s.CreateKey(ctx, by, webhook.Key{ID: webhook.NewKeyID(), TenantID: "acme", Scope: webhook.ScopeAdmin, CreatedAt: time.Now()})
		},
		"RevokeKey": func(ctx context.Context, s *storetest.Stores) error {
			return s.RevokeKey(ctx, by, "acme", w.keys["acme"].ID)
		},
		"DeleteEndpoint": func(ctx context.Context, s *storetest.Stores) error { return s.DeleteEndpoint(ctx, by, "acme", e.ID) },
		"NoteTest":       func(ctx context.Context, s *storetest.Stores) error { return s.NoteTest(ctx, by, "acme", e.ID) },
		"CreateEndpoint": func(ctx context.Context, s *storetest.Stores) error {
			_, err := s.CreateEndpoint(ctx, by, storetest.TestEndpoint("acme"), storetest.CanarySecret)
			return err
		},
		"UpdateEndpoint": func(ctx context.Context, s *storetest.Stores) error {
			_, err := s.UpdateEndpoint(ctx, by, "acme", e.ID, func(e *webhook.Endpoint) error {
				e.URL = "https://example.org/elsewhere"
				return nil
			})
			return err
		},
		"PauseEndpoint": func(ctx context.Context, s *storetest.Stores) error {
			_, err := s.PauseEndpoint(ctx, by, "acme", e.ID, "")
			return err
		},
		"ResumeEndpoint": func(ctx context.Context, s *storetest.Stores) error {
			_, _, err := s.ResumeEndpoint(ctx, by, "acme", e.ID, 10, "")
			return err
		},
		"EndpointSecret": func(ctx context.Context, s *storetest.Stores) error {
			_, err := s.EndpointSecret(ctx, by, "acme", e.ID)
			return err
		},
		"RotateSecret": func(ctx context.Context, s *storetest.Stores) error {
			_, err := s.RotateSecret(ctx, by, "acme", e.ID, webhook.Rotation{Grace: time.Hour})
			return err
		},
		"Command": func(ctx context.Context, s *storetest.Stores) error {
			_, _, err := s.Command(ctx, by, "acme", d.DeliveryID, webhook.PendingCommand{Command: webhook.CommandDiscard})
			return err
		},
		"CreateReplay": func(ctx context.Context, s *storetest.Stores) error {
			_, err := s.CreateReplay(ctx, by, webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters, Asked: 10})
			return err
		},
		"CommandReplay": func(ctx context.Context, s *storetest.Stores) error {
			_, err := s.CommandReplay(ctx, by, "acme", w.replays["acme"].ID, webhook.ReplayCommand{Action: webhook.ReplayPause})
			return err
		},
	}
}

// The statements select acme's rows, with all their conditions, but the session names another tenant, as if a condition were wrong. Row-level
// security lets no row through.
func TestRowLevelSecurityHidesOtherTenants(t *testing.T) {
	t.Parallel()
	w := setupWall(t)
	foreign := storetest.OpenStore(t, w.Address)
	for name, read := range w.reads() {
		found, err := read(t.Context(), w.Stores)
		require.NoError(t, err, name)
		require.False(t, nothing(found), "%s finds something without the wall in its way", name)
	}
	before := w.content(t)
	for _, tenant := range []string{"other", "nobody"} {
		foreign.Misname(tenant)
		for name, read := range w.reads() {
			found, err := read(t.Context(), foreign)
			if err == nil {
				require.True(t, nothing(found), "%s as %s: %+v", name, tenant, found)
			} else {
				storetest.RequireCode(t, webhook.CodeNotFound, err)
			}
		}
		for name, change := range w.changes() {
			require.Error(t, change(t.Context(), foreign), "%s as %s", name, tenant)
		}
		require.Equal(t, before, w.content(t), "as %s", tenant)
	}
	foreign.Misname("")
	for _, name := range []string{
		"CreateKey", "RevokeKey", "CreateEndpoint", "UpdateEndpoint", "ResumeEndpoint", "PauseEndpoint", "EndpointSecret", "RotateSecret",
		"NoteTest", "Command", "CreateReplay", "CommandReplay", "DeleteEndpoint",
	} {
		require.NoError(t, w.changes()[name](t.Context(), foreign), name)
		after := w.content(t)
		require.NotEqual(t, before, after, name)
		before = after
	}
	require.Len(t, w.changes(), 13)
}

func nothing(found any) bool {
	v := reflect.ValueOf(found)
	return !v.IsValid() || v.Kind() == reflect.Slice && v.Len() == 0
}

// content is a sum over all rows, as the owner sees them.
func (w *walled) content(t *testing.T) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for table := range belongs() {
		sums[table] = storetest.Query[string](t, w.Stores, `select coalesce(md5(string_agg(r::text, '|' order by r::text)), '') from `+table+` r`)[0]
	}
	return sums
}

// An operational event of one tenant's is an event of the operator's tenant too, and the
// only thing that is written across.
func TestAnOperationalEventGoesToTheOperatorsTenantThroughTheWall(t *testing.T) {
	t.Parallel()
	w := setupWall(t)
	s, err := storetest.OpenStores(t.Context(), stores.Config{
		URL: w.Address, MaxConns: 4, Sealer: storetest.NewTestSealer(t), MakeSecret: storetest.TestSecret, OperatorTenant: "other",
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	listener := storetest.TestEndpoint("other")
	listener.EventTypes, listener.RetryPolicy = []string{"everpost.*"}, retry.Default()
	_, err = s.CreateEndpoint(t.Context(), storetest.TestActor(), listener, storetest.CanarySecret)
	require.NoError(t, err)
	_, _, err = s.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", w.endpoints["acme"].ID, 10, "") // it was made paused
	require.NoError(t, err)
	require.Equal(t, []string{"other"}, storetest.Query[string](t, s, `select tenant_id from events where type like 'everpost.%'`))
	require.Equal(t, []string{"endpoint.resume"},
		storetest.Query[string](t, s, `select action from audit_log where tenant_id = 'acme' order by id desc limit 1`),
		"the transaction went back to its own tenant")
}
