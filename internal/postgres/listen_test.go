package postgres

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

func listen(t *testing.T, s *stores) {
	t.Helper()
	s.Listen(t.Context())
	require.Eventually(t, s.Listening, eventually, poll)
}

// setupTwo are two processes on one schema, the second of which listens.
func setupTwo(t *testing.T) (changing, listening *stores) {
	t.Helper()
	changing, address := setupStore(t)
	listening = openStore(t, address)
	listen(t, listening)
	return changing, listening
}

func TestAChangeIsHeardByOtherProcesses(t *testing.T) {
	t.Parallel()
	s, other := setupTwo(t)
	e, key := createEndpoint(t, s, "acme"), testKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), testActor(), key))
	c := other.Cache()
	target, err := c.Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, e.URL, target.URL)
	of, _, err := c.OfTenant(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, of, 1)
	_, err = other.Authenticate(t.Context(), key.ID, key.SHA256)
	require.NoError(t, err)

	// Well below staleAfter: that it was heard, and did not just grow old.
	soon := func(what string, condition func() bool) {
		start := time.Now()
		require.Eventually(t, condition, eventually, poll, what)
		require.Equal(t, freshFor, other.timeToLive(), "%s: the listener was up all the time", what)
		require.Less(t, time.Since(start), freshFor/2, what)
	}
	_, err = s.UpdateEndpoint(t.Context(), testActor(), "acme", e.ID, func(e *webhook.Endpoint) error { e.URL = "https://new.example"; return nil })
	require.NoError(t, err)
	soon("target", func() bool {
		target, err := c.Target(t.Context(), e.ID)
		return err == nil && target.URL == "https://new.example"
	})
	soon("endpoints", func() bool {
		of, at, err := c.OfTenant(t.Context(), "acme")
		return err == nil && at == 2 && of[0].URL == "https://new.example"
	})
	require.NoError(t, s.RevokeKey(t.Context(), testActor(), "acme", key.ID))
	soon("key", func() bool {
		_, err := other.Authenticate(t.Context(), key.ID, key.SHA256)
		return webhook.CodeOf(err) == webhook.CodeUnauthenticated
	})

	key = testKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), testActor(), key))
	_, err = other.Authenticate(t.Context(), key.ID, key.SHA256)
	require.NoError(t, err)
	require.NoError(t, s.DeleteEndpoint(t.Context(), testActor(), "acme", e.ID))
	require.NoError(t, s.DeleteTenant(t.Context(), testActor(), "acme"))
	soon("deleted tenant", func() bool {
		_, _, err := c.OfTenant(t.Context(), "acme")
		_, keyErr := other.Authenticate(t.Context(), key.ID, key.SHA256)
		return webhook.CodeOf(err) == webhook.CodeNotFound && webhook.CodeOf(keyErr) == webhook.CodeUnauthenticated
	})
}

func TestAChangeThatIsUndoneIsNotTold(t *testing.T) {
	t.Parallel()
	s, address := setupStore(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	var channel string
	require.NoError(t, conn.QueryRow(t.Context(), `select `+channelName).Scan(&channel))
	_, err = conn.Exec(t.Context(), `listen `+channel)
	require.NoError(t, err)

	e := createEndpoint(t, s, "acme")
	breakAudit(t, s)
	require.Error(t, s.DeleteEndpoint(t.Context(), testActor(), "acme", e.ID))
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
	s, address := setupStore(t)
	// A name of its own, so that this test ends only its own listener.
	other := openStore(t, address+"&application_name=cut_off")
	listen(t, other)
	e := createEndpoint(t, s, "acme")
	before, err := other.Cache().Target(t.Context(), e.ID)
	require.NoError(t, err)

	ended := query[bool](t, s, `select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'cut_off listener'`)
	require.Equal(t, []bool{true}, ended)
	require.Eventually(t, func() bool {
		after, err := other.Cache().Target(t.Context(), e.ID)
		return err == nil && after != before && other.Listening()
	}, eventually, poll, "read anew after the reconnect")

	_, err = s.UpdateEndpoint(t.Context(), testActor(), "acme", e.ID, func(e *webhook.Endpoint) error { e.URL = "https://new.example"; return nil })
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		target, err := other.Cache().Target(t.Context(), e.ID)
		return err == nil && target.URL == "https://new.example"
	}, eventually, poll, "and it hears again")
}

// Whoever calls when the database is back gets a connection to it, not one of before.
func TestConnectionsOfBeforeAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	_, address := setupStore(t)
	w, through := postgrestest.NewProxy(t, address)
	s := openStore(t, through)
	listen(t, s)
	var used []*pgxpool.Conn
	for range 3 {
		conn, err := s.pool.Acquire(t.Context())
		require.NoError(t, err)
		used = append(used, conn)
	}
	for _, conn := range used {
		conn.Release()
	}
	require.Positive(t, s.pool.Stat().IdleConns())

	w.Cut()
	require.Eventually(t, func() bool { return s.pool.Stat().TotalConns() == 0 }, eventually, poll)
	w.Mend()
	require.Eventually(t, s.Listening, eventually, poll)
	_, err := s.Tenant(t.Context(), "acme")
	require.NoError(t, err)
}

