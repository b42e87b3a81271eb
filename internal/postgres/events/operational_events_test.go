package events_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestStateChangesAreReported(t *testing.T) {
	t.Parallel()
	b := storetest.SetupOperational(t)
	own, all := b.ListensTo(t, "acme", webhook.EventEndpointPaused, "order.*"), b.ListensTo(t, "acme", "everpost.endpoint.*")
	operator := b.ListensTo(t, "ops", "everpost.*")
	b.ListensTo(t, "acme", "*") // not for those
	b.ListensTo(t, "ops", "*", "order.*")
	_, err := b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
		e.URL, e.Description = "https://user:canary@example.com/hook%2Fa?token=canary#canary", "the <shop>"
		return nil
	})
	require.NoError(t, err)
	require.Zero(t, b.Count(t, "events"), "another URL is no new state")
	for range 2 { // the second changes nothing
		_, err = b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
		require.NoError(t, err)
	}
	for tenant, want := range map[string]map[webhook.EndpointID]int{"acme": {own.ID: 1, all.ID: 1}, "ops": {operator.ID: 1}} {
		events := b.OperationalEvents(t, tenant, webhook.EventEndpointPaused)
		require.Len(t, events, 1, tenant)
		at, err := time.Parse("2006-01-02T15:04:05.000000Z", fmt.Sprint(events[0]["at"]))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, time.Minute)
		delete(events[0], "at")
		require.Equal(t, map[string]any{
			"tenant_id": "acme", "tenant_contact": "hooks@acme.example",
			"endpoint": map[string]any{
				"id": b.Subscriber.ID.String(), "url": "https://example.com/hook%2Fa", "description": "the <shop>", "state": "paused",
				"state_reason": "paused by hand",
			},
			"summary": "The endpoint is paused; its deliveries are held until it is resumed.",
		}, events[0])
		require.Equal(t, want, b.Starts(t, tenant))
	}
	left, err := b.TakeStarts(t.Context(), "test", 100)
	require.NoError(t, err)
	require.Len(t, left, 3, "the relay takes them at once")
	for _, start := range left {
		require.Equal(t, start.DeliveryID, webhook.DeliveryIDOf(start.EventID, start.EndpointID))
		require.WithinDuration(t, time.Now().Add(72*time.Hour), start.GiveUpAt, time.Minute)
	}
	_, _, err = b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, 10, "")
	require.NoError(t, err)
	require.Len(t, b.OperationalEvents(t, "ops", webhook.EventEndpointResumed), 1)
	b.ChangedLongAgo(t)
	require.NotEmpty(t, storetest.CountFailures(t, b.Stores, b.Refused(100)))
	events := b.OperationalEvents(t, "ops", webhook.EventEndpointDisabled)
	require.Len(t, events, 1)
	require.Equal(t, "The endpoint is disabled, because 100 requests in a row were refused permanently, the last with 404 Not Found; "+
		"its deliveries are held until it is resumed.", events[0]["summary"])
}

// Nothing is written without an endpoint that subscribes to it, or when the change fails.
func TestNothingIsWrittenWithoutASubscriber(t *testing.T) {
	t.Parallel()
	b := storetest.SetupOperational(t)
	b.ListensTo(t, "acme", "*", webhook.EventEndpointDisabled)
	b.ListensTo(t, "ops", "*")
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	stored, err := b.Notify(t.Context(), []webhook.OperationalEvent{b.Opened("acme")})
	require.NoError(t, err)
	require.Empty(t, stored)
	require.Zero(t, b.Count(t, "events"))

	b.ListensTo(t, "acme", "everpost.*")
	broken := b.Subscriber.ID
	_, err = b.Pool().Exec(t.Context(), `alter table audit_log add check (action <> 'endpoint.resume') not valid`)
	require.NoError(t, err)
	_, _, err = b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", broken, 1, "")
	require.Error(t, err)
	require.Zero(t, b.Count(t, "events"), "only committed changes are reported")
	require.Zero(t, b.Count(t, "outbox"))
}

