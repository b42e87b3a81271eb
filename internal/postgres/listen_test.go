package postgres_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

// setupTwo are two processes on one schema, the second of which listens.
func setupTwo(t *testing.T) (changing, listening *storetest.Stores) {
	t.Helper()
	changing, address := storetest.SetupStore(t)
	listening = storetest.OpenStore(t, address)
	storetest.Listen(t, listening)
	return changing, listening
}

func TestAChangeIsHeardByOtherProcesses(t *testing.T) {
	t.Parallel()
	s, other := setupTwo(t)
	e, key := storetest.CreateEndpoint(t, s, "acme"), storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), key))
	c := other.Cache()
	target, err := c.Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, e.URL, target.URL)
	of, _ := storetest.EndpointsOf(t, c, "acme")
	require.Len(t, of, 1)
	_, err = other.Authenticate(t.Context(), key.ID, key.SHA256)
	require.NoError(t, err)

	// Well below staleAfter: it was notified, and did not just expire.
	soon := func(what string, condition func() bool) {
		start := time.Now()
		require.Eventually(t, condition, storetest.Eventually, storetest.Poll, what)
		require.Equal(t, postgres.FreshFor, other.TimeToLive(), "%s: the listener was up all the time", what)
		require.Less(t, time.Since(start), postgres.FreshFor/2, what)
	}
	_, err = s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error { e.URL = "https://new.example"; return nil })
	require.NoError(t, err)
	soon("target", func() bool {
		target, err := c.Target(t.Context(), e.ID)
		return err == nil && target.URL == "https://new.example"
	})
	soon("endpoints", func() bool {
		of, at := storetest.EndpointsOf(t, c, "acme")
		return at == 2 && of[0].URL == "https://new.example"
	})
	require.NoError(t, s.RevokeKey(t.Context(), storetest.TestActor(), "acme", key.ID))
	soon("key", func() bool {
		_, err := other.Authenticate(t.Context(), key.ID, key.SHA256)
		return webhook.CodeOf(err) == webhook.CodeUnauthenticated
	})

	key = storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), key))
	_, err = other.Authenticate(t.Context(), key.ID, key.SHA256)
	require.NoError(t, err)
	require.NoError(t, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID))
	require.NoError(t, s.DeleteTenant(t.Context(), storetest.TestActor(), "acme"))
	soon("deleted tenant", func() bool {
		_, err := c.OfTenant(t.Context(), "acme")
		_, keyErr := other.Authenticate(t.Context(), key.ID, key.SHA256)
		return webhook.CodeOf(err) == webhook.CodeNotFound && webhook.CodeOf(keyErr) == webhook.CodeUnauthenticated
	})
}

func TestAChangeThatIsUndoneIsNotTold(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	var channel string
	require.NoError(t, conn.QueryRow(t.Context(), `select `+postgres.ChannelName).Scan(&channel))
	_, err = conn.Exec(t.Context(), `listen `+channel)
	require.NoError(t, err)

	e := storetest.CreateEndpoint(t, s, "acme")
	storetest.BreakAudit(t, s)
	require.Error(t, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID))
	_, err = conn.Exec(t.Context(), `select pg_notify($1, 'end')`, channel)
	require.NoError(t, err)

	n, err := conn.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.JSONEq(t, `{"k":"endpoint","id":"`+e.ID.String()+`","t":"acme","v":1}`, n.Payload)
	n, err = conn.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "end", n.Payload)
}

func TestAListenerThatIsCutOffReconnectsAndForgetsAll(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	// A name of its own, so that this test ends only its own listener.
	other := storetest.OpenStore(t, address+"&application_name=cut_off")
	storetest.Listen(t, other)
	e := storetest.CreateEndpoint(t, s, "acme")
	before, err := other.Cache().Target(t.Context(), e.ID)
	require.NoError(t, err)

	ended := storetest.Query[bool](t, s, `select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'cut_off listener'`)
	require.Equal(t, []bool{true}, ended)
	require.Eventually(t, func() bool {
		after, err := other.Cache().Target(t.Context(), e.ID)
		return err == nil && after != before && other.Listening()
	}, storetest.Eventually, storetest.Poll, "read again after the reconnect")

	_, err = s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error { e.URL = "https://new.example"; return nil })
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		target, err := other.Cache().Target(t.Context(), e.ID)
		return err == nil && target.URL == "https://new.example"
	}, storetest.Eventually, storetest.Poll, "and it hears again")
}

// After an outage of the database callers get new connections.
func TestOldConnectionsAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	_, address := storetest.SetupStore(t)
	w, through := postgrestest.NewProxy(t, address)
	s := storetest.OpenStore(t, through)
	storetest.Listen(t, s)
	leaveIdle(t, s)
	w.Cut()
	require.Eventually(t, func() bool { return s.TenantPool().Stat().TotalConns() == 0 }, storetest.Eventually, storetest.Poll)
	w.Restore()
	require.Eventually(t, s.Listening, storetest.Eventually, storetest.Poll)
	_, err := s.Tenant(t.Context(), "acme")
	require.NoError(t, err)
}