// A fill that began before the listener came back must not be stored after it: what
// changed in between was not heard.
func TestAReconnectOvertakesAFillUnderWay(t *testing.T) {
	t.Parallel()
	s, address := setupStore(t)
	e := createEndpoint(t, s, "acme")
	other := openStore(t, address)
	blocker, err := s.login.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = blocker.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = blocker.Exec(t.Context(), `lock table endpoint_secrets in access exclusive mode`)
	require.NoError(t, err)

	got := make(chan error, 1)
	go func() { _, err := other.Cache().Target(t.Context(), e.ID); got <- err }()
	require.Eventually(t, func() bool { return other.Endpoints.cache.targets.Filling() == 1 }, eventually, poll)
	listen(t, other)
	require.Zero(t, other.Endpoints.cache.targets.Filling())
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, <-got)
	require.Zero(t, other.Endpoints.cache.targets.Len())
}

// A connection that is dead without having said so: nothing arrives, nothing fails.
func TestASilentConnectionIsNoticedAndARevocationIsInEffectWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	s, address := setupStore(t)
	w, through := postgrestest.NewProxy(t, address)
	silent := openStore(t, through)
	k := testKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), testActor(), k))
	listen(t, silent) // after the creation, of which it would hear when the key is in its cache
	_, err := silent.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)

	w.Swallow()
	require.NoError(t, s.RevokeKey(t.Context(), testActor(), "acme", k.ID))
	revoked := time.Now()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := silent.Authenticate(ctx, k.ID, k.SHA256)
		return err != nil
	}, eventually, poll)
	require.Less(t, time.Since(revoked), staleAfter+500*time.Millisecond)
	require.False(t, silent.Listening())

	w.Cut()
	w.Mend()
	require.Eventually(t, silent.Listening, eventually, poll)
	_, err = silent.Authenticate(t.Context(), k.ID, k.SHA256)
	requireCode(t, webhook.CodeUnauthenticated, err)
}

func TestWithoutAListenerEntriesAreShortLived(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	require.False(t, s.Listening())
	require.Equal(t, staleAfter, s.timeToLive())
	listen(t, s)
	require.Equal(t, freshFor, s.timeToLive())
}

// advance moves the clock of a synctest bubble on. No real time passes.
func advance(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the clock is synctest's
}

func TestTheListenerCountsAsDownSoonAfterItsLastBeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h heartbeat
		require.False(t, h.alive())
		h.beat(time.Now())
		advance(beatLife)
		require.True(t, h.alive())
		advance(time.Nanosecond)
		require.False(t, h.alive())
		h.beat(time.Now())
		require.True(t, h.alive())
		h.stop()
		require.False(t, h.alive())
	})
	require.LessOrEqual(t, beatLife, staleAfter, "a dead listener is noticed before an entry is too old")
	require.Less(t, beatEvery+beatTimeout, beatLife, "a slow answer is no outage")
}

func TestAChangeOfAnUnknownKindForgetsAll(t *testing.T) {
	t.Parallel()
	s, other := setupTwo(t)
	e := createEndpoint(t, s, "acme")
	before, err := other.Cache().Target(t.Context(), e.ID)
	require.NoError(t, err)
	_, err = s.login.Exec(t.Context(), `select pg_notify(`+channelName+`, 'what is this')`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		after, err := other.Cache().Target(t.Context(), e.ID)
		return err == nil && after != before
	}, eventually, poll)
}

// Only what leads an endpoint elsewhere or gives it another state is told as a move:
// neither another change, nor one that was refused or belongs to a stranger.
func TestOnlyAMoveIsTold(t *testing.T) {
	t.Parallel()
	changing, address := setupStore(t)
	listening, moved := openStore(t, address), make(chan webhook.EndpointID, 10)
	listening.subscribe(endpointMoved(func(id webhook.EndpointID) { moved <- id }))
	listen(t, listening)
	_, _, err := changing.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: "other"})
	require.NoError(t, err)
	e, last := createEndpoint(t, changing, "acme"), createEndpoint(t, changing, "other")
	change := func(tenantID string, to func(*webhook.Endpoint) error) error {
		_, err := changing.UpdateEndpoint(t.Context(), testActor(), tenantID, e.ID, to)
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
	_, err = changing.UpdateEndpoint(t.Context(), testActor(), "other", last.ID, disable) // behind all others
	require.NoError(t, err)
	for _, want := range []webhook.EndpointID{e.ID, e.ID, last.ID} {
		select {
		case id := <-moved:
			require.Equal(t, want, id)
		case <-time.After(eventually):
			require.FailNow(t, "it was not told", "%s", want)
		}
	}
}