func TestNotify(t *testing.T) {
	t.Parallel()
	b := storetest.SetupOperational(t)
	own, operator := b.ListensTo(t, "acme", "everpost.*"), b.ListensTo(t, "ops", "everpost.*")
	var all []webhook.OperationalEvent
	const n = 250 // more than a batch
	for i := range n {
		dead := webhook.OperationalEvent{
			Type: webhook.EventDeadLettered, TenantID: "acme", At: time.Now(), Key: fmt.Sprintf("dead/%d", i),
			Delivery: &webhook.OperationalEventDelivery{ID: webhook.DeliveryID{15: byte(i)}, Reason: "http_404", Attempts: 1, EventType: "order.paid"},
		}
		all = append(all, dead, dead) // the second time is the same
	}
	all = append(all, b.Opened("acme"))
	stored, err := b.Notify(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, stored, 2*(n+1))
	require.Len(t, b.OperationalEvents(t, "acme", webhook.EventDeadLettered), n)
	events := b.OperationalEvents(t, "ops", webhook.EventDeadLettered)
	require.Len(t, events, n)
	require.Equal(t, "hooks@acme.example", events[0]["tenant_contact"])
	require.Equal(t, "acme", events[0]["tenant_id"])
	delivery, _ := events[0]["delivery"].(map[string]any)
	require.Equal(t, "order.paid", delivery["event_type"])
	require.Equal(t, map[webhook.EndpointID]int{own.ID: n + 1}, b.Starts(t, "acme"))
	require.Equal(t, map[webhook.EndpointID]int{operator.ID: n + 1}, b.Starts(t, "ops"))

	again, err := b.Notify(t.Context(), all[:2*n])
	require.NoError(t, err)
	require.Empty(t, again, "what is known by its key is not stored again")
}

// The operator's own endpoints get one event each. An operator tenant that does not exist gets none.
func TestOperatorTenant(t *testing.T) {
	t.Parallel()
	b := storetest.SetupOperational(t)
	operator := b.ListensTo(t, "ops", "everpost.*")
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "ops", operator.ID, "")
	require.NoError(t, err)
	stored, err := b.Notify(t.Context(), []webhook.OperationalEvent{b.Opened("ops")})
	require.NoError(t, err)
	require.Len(t, stored, 1)
	require.Equal(t, 2, b.Count(t, "events"))
	require.Nil(t, b.OperationalEvents(t, "ops", webhook.EventEndpointPaused)[0]["tenant_contact"], "unknown")

	nobody, err := storetest.OpenStores(t.Context(), stores.Config{URL: b.Address, MaxConns: 4, OperatorTenant: "nobody"})
	require.NoError(t, err)
	t.Cleanup(nobody.Close)
	listens, err := nobody.Listens(t.Context(), "acme", webhook.EventEndpointPaused)
	require.NoError(t, err)
	require.False(t, listens)
	stored, err = nobody.Notify(t.Context(), []webhook.OperationalEvent{b.Opened("acme")})
	require.NoError(t, err)
	require.Empty(t, stored)
}

func TestCompletedReplaysAreTold(t *testing.T) {
	t.Parallel()
	b := storetest.SetupOperational(t)
	b.ListensTo(t, "ops", webhook.EventReplayCompleted)
	for _, state := range webhook.ReplayStates() {
		r := b.StartReplay(t, webhook.Replay{Filter: webhook.ReplayFilter{EndpointID: b.Subscriber.ID}})
		for range 2 { // the second is known
			_, err := b.StepReplay(t.Context(), webhook.ReplayStep{ID: r.ID, Seq: 1, State: state, Asked: 100, Rate: 100})
			require.NoError(t, err)
		}
		events := b.OperationalEvents(t, "ops", webhook.EventReplayCompleted)
		_, err := b.Pool().Exec(t.Context(), `delete from events`)
		require.NoError(t, err)
		if state != webhook.ReplayCompleted {
			require.Empty(t, events, state)
			continue
		}
		require.Len(t, events, 1)
		require.Equal(t, map[string]any{
			"id": r.ID.String(), "source": "dead_letters", "endpoint_id": b.Subscriber.ID.String(),
			"total": 0.0, "released": 0.0, "skipped": 0.0, "delivered": 0.0, "failed": 0.0,
		}, events[0]["replay"])
	}
}