// A cache fill that began before the listener reconnected must not be stored after that: it may lack a change that was not notified.
func TestReconnectDuringACacheFill(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	other := storetest.OpenStore(t, address)
	blocker, err := s.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = blocker.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = blocker.Exec(t.Context(), `lock table endpoint_secrets in access exclusive mode`)
	require.NoError(t, err)

	got := make(chan error, 1)
	go func() { _, err := other.Cache().Target(t.Context(), e.ID); got <- err }()
	require.Eventually(t, func() bool { return other.Endpoints.Cache().Filling() == 1 }, storetest.Eventually, storetest.Poll)
	storetest.Listen(t, other)
	require.Zero(t, other.Endpoints.Cache().Filling())
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, <-got)
	_, known := other.Endpoints.Cache().Known(e.ID)
	require.False(t, known)
}

// A connection that is dead without having said so: nothing arrives, nothing fails.
func TestASilentConnectionIsNoticedAndARevocationIsInEffectWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	w, through := postgrestest.NewProxy(t, address)
	silent := storetest.OpenStore(t, through)
	k := storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
	storetest.Listen(t, silent) // after the creation, of which it would hear when the key is in its cache
	_, err := silent.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)

	w.Swallow()
	require.NoError(t, s.RevokeKey(t.Context(), storetest.TestActor(), "acme", k.ID))
	revoked := time.Now()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := silent.Authenticate(ctx, k.ID, k.SHA256)
		return err != nil
	}, storetest.Eventually, storetest.Poll)
	require.Less(t, time.Since(revoked), postgres.StaleAfter+500*time.Millisecond)
	require.False(t, silent.Listening())

	w.Cut()
	w.Restore()
	require.Eventually(t, silent.Listening, storetest.Eventually, storetest.Poll)
	_, err = silent.Authenticate(t.Context(), k.ID, k.SHA256)
	storetest.RequireCode(t, webhook.CodeUnauthenticated, err)
}

func TestWithoutAListenerEntriesAreShortLived(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	require.False(t, s.Listening())
	require.Equal(t, postgres.StaleAfter, s.TimeToLive())
	storetest.Listen(t, s)
	require.Equal(t, postgres.FreshFor, s.TimeToLive())
}

// advance moves the clock of a synctest bubble on. No real time passes.
func advance(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the clock is synctest's
}

func TestTheListenerCountsAsDownSoonAfterItsLastBeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h postgres.Heartbeat
		require.False(t, h.Alive())
		h.Beat(time.Now())
		advance(postgres.BeatLife)
		require.True(t, h.Alive())
		advance(time.Nanosecond)
		require.False(t, h.Alive())
		h.Beat(time.Now())
		require.True(t, h.Alive())
		h.Stop()
		require.False(t, h.Alive())
	})
	require.LessOrEqual(t, postgres.BeatLife, postgres.StaleAfter, "a dead listener is noticed before an entry is too old")
	require.Less(t, postgres.BeatEvery+postgres.BeatTimeout, postgres.BeatLife, "a slow answer is no outage")
}

func TestAChangeOfAnUnknownKindForgetsAll(t *testing.T) {
	t.Parallel()
	s, other := setupTwo(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	before, err := other.Cache().Target(t.Context(), e.ID)
	require.NoError(t, err)
	_, err = s.Pool().Exec(t.Context(), `select pg_notify(`+postgres.ChannelName+`, 'what is this')`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		after, err := other.Cache().Target(t.Context(), e.ID)
		return err == nil && after != before
	}, storetest.Eventually, storetest.Poll)
}

// Only a change of an endpoint's URL or state is notified as a move: no other change, and none that was refused or is another tenant's.
func TestOnlyAMoveIsNotified(t *testing.T) {
	t.Parallel()
	changing, address := storetest.SetupStore(t)
	listening, moved := storetest.OpenStore(t, address), make(chan webhook.EndpointID, 10)
	listening.Subscribe(postgres.EndpointMoved(func(id webhook.EndpointID) { moved <- id }))
	storetest.Listen(t, listening)
	_, _, err := changing.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "other"})
	require.NoError(t, err)
	e, last := storetest.CreateEndpoint(t, changing, "acme"), storetest.CreateEndpoint(t, changing, "other")
	change := func(tenantID string, to func(*webhook.Endpoint) error) error {
		_, err := changing.UpdateEndpoint(t.Context(), storetest.TestActor(), tenantID, e.ID, to)
		return err
	}
	describe := func(e *webhook.Endpoint) error { e.Description = "another"; return nil }
	require.NoError(t, change("acme", describe))
	require.NoError(t, change("acme", describe), "it changes nothing")
	require.Error(t, change("acme", func(*webhook.Endpoint) error { return webhook.NotFound("endpoint") }))
	require.Error(t, change("other", func(e *webhook.Endpoint) error { e.URL = "https://example.com/theirs"; return nil }))
	require.NoError(t, change("acme", func(e *webhook.Endpoint) error { e.URL = "https://example.com/elsewhere"; return nil }))
	disable := func(e *webhook.Endpoint) error { e.State = webhook.EndpointDisabled; return nil }
	require.NoError(t, change("acme", disable))
	_, err = changing.UpdateEndpoint(t.Context(), storetest.TestActor(), "other", last.ID, disable) // behind all others
	require.NoError(t, err)
	for _, want := range []webhook.EndpointID{e.ID, e.ID, last.ID} {
		select {
		case id := <-moved:
			require.Equal(t, want, id)
		case <-time.After(storetest.Eventually):
			require.FailNow(t, "it was not notified", "%s", want)
		}
	}
}