// One automatic replay is created, of the dead letters since the outage, and none while it is open, or without auto_replay.
func TestAutoReplay(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	since := time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond)
	begin := func(s *storetest.Stores, since time.Time) (webhook.Replay, bool) {
		t.Helper()
		r, begun, err := s.AutoReplay(t.Context(), "acme", b.Subscriber.ID, since)
		require.NoError(t, err)
		return r, begun
	}
	b.DeadLetters(t, 3)
	_, begun := begin(b.Stores, since)
	require.False(t, begun, "it does not ask for it")
	_, err := b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
		e.AutoReplay = true
		return nil
	})
	require.NoError(t, err)
	_, begun = begin(b.Stores, time.Now().Add(time.Minute))
	require.False(t, begun, "there is nothing")
	require.Zero(t, b.Count(t, "replays"))

	made, begun := begin(b.Stores, since)
	require.True(t, begun)
	_, begun = begin(storetest.OpenStore(t, b.Address), since)
	require.False(t, begun, "there is one")
	replays, err := b.ListReplays(t.Context(), "acme", webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Len(t, replays, 1)
	r := replays[0]
	require.Equal(t, made, r)
	require.Equal(t, webhook.ReplayDeadLetters, r.Source)
	require.Equal(t, webhook.ReplayFilter{EndpointID: b.Subscriber.ID, Since: since}, r.Filter)
	require.Equal(t, webhook.DefaultReplayRate, r.Asked)
	require.True(t, r.Ramp)
	require.EqualValues(t, 3, *r.Total)
	require.Equal(t, []string{"everpost"}, storetest.Query[string](t, b.Stores, `select actor from audit_log where action = 'replay.create'`))

	_, err = b.Pool().Exec(t.Context(), `update replays set state = 3; update endpoints set state = 1`)
	require.NoError(t, err)
	_, begun = begin(b.Stores, since)
	require.False(t, begun, "it is paused")
	_, err = b.Pool().Exec(t.Context(), `update endpoints set state = 0`)
	require.NoError(t, err)
	_, begun = begin(b.Stores, since)
	require.True(t, begun)
	_, begun, err = b.AutoReplay(t.Context(), "acme", webhook.NewEndpointID(), since)
	require.NoError(t, err)
	require.False(t, begun)
}

// Two processes find an outage over at the same time: the second waits for the first, and
// sees what that began.
func TestAutoReplayTakesTurns(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.DeadLetters(t, 3)
	_, err := b.Pool().Exec(t.Context(), `update endpoints set auto_replay = true`)
	require.NoError(t, err)
	tx, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select from endpoints where id = $1 for no key update`, b.Subscriber.ID)
	require.NoError(t, err)
	second, result := storetest.OpenStore(t, b.Address), make(chan bool, 1)
	go func() {
		_, begun, err := second.AutoReplay(context.WithoutCancel(t.Context()), "acme", b.Subscriber.ID, time.Now().Add(-time.Minute))
		result <- begun || err != nil
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := b.Pool().QueryRow(t.Context(), `select exists (select from pg_locks l
			where not l.granted and l.locktype in ('transactionid', 'tuple') and l.pid in
				(select pid from `+storetest.LocksHere+` h where relation = 'endpoints'::regclass))`).Scan(&waits)
		return err == nil && (waits || len(result) > 0)
	}, storetest.Eventually, storetest.Poll)
	first := webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters, Filter: webhook.ReplayFilter{EndpointID: b.Subscriber.ID}, Asked: 1}
	require.NoError(t, replays.Insert(t.Context(), tx, audit.System(), &first))
	require.NoError(t, tx.Commit(t.Context()))
	require.False(t, <-result)
	require.Equal(t, 1, b.Count(t, "replays"))
}
